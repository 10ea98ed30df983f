#!/usr/bin/env bash
# KLCF: Tables 1, 2 (two rows), 4 and 13, and with MODEL= Table 3.  A command a step; table.toml has the paper's cells.
#
#   DATA=data JUDGE=http://host:8000/v1#Qwen/Qwen2.5-72B-Instruct GPUS=16 OUT=out bash run.sh [STEP…]
#
# WEIGHTS="alpha beta gamma" are those of the main rows, which are lost (Table 2): without it they are a printed row's,
# and the rows are named after that.  BETA= is the weight of Table 4's KL penalty, lost too: without it there is no
# such row.  MODEL=Qwen/Qwen2.5-7B or -32B, and SFT=, INSTRUCT= with it, are Table 3.  Servers: BASE of the model
# before training, TEACHER, RANK; SAMPLER= of the SFT model, for DPO's samples.  EXTRACTOR= and CHECKER= are
# addresses once those two models are served.
#
# Sources: "paper" with its section; "lost" is a value that the paper's text has lost, so that factrl's default stands;
# "ours" is neither.  Table 8 (settings) and Table 9 (evaluation) are lost as a whole.
source "$(dirname "$0")/../common.sh"
here=$(dirname "$0") data=${DATA:-} out=${OUT:-}
[ -n "$data" ] || fail "give DATA=, the folder that data.py sets wrote"
[ -n "${JUDGE:-}" ] || fail "give JUDGE=, such as http://host:8000/v1#Qwen/Qwen2.5-72B-Instruct"
needs "$data"/{questions.jsonl,base.toml,shots.jsonl,responses.jsonl,checklists.jsonl,wiki,wiki-longwiki}
needs "$data"/{factscore_entities/unlabelled,longwiki/test,longfact/objects,factory_hard/prompts}.jsonl
export FACTRL_DATA=$data # where `factrl eval` finds the test sets

