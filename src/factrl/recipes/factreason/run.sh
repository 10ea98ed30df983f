#!/usr/bin/env bash
# Learning to Reason for Factuality, Llama-3.1-8B-Instruct: Tables 1 and 2.  A command a step; table.toml has their cells.
#
#   DATA=data JUDGE=http://host:8000/v1#meta-llama/Llama-3.3-70B-Instruct GPUS=8 OUT=out bash run.sh [STEP…]
#
# PREFERENCE is a server of the base model, which judges relevance; VERISCORE a clone of VeriScore, and PYTHON an
# interpreter that has it; RANK who ranks answers; SAMPLER= a server of the base for the samples of SFT and DPO.
# EXISTING=1 adds the models that Table 1 takes as released, with V3= and R1= addresses of the two large ones.
#
# Sources: "paper" with its section; "fairseq2" a default of the library that the paper trains with; "ours" is neither:
# schedule, warm-up, temperature, lengths, DPO's beta and the KL weight are not in the paper.
source "$(dirname "$0")/../common.sh"
here=$(dirname "$0") data=${DATA:-} out=${OUT:-}
[ -n "$data" ] || fail "give DATA=, the folder that data.py wrote"
[ -n "${JUDGE:-}" ] || fail "give JUDGE=, such as http://host:8000/v1#meta-llama/Llama-3.3-70B-Instruct"
needs "$data"/{sft,rl}.jsonl "$data"/eval/{longfact,fava,alpacafact,biography,factory,factbench}.jsonl "${VERISCORE:=VeriScore}"

base=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}                     # paper
relevance=(judge.preference_model="${PREFERENCE:-http://localhost:8001/v1#$base}") # paper: Figure 9, the base model
rank=${RANK:-openai/gpt-4o}                                         # paper: AlpacaEval's template, GPT-4o
sets=("$data"/eval/{longfact,fava,alpacafact,biography,factory,factbench}.jsonl)
vllm=train.use_vllm=$(on_gpu)                                       # paper: vLLM workers
veriscore=(verifier.preset=veriscore verifier.max_claims=100000 judge.url="$JUDGE" verifier.web="${WEB:-serper}") # paper: Llama-3.3-70B-Instruct finds and judges, Serper
flat=(train.lr_scheduler_type=constant train.warmup_steps=0)        # ours: not in the paper
asked=(--config "$here/recipe.toml")

evaluate() { # ROW MODEL BASELINE WORD…: VeriScore's own two models, six sets; win rates against the base that does not reason
    local more=()
    read -ra more <<<"${EVAL:-}"
    script "eval/$1" "$here/veriscore.py" "${sets[@]}" --model "$2" --veriscore "$VERISCORE" --python "${PYTHON:-python}" "$vllm" "${@:4}" "${more[@]}"
    [ "$1" = "$3" ] || script "ranked/$1" "$here/../win_rate.py" "$out/eval/$3" "$out/eval/$1" --by preference --judge "$rank"
}
rewarded() { # ROW REWARD WORD…: GRPO from SFT, then its evaluation; batch, rollouts, loss and epochs are recipe.toml's (paper)
    step "$1" train "${asked[@]}" --model "$out/sft/model" --data "$data/rl.jsonl" paper="$2" judge.url="$JUDGE" verifier.web="${WEB:-serper}" train.beta="${BETA:-0.001}" "$vllm" "${@:3}" # KL weight: fairseq2
    evaluate "$1" "$out/$1/model" base "${asked[@]}"
}

steps() {
    # Table 1
    evaluate base "$base" base "data.prompt={question}"                                            # paper: no reasoning
    step sft-samples eval "$data/sft.jsonl" --long --samples 10 --model "${SAMPLER:-$base}" --config "$here/two_shot.toml" sampling.temperature=1 "${veriscore[@]}" "$vllm" # paper: 10 a prompt of the 3k, two-shot; temperature ours
    script sft-rows.jsonl "$here/pairs.py" best "$out/sft-samples"                                 # paper: the highest precision
    step sft tune sft "$out/sft-rows.jsonl" --model "$base" "${asked[@]}" tune.target={answer} train.epochs=1 train.learning_rate=5.5e-6 train.prompts_per_step=32 train.micro_batch_size=4 "${flat[@]}" # paper: 1 epoch, 5.5e-6, 4 on each of 8 GPUs
    evaluate sft "$out/sft/model" base "${asked[@]}"
    step dpo-samples eval "$data/rl.jsonl" --long --samples 10 --model "${SAMPLER:-$base}" --config "$here/two_shot.toml" sampling.temperature=1 "${veriscore[@]}" "$vllm" # paper: 10 a prompt of the RL split, the same template; who samples is not said: the base, ours
    script dpo-pairs.jsonl "$here/pairs.py" margin "$out/dpo-samples"                              # paper: largest margin over .1, lengths within 10 %
    step dpo tune dpo "$out/dpo-pairs.jsonl" tune.rule=given --model "$out/sft/model" "${asked[@]}" train.epochs=1 train.learning_rate=1e-6 train.prompts_per_step=16 train.micro_batch_size=1 "${flat[@]}" # paper: 1 epoch, 1e-6, batch 1 (read as: on each of 16 GPUs); beta TRL's 0.1
    evaluate dpo "$out/dpo/model" base "${asked[@]}"
    rewarded grpo factreason:paper "${relevance[@]}"                                               # paper: lambda 0, mu 0.1
    # Table 2
    rewarded fact-only factreason:fact-only                                                        # paper: 0, 0
    rewarded fact+detail-0.01 factreason:fact+detail-0.01                                          # paper: 0.01, 0
    rewarded detail-0.01 factreason:detail-0.01 "${relevance[@]}"                                  # paper: 0.01, 0.1
    rewarded detail-0.1 factreason:detail-0.1 "${relevance[@]}"                                    # paper: 0.1, 0.1
    # Table 1, as released: a reasoning model against the one that it was made from
    [ -n "${EXISTING:-}" ] || return 0
    evaluate qwen2.5-32b Qwen/Qwen2.5-32B-Instruct qwen2.5-32b "data.prompt={question}"            # paper names "Qwen 2.5 32B": Instruct is our reading
    evaluate qwq-32b Qwen/QwQ-32B qwen2.5-32b "data.prompt={question}" train.max_completion_length=16384 # length ours
    evaluate deepseek-v3 "${V3:-http://localhost:8003/v1#deepseek-ai/DeepSeek-V3}" deepseek-v3 "data.prompt={question}"
    evaluate deepseek-r1 "${R1:-http://localhost:8004/v1#deepseek-ai/DeepSeek-R1}" deepseek-v3 "data.prompt={question}" train.max_completion_length=16384
}
run "$@"
