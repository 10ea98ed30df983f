#!/usr/bin/env bash
# FSPO (arXiv:2505.24630), each step a command; README.md says what it takes and which rows it makes.
#
#   DATA=data JUDGE=http://localhost:8000/v1#MODEL GPUS=4 OUT=out bash run.sh [STEP…]
#
# DATA is what data.py wrote, and HalluQA, which is on no hub, is halluqa/test.jsonl of the folder in FACTRL_DATA.  JUDGE
# grades TruthfulQA and HalluQA (a tuned GPT-3 and GPT-4 there); mathematics and HaluEval need none.
# VERIFIER are words for what judges a step.  Eq. 8 has three verdicts, and the paper's HHEM-2.1 has two; with those:
#   VERIFIER="verifier.preset=fspo verifier.trust_remote_code=true verifier.judge=nli:vectara/hallucination_evaluation_model@COMMIT"
#
# Sources: "paper" is its section 6.1 and Appendix D, "script" the release's.  What is not here is in recipe.toml.
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd)
[ -n "${DATA:-}" ] || fail "give DATA=, the folder that data.py wrote"
[ -n "${JUDGE:-}" ] || fail "give JUDGE=, such as http://localhost:8000/v1#MODEL"
# paper; MODEL= takes the place of all three
base=${MODEL:-Qwen/Qwen2.5-7B} chat=${MODEL:-Qwen/Qwen2.5-7B-Instruct} llama=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}
SIZES=${SIZES:-1000 4000 8000} # paper
needs "$DATA"/{train,held_out}.jsonl
(($#)) || for size in $SIZES; do needs "$DATA/train-$size.jsonl"; done
read -ra verifier <<<"${VERIFIER:-verifier.judge=nli:MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli}" # ours

reward=(--config "$here/recipe.toml" "train.use_vllm=$(on_gpu)")
# Tables 2 to 4: instruct models are told so by a system message, without lines of a dialogue and without a beginning of
# the answer, which the release's templates have for them, too.  The words are ours.
instruct=(data.chat=true data.prefill= 'data.prompt={question}')
instruct+=("data.system=You are a helpful assistant. First you reason step by step between <think> and </think>, and then you give only the final answer between <answer> and </answer>, for example <answer> 12 </answer> or <answer> Kim Marton </answer>.")

ask=(--config "$here/recipe.toml" "train.use_vllm=$(on_gpu)" sampling.temperature=1.0) # paper: of all models
ask+=(train.max_completion_length=4096)                                                # script, there with the prompt; the paper says nothing

evaluate() { # ROW MODEL WORD…: one answer a question; the paper does not say how many
    step "eval/$1" eval gsm8k math500 aime24 aime25 truthfulqa_generation halueval halluqa_generation --judge "$JUDGE" --model "$2" "${ask[@]}" "${@:3}"
}

true_steps() { # ROW MODEL: Fig. 7
    step "held-out/$1" eval "$DATA/held_out.jsonl" --judge "$JUDGE" --model "$2" "${ask[@]}"
    step "steps/$1.jsonl" eval "$DATA/held_out.jsonl" --paper fspo --completions "$OUT/held-out/$1/samples.jsonl" --config "$here/recipe.toml" "${verifier[@]}" # the mean of `fact`: true less false steps, of all
}

steps() {
    # Table 1: three models, and FSPO from each.
    evaluate base "$base"
    step fspo train paper=fspo:mixed --model "$base" --data "$DATA/train.jsonl" "${reward[@]}" "${verifier[@]}"
    evaluate fspo "$OUT/fspo/model"
    evaluate base-instruct "$chat" "${instruct[@]}"
    step fspo-instruct train paper=fspo:mixed --model "$chat" --data "$DATA/train.jsonl" "${reward[@]}" "${verifier[@]}" "${instruct[@]}"
    evaluate fspo-instruct "$OUT/fspo-instruct/model" "${instruct[@]}"
    evaluate base-llama "$llama" "${instruct[@]}"
    step fspo-llama train paper=fspo:mixed --model "$llama" --data "$DATA/train.jsonl" "${reward[@]}" "${verifier[@]}" "${instruct[@]}"
    evaluate fspo-llama "$OUT/fspo-llama/model" "${instruct[@]}"

    # Figs. 4 and 7: GRPO by the answer alone, and with Eq. 10 without Eq. 11; Eq. 11 without Eq. 10 is ours.
    step outcome train paper=fspo:outcome --model "$base" --data "$DATA/train.jsonl" "${reward[@]}"
    evaluate outcome "$OUT/outcome/model"
    step outcome+fact train paper=fspo:outcome+fact --model "$base" --data "$DATA/train.jsonl" "${reward[@]}" "${verifier[@]}" reward.without_evidence=outcome
    evaluate outcome+fact "$OUT/outcome+fact/model"
    step signs train paper=fspo:signs --model "$base" --data "$DATA/train.jsonl" "${reward[@]}" "${verifier[@]}" reward.without_evidence=outcome # ours
    evaluate signs "$OUT/signs/model"
    true_steps base "$base"
    true_steps outcome "$OUT/outcome/model"
    true_steps fspo "$OUT/fspo/model"

    # Fig. 5: REINFORCE++ in GRPO's place.
    step reinforce++ train paper=fspo:outcome --model "$base" --data "$DATA/train.jsonl" "${reward[@]}" train.loss_type=reinforce++
    evaluate reinforce++ "$OUT/reinforce++/model"
    step fspo-reinforce++ train paper=fspo:mixed --model "$base" --data "$DATA/train.jsonl" "${reward[@]}" "${verifier[@]}" train.loss_type=reinforce++
    evaluate fspo-reinforce++ "$OUT/fspo-reinforce++/model"

    # Fig. 6: sizes of the factual part; 2,000 is fspo.
    local size
    for size in $SIZES; do
        step "fspo-$size" train paper=fspo:mixed --model "$base" --data "$DATA/train-$size.jsonl" "${reward[@]}" "${verifier[@]}"
        evaluate "fspo-$size" "$OUT/fspo-$size/model"
    done
}

run "$@"