base=${MODEL:-Qwen/Qwen2.5-14B}                      # paper 3.1: pre-trained, no SFT before KLCF-zero
sft=${SFT:-deepseek-ai/DeepSeek-R1-Distill-Qwen-14B} # paper 3.1: as released
instruct=${INSTRUCT:-Qwen/Qwen2.5-14B-Instruct}      # paper: Table 4; also what both helpers are tuned from (B.1)
served=${BASE:-http://localhost:8001/v1#$base}
rank=${RANK:-openai/gpt-4.1}                                                   # paper A.4.1
teacher=${TEACHER:-http://localhost:8002/v1#deepseek-ai/DeepSeek-R1-0528}      # paper B.1
extractor=${EXTRACTOR:-$out/extractor/model} checker=${CHECKER:-$out/checker/model} truth=$out/truthfulness/model
read -r alpha beta gamma <<<"${WEIGHTS:-0.4 0.2 0.4}"
row=$([ -n "${WEIGHTS:-}" ] || echo "-$alpha-$beta-$gamma")
vllm=train.use_vllm=$(on_gpu)

cosine=(train.learning_rate=1e-6 train.lr_scheduler_type=cosine train.warmup_steps=0.1) # paper 3.1: in all experiments; the share is ours, its own is lost
train=(--config "$here/recipe.toml" --data "$out/dataset/train.jsonl" "$vllm")
weights=(reward.alpha="$alpha" reward.beta="$beta" reward.gamma="$gamma")
claims=(judge.extractor_model="$extractor") truthful=(judge.truthfulness_model="$truth") listed=(judge.checklist_model="$checker")
rated=(judge.reward_model="${REWARD:-Skywork/Skywork-Reward-V2-Llama-3.2-1B}")          # paper: the general reward
known=("${claims[@]}" "${truthful[@]}" "${listed[@]}")                                 # what Eq. 11 asks
factscore=(verifier.preset=factscore verifier.max_claims=100000 judge.url="$JUDGE") # paper: Qwen2.5-72B-Instruct in each step

evaluate() { # ROW MODEL BASELINE WORD…: the four pipelines of A.4.1, and win rates against the row with a dash
    local asked=(--model "$2" "${@:4}" "$vllm")
    step "factscore/$1" eval factscore "${asked[@]}" "${factscore[@]}" verifier.index="$data/wiki"           # paper: all 500 prompts, Wiki20250716
    step "longwiki/$1" eval longwiki "${asked[@]}" "${factscore[@]}" verifier.index="$data/wiki-longwiki"    # paper: HalluLens' pipeline and its own knowledge base
    step "longfact/$1" eval longfact "${asked[@]}" verifier.preset=veriscore verifier.max_claims=100000 judge.url="$JUDGE" verifier.web="${WEB:-serper}" # paper: VeriScore's pipeline, not SAFE
    step "factory_hard/$1" eval factory_hard "${asked[@]}" verifier.preset=veriscore verifier.max_claims=100000 judge.url="$JUDGE" verifier.index="$data/wiki" # paper: likewise, with the local Wikipedia
    ranked "$1" "$3"
}
ranked() { # ROW BASELINE: by factuality and comprehensiveness, in both orders (paper A.4.1)
    [ "$1" = "$2" ] && return
    script "ranked/longfact/$1" "$here/../win_rate.py" "$out/longfact/$2" "$out/longfact/$1" --by factuality --judge "$rank"
    script "ranked/factory_hard/$1" "$here/../win_rate.py" "$out/factory_hard/$2" "$out/factory_hard/$1" --by factuality --judge "$rank"
}
rewarded() { # ROW START BASELINE WORD…: GRPO, then its evaluation
    step "$1" train "${train[@]}" --model "$2" "${@:4}"
    evaluate "$1" "$out/$1/model" "$3" --config "$here/recipe.toml"
}
paired() { # ROW PAIRS: DPO from SFT on given pairs, then its evaluation
    step "$1" tune dpo "$2" tune.rule=given --model "$sft" --config "$here/recipe.toml" "${cosine[@]}" train.prompts_per_step=64 # paper: LLaMA Factory; batch, epochs and beta lost
    evaluate "$1" "$out/$1/model" sft --config "$here/recipe.toml"
}

steps() {
    # The three models that the reward asks (B.1), and the questions with their checklists (2.2)
    script extractor.jsonl "$here/data.py" lessons extractor "$data/responses.jsonl" --teacher "$JUDGE"        # paper: 10,187 rows by Qwen2.5-72B-Instruct
    step extractor tune sft "$out/extractor.jsonl" --model "$instruct" "${cosine[@]}" train.epochs=1           # paper: Qwen2.5-14B-Instruct; epochs lost
    script checker.jsonl "$here/data.py" lessons checklist-verifier "$data/checklists.jsonl" --teacher "$teacher" # paper: 10,139 rows by DeepSeek-R1-0528, no reasoning
    step checker tune sft "$out/checker.jsonl" --model "$instruct" "${cosine[@]}" train.epochs=2               # paper: Table 10, the second epoch is best
    step dataset prepare klcf "$data/questions.jsonl" --model "$served" --judge "$JUDGE" --demonstrations "$data/shots.jsonl" verifier.index="$data/wiki" "${claims[@]}" # paper 2.2; number of samples, shots and passages lost
    script truthfulness.jsonl "$here/data.py" lessons truthfulness "$out/dataset/truthfulness.jsonl"           # paper B.1: refuted trebled, supported 2:1
    step truthfulness tune sft "$out/truthfulness.jsonl" --model "$base" "${cosine[@]}" train.epochs=1 data.chat=false "tune.target= {answer}" # paper B.1: the pre-trained model of the policy's size

    # Table 1 from base; Table 3 with MODEL=
    evaluate base "$base" base --config "$data/base.toml"                                                      # paper: 10 worked examples
    script cove.jsonl "$here/cove.py" "$served" "$data"/{factscore_entities/unlabelled,longwiki/test,longfact/objects,factory_hard/prompts}.jsonl # paper: the same base, no training
    local stored=(--completions "$out/cove.jsonl" model.name="$base" verifier.max_claims=100000 judge.url="$JUDGE")
    step factscore/cove eval factscore "${stored[@]}" verifier.preset=factscore verifier.index="$data/wiki"
    step longwiki/cove eval longwiki "${stored[@]}" verifier.preset=factscore verifier.index="$data/wiki-longwiki"
    step longfact/cove eval longfact "${stored[@]}" verifier.preset=veriscore verifier.web="${WEB:-serper}"
    step factory_hard/cove eval factory_hard "${stored[@]}" verifier.preset=veriscore verifier.index="$data/wiki"
    ranked cove base
    rewarded "klcf-zero$row" "$base" base paper=klcf "${weights[@]}" "${known[@]}" "${rated[@]}" # paper: all terms, no KL penalty

    # Table 1 from SFT: changes are against sft
    evaluate sft "$sft" sft --config "$here/recipe.toml"
    step intuitor train --config "$here/../intuitor.toml" --model "$sft" --data "$out/dataset/train.jsonl" data.columns.answers= "${cosine[@]}" "$vllm" # paper: Intuitor's own configuration, 1e-6
    evaluate intuitor "$out/intuitor/model" sft --config "$here/recipe.toml"
    step samples eval "$out/dataset/train.jsonl" --long --samples 8 --model "${SAMPLER:-$sft}" --config "$here/recipe.toml" sampling.temperature=1 "${factscore[@]}" verifier.index="$data/wiki" "${claims[@]}" "$vllm" # paper: 8 samples a question, claims by the extractor, verdicts by Qwen2.5-72B-Instruct; temperature lost
    script factscore-pairs.jsonl "$here/pairs.py" factscore "$out/samples"                                     # paper: highest over lowest FActScore
    paired dpo-factscore "$out/factscore-pairs.jsonl"
    script "klc-pairs$row.jsonl" "$here/pairs.py" klc "$out/samples" --train "$out/dataset/train.jsonl" "${weights[@]}" "${known[@]}" # paper: highest over lowest of Eq. 11 of Eqs. 3, 4 and 6
    paired "dpo-klc$row" "$out/klc-pairs$row.jsonl"
    rewarded grpo-factscore "$sft" sft paper=klcf:factscore judge.url="$JUDGE" verifier.index="$data/wiki" "${claims[@]}" # paper: from SFT alone
    rewarded "klcf$row" "$sft" sft paper=klcf "${weights[@]}" "${known[@]}" "${rated[@]}"

    # Table 2: the two weightings that are legible
    [ -z "${WEIGHTS:-}" ] || rewarded klcf-zero-0.4-0.2-0.4 "$base" base paper=klcf:table-2-row "${known[@]}" "${rated[@]}"
    rewarded truth-only "$base" base paper=klcf:truth-only "${claims[@]}" "${truthful[@]}" "${rated[@]}"
    # Table 13: Eq. 7 for Eq. 6, truthfulness of the claims that the checklist does not speak of
    rewarded "eq7$row" "$base" base paper=klcf:uncovered "${weights[@]}" "${known[@]}" "${rated[@]}"
    # Table 4: without thinking; no format term, no general reward, a KL penalty
    evaluate instruct "$instruct" instruct --config "$here/recipe.toml" paper=klcf:non-thinking
    [ -z "${BETA:-}" ] || step "instruct-klcf$row" train "${train[@]}" --model "$instruct" paper=klcf:non-thinking train.beta="$BETA" "${weights[@]}" "${known[@]}"
    [ -z "${BETA:-}" ] || evaluate "instruct-klcf$row" "$out/instruct-klcf$row/model" instruct --config "$here/recipe.toml" paper=klcf:non-thinking
}
run "$@"
