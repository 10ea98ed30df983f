#!/usr/bin/env bash
# TruthRL, Llama-3.1-8B-Instruct with retrieval: Tables 1, 3, 4 (lower half), 5 and 8.  A command a step.
#
#   DATA=data JUDGE=http://host:8000/v1#meta-llama/Llama-3.3-70B-Instruct GPUS=8 OUT=out bash run.sh [STEP…]
#
# RETRIEVAL=no shows no documents, in training and tests: Table 1's upper half, table-no-retrieval.toml.
# MODEL=Qwen/Qwen2.5-7B-Instruct is Table 1's other half, and with OUT= of its own each model of Table 7.
# JUDGES="URL URL" grades the rows of Table 6 once more by each.  See ../common.sh for the rest.
#
# Sources: "paper" is its section 4.1 or Appendix A; "script" is the authors' release; "ours" is neither.
source "$(dirname "$0")/../common.sh"
here=$(dirname "$0") data=${DATA:-} model=${MODEL:-meta-llama/Llama-3.1-8B-Instruct} # paper
[ -n "$data" ] || fail "give DATA=, the folder that data.py wrote"
[ -n "${JUDGE:-}" ] || fail "give JUDGE=, such as http://host:8000/v1#meta-llama/Llama-3.3-70B-Instruct"
sets=("$data"/{crag,nq,hotpotqa,musique}.jsonl)
needs "$data/train.jsonl" "${sets[@]}"

shown=truthrl:retrieval reasons=truthrl:retrieval-reasoning # the prompts of the paper's Tables 10 and 9, in our words
if [ "${RETRIEVAL:-yes}" = no ]; then shown=truthrl reasons=truthrl:reasoning-multiplicative; fi
ask=("paper=$shown" --judge "$JUDGE")
vllm=train.use_vllm=$(on_gpu)                      # paper: vLLM samples
train=(--config "$here/recipe.toml" --model "$model" --judge "$JUDGE" "data.eval=$data/crag.jsonl" "$vllm")

evaluate() { # ROW MODEL: greedy, 2,048 new tokens, each of the four sets (paper: App. A)
    step "eval/$1" eval "${sets[@]}" --model "$2" "${ask[@]}" train.max_completion_length=2048 "$vllm"
    step "crag/$1" eval "$data/crag.jsonl" --completions "$OUT/eval/$1/samples.jsonl" --judge "$JUDGE" grade.extract=boxed # paper: Table 2 is its comparison questions
    local number=1 url
    for url in ${JUDGES:-}; do # paper: Table 6, on CRAG; the same answers
        number=$((number + 1))
        step "judge-$number/$1" eval "$data/crag.jsonl" --completions "$OUT/eval/$1/samples.jsonl" --judge "$url" grade.extract=boxed
    done
}
tuned() { # ROW METHOD FILE FROM WORD…: a baseline from the model FROM, then its evaluation
    step "$1" tune "$2" "$3" --model "$4" "paper=$shown" "${@:5}"
    evaluate "$1" "$OUT/$1/model"
}
rewarded() { # ROW FILE REWARD WORD…: GRPO from the model itself, then its evaluation
    step "$1" train "$3" --data "$2" "${train[@]}" "${@:4}"
    evaluate "$1" "$OUT/$1/model"
}

steps() {
    evaluate base "$model"                                                             # paper: "prompting"
    step known eval "$data/train.jsonl" --model "$model" "${ask[@]}" --samples 256 sampling.temperature=1 "$vllm" # paper: 256 samples, out of knowledge where none is right; T and top-p not given
    local known=$OUT/known/questions.jsonl
    local imitate=(train.learning_rate=5e-6 train.prompts_per_step=16 train.lr_scheduler_type=cosine train.warmup_steps=0.03 train.epochs=1) # paper
    tuned sft sft "$data/train.jsonl" "$model" "${imitate[@]}"                         # paper: the accepted answer
    tuned r-tuning r-tuning "$data/train.jsonl" "$model" tune.probe="$known" "${imitate[@]}" # paper: "I don't know" where out of knowledge
    tuned rft rft "$known" "$model" --judge "$JUDGE" "$vllm" "${imitate[@]}" sampling.num_samples=64 sampling.temperature=0.6 sampling.top_p=0.9 # paper
    local pairs=(tune.rule=correctness --judge "$JUDGE" "$vllm" train.learning_rate=3e-6 train.prompts_per_step=32 train.epochs=1) last round # paper
    pairs+=(tune.beta=0.1 sampling.num_samples=32 sampling.temperature=0.6 sampling.top_p=0.9) # TRL's; script; ours: as RFT. The paper has none of these
    tuned dpo dpo "$known" "$model" "${pairs[@]}"                                      # paper: right over wrong; out of knowledge "I don't know" over wrong
    last=$OUT/dpo/model
    for round in 1 2 3 4; do                                                           # paper: new pairs of the model before, which is the reference (script)
        tuned "iterative-dpo-$round" dpo "$known" "$last" "${pairs[@]}"
        last=$OUT/iterative-dpo-$round/model
    done
    # 1e-6 constant, batch 64, KL 0.001, clip 0.2 (paper); 8 completions and 1 epoch (script): recipe.toml.
    rewarded binary "$data/train.jsonl" "$shown" reward.abstain=-1                     # paper: +1, else -1
    rewarded ternary "$data/train.jsonl" "$shown"                                      # paper: +1, 0, -1
    rewarded binary-knowledge "$known" "$shown" reward.abstain=-1 reward.knowledge=true # paper: Table 3
    rewarded ternary-knowledge "$known" "$shown" reward.knowledge=true                 # paper: Table 3
    rewarded rule-based "$data/train.jsonl" "$shown" reward.verifier=em                # paper: Table 5
    for round in multiplicative additive conditional; do                               # paper: Table 8, weight 0.5
        rewarded "reasoning-$round" "$data/train.jsonl" "$reasons" "reward.combine=$round" reward.weight=0.5
    done
    for round in base ternary reasoning-{multiplicative,additive,conditional}; do      # paper: Table 8, on CRAG
        script "reasoning/$round.json" "$here/reasoning.py" "$OUT/eval/$round" --judge "$JUDGE"
    done
}
run "$@"
