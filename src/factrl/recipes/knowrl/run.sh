#!/usr/bin/env bash
# KnowRL (arXiv:2506.19807), each step a command; README.md says what it takes and which rows it makes.
#
#   DATA=data JUDGE=openai/gpt-4o-mini GPUS=1 OUT=out bash run.sh [STEP…]
#
# DATA is what data.py wrote.  MODEL is the paper's first; Skywork/Skywork-OR1-7B-Preview is its second, for an OUT of
# its own.  START=$OUT/sft/model trains with rewards after SFT, as the release did at first.
#
# Sources: "script" is a file of the release (zjunlp/KnowRL, train/script), "summary" a third party's page on the paper,
# "README" the release's until October 2025, "ours" where nothing is known.  What is not here is in recipe.toml.
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd)
[ -n "${DATA:-}" ] || fail "give DATA=, the folder that data.py wrote"
[ -n "${JUDGE:-}" ] || fail "give JUDGE=, such as openai/gpt-4o-mini"
MODEL=${MODEL:-deepseek-ai/DeepSeek-R1-Distill-Qwen-7B} # summary
START=${START:-$MODEL}                                  # summary: it knows of no cold start
needs "$DATA"/{train.jsonl,wiki,gpqa_diamond.jsonl,olympiad_physics.jsonl}
(($#)) || needs "$DATA"/{sft,r1}.jsonl # for SFT, DPO and FactTune-FS alone

reward=(--config "$here/recipe.toml" --model "$START" --data "$DATA/train.jsonl" "train.use_vllm=$(on_gpu)")
judge=(--judge "$JUDGE")            # summary: GPT-4o-mini
facts=(verifier.index="$DATA/wiki") # and GPT-4o-mini for facts, too
if [ "$(on_gpu)" = false ]; then # without bitsandbytes and gtr-t5-large, which are for GPUs
    reward+=(train.optim=adamw_torch_fused) facts+=(verifier.embedder=)
fi

# README: its cold start, q and v alone, rank 256, 2 rows on each of 2 GPUs; the paper's SFT is not described.
imitate=(paper=knowrl --model "$MODEL")
imitate+=(model.lora_rank=256 model.lora_alpha=512 'model.lora_target_modules=["q_proj","v_proj"]')
imitate+=(train.epochs=4 train.learning_rate=1e-4 train.lr_scheduler_type=cosine train.warmup_steps=0.1)
imitate+=(train.prompts_per_step=4 train.micro_batch_size=2)

# script: dapo.yaml, bnpo.yaml and dr_grpo.yaml alike: 20 completions x 2 accumulation steps / 10 are 4 prompts.
losses=(train.steps=500 train.prompts_per_step=4)

ask=(--config "$here/recipe.toml" --judge "$JUDGE" "train.use_vllm=$(on_gpu)")
short=(--limit 300 grade.extract=text train.max_completion_length=4096) # summary: 300 questions; which, and the length, ours
# Reasoned about, and not told by the likelihood of options; length and words are ours.
reason=(grade.extract=boxed train.max_completion_length=16384)
reason+=('data.prompt={question}'$'\n\n''Put the final answer, and nothing else, in \boxed{{}}.')

evaluate() { # ROW MODEL: single runs; their temperature is not known, this is that of Avg@5
    step "eval/$1" eval simpleqa chinese_simpleqa --model "$2" "${ask[@]}" "${short[@]}" sampling.temperature=0.6
    step "reason/$1" eval "$DATA/gpqa_diamond.jsonl" aime25 "$DATA/olympiad_physics.jsonl" --model "$2" "${ask[@]}" "${reason[@]}" sampling.temperature=0.6
}

average() { # ROW MODEL: Avg@5 at 0.6 (summary), of the two sets for which it is printed
    step "avg5/$1" eval simpleqa --samples 5 --model "$2" "${ask[@]}" "${short[@]}" sampling.temperature=0.6
    step "avg5-reason/$1" eval aime25 --samples 5 --model "$2" "${ask[@]}" "${reason[@]}" sampling.temperature=0.6
}

steps() {
    evaluate base "$MODEL"
    average base "$MODEL"

    step knowrl train paper=knowrl:paper "${reward[@]}" "${judge[@]}" "${facts[@]}"
    evaluate knowrl "$OUT/knowrl/model"
    average knowrl "$OUT/knowrl/model"

    # Baselines.
    step sft tune sft "$DATA/sft.jsonl" "${imitate[@]}"
    evaluate sft "$OUT/sft/model"
    step samples eval "$DATA/train.jsonl" --samples 8 --model "$MODEL" "${ask[@]}" train.max_completion_length=1024 # ours
    script pairs/dpo.jsonl "$here/pairs.py" dpo "$DATA/r1.jsonl" "$OUT/samples"
    step dpo tune dpo "$OUT/pairs/dpo.jsonl" tune.rule=given paper=knowrl --model "$MODEL" train.learning_rate=1e-5 train.lr_scheduler_type=cosine train.warmup_steps=0.03 train.prompts_per_step=8 # ours: those of the reward's training; one epoch, beta 0.1
    evaluate dpo "$OUT/dpo/model"
    script pairs/facttune.jsonl "$here/pairs.py" facttune "$DATA/sft.jsonl" "judge.url=$JUDGE" "${facts[@]}"
    step facttune-fs tune sft "$OUT/pairs/facttune.jsonl" "${imitate[@]}" # summary: SFT data, filtered by FActScore
    evaluate facttune-fs "$OUT/facttune-fs/model"
    step truthrl train paper=knowrl:truthrl "${reward[@]}" "${judge[@]}" # its settings: ours, KnowRL's
    evaluate truthrl "$OUT/truthrl/model"

    # Ablation.
    step format train paper=knowrl:format "${reward[@]}"
    evaluate format "$OUT/format/model"
    step format+fact train paper=knowrl:format+fact "${reward[@]}" "${judge[@]}" "${facts[@]}"
    evaluate format+fact "$OUT/format+fact/model"
    step format+correct train paper=knowrl:format+correct "${reward[@]}" "${judge[@]}"
    evaluate format+correct "$OUT/format+correct/model"
    step no-refusal train paper=knowrl:no-refusal "${reward[@]}" "${judge[@]}" "${facts[@]}"
    evaluate no-refusal "$OUT/no-refusal/model"

    # Other losses.
    step dapo train paper=knowrl:paper "${reward[@]}" "${judge[@]}" "${facts[@]}" "${losses[@]}" train.max_prompt_length=512 train.loss_type=dapo train.epsilon_high=0.28 train.scale_rewards=none train.mask_truncated_completions=true # script: dapo.yaml
    step "eval/dapo" eval simpleqa --model "$OUT/dapo/model" "${ask[@]}" "${short[@]}" sampling.temperature=0.6
    step bnpo train paper=knowrl:paper "${reward[@]}" "${judge[@]}" "${facts[@]}" "${losses[@]}" train.max_prompt_length=512 train.loss_type=bnpo # script: bnpo.yaml
    step "eval/bnpo" eval simpleqa --model "$OUT/bnpo/model" "${ask[@]}" "${short[@]}" sampling.temperature=0.6
    step dr_grpo train paper=knowrl:paper "${reward[@]}" "${judge[@]}" "${facts[@]}" "${losses[@]}" train.loss_type=dr_grpo train.scale_rewards=none # script: dr_grpo.yaml
    step "eval/dr_grpo" eval simpleqa --model "$OUT/dr_grpo/model" "${ask[@]}" "${short[@]}" sampling.temperature=0.6
}

run "$@"
