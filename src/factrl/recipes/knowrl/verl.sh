#!/usr/bin/env bash
# KnowRL's training with its reward by verl, in verl's own words; the other steps are run.sh's.
#
#   DATA=data JUDGE=openai/gpt-4o-mini GPUS=8 OUT=out bash verl.sh [knowrl:paper] [KEY=VALUE…]
#
# For one machine or the Ray cluster in RAY_ADDRESS, whose nodes all see OUT.  It takes an environment of its own, with
# factrl[verl] and without trl (docs/trainers.md), goes on where it was stopped, and has metrics.jsonl and rollouts in
# $OUT/verl-knowrl-paper, which `factrl report` reads, and the model in its checkpoints/global_step_N/actor/huggingface.
# KEY=VALUE are further words of verl's, e.g. without flash-attn actor_rollout_ref.model.use_remove_padding=false
# +actor_rollout_ref.model.override_config.attn_implementation=sdpa.  DRY=1 prints.  Values and sources: recipe.toml.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-deepseek-ai/DeepSeek-R1-Distill-Qwen-7B}
paper=knowrl:paper
if [[ ${1:-} == knowrl:* ]]; then paper=$1 && shift; fi
out=$(realpath -m "$OUT/verl-${paper//:/-}")
# 8 reward workers, each of which asks the judge as often at once.
words=("judge.url=$JUDGE" judge.max_concurrency=8 "verifier.index=$(realpath -m "$DATA/wiki")")
case $paper in
    knowrl:format) words=() ;;
    knowrl:truthrl | knowrl:format+correct) words=("${words[@]:0:2}") ;;
esac

run() { # FILE WORD…: a command, whose output is the file where there is one
    echo "$(printf '%q ' "${@:2}")${1:+>$1}"
    if [ -z "${DRY:-}" ]; then "${@:2}" >"${1:-/dev/stdout}"; fi
}

[ -n "${DRY:-}" ] || mkdir -p "$out/rollouts"
run "$out/config.toml" factrl train "paper=$paper" --config "$here/recipe.toml" --model "$model" --data "$DATA/train.jsonl" "${words[@]}" --dry-run
[ -n "${DRY:-}" ] || echo '[{"name": "factrl_agent", "_target_": "factrl.bridges.verl_agent.FactualAgentLoop"}]' >"$out/agent.yaml"
[ -e "$out/train.parquet" ] || run "" factrl prepare convert "$DATA/train.jsonl" --to verl --config "$here/recipe.toml" --output "$out/train.parquet"
export VERL_USE_EXTERNAL_MODULES=${VERL_USE_EXTERNAL_MODULES:-factrl.bridges.verl_plugin}
verl=(
    "data.train_files=$out/train.parquet"
    "data.val_files=$out/train.parquet" # verl wants a file; nothing is held out
    data.train_batch_size=8
    data.max_prompt_length=256
    data.max_response_length=1024
    data.filter_overlong_prompts=true
    data.truncation=error
    data.seed=42
    "actor_rollout_ref.model.path=$model"
    actor_rollout_ref.model.enable_gradient_checkpointing=true
    actor_rollout_ref.model.lora_rank=128
    actor_rollout_ref.model.lora_alpha=256
    "actor_rollout_ref.model.target_modules=[q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj]"
    actor_rollout_ref.actor.ppo_mini_batch_size=8
    actor_rollout_ref.actor.use_dynamic_bsz=true # as many completions at a time as fit; the gradient is the same
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
    actor_rollout_ref.actor.data_loader_seed=42
    actor_rollout_ref.actor.grad_clip=1.0
    actor_rollout_ref.actor.clip_ratio_c=1e6 # verl's second clip; a bound that nothing reaches is none
    actor_rollout_ref.actor.entropy_coeff=0
    actor_rollout_ref.actor.loss_agg_mode=token-mean # dapo
    actor_rollout_ref.actor.use_kl_loss=true
    actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16
    "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]" # the last, to evaluate
    actor_rollout_ref.actor.optim.optimizer=AdamW8bit
    actor_rollout_ref.actor.optim.optimizer_impl=bitsandbytes.optim
    actor_rollout_ref.actor.optim.lr=1e-5
    actor_rollout_ref.actor.optim.lr_scheduler_type=cosine
    actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.03
    actor_rollout_ref.actor.optim.weight_decay=0
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=10
    actor_rollout_ref.rollout.temperature=1.0
    actor_rollout_ref.rollout.seed=42
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=20
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=$out/agent.yaml"
    actor_rollout_ref.rollout.agent.default_agent_loop=factrl_agent
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=20
    reward.num_workers=8
    reward.custom_reward_function.path=pkg://factrl.bridges.verl
    reward.custom_reward_function.name=compute_score
    "+reward.custom_reward_function.reward_kwargs.recipe=$out/config.toml"
    algorithm.adv_estimator=factrl_grpo # what the judge could not grade is out
    algorithm.use_kl_in_reward=false
    +algorithm.factrl.scale=group
    +algorithm.factrl.epsilon=1e-4
    "+algorithm.factrl.run=$out"
    trainer.use_v1=true
    trainer.v1.trainer_mode=factrl_sync
    trainer.total_training_steps=150
    trainer.total_epochs=150 # at most
    trainer.save_freq=50
    trainer.max_actor_ckpt_to_keep=2
    trainer.test_freq=-1
    trainer.val_before_train=false
    "trainer.logger=[console]"
    trainer.project_name=factrl
    "trainer.experiment_name=$(basename "$out")"
    "trainer.default_local_dir=$out/checkpoints"
    trainer.resume_mode=auto
    "trainer.n_gpus_per_node=${GPUS:-1}"
    "hydra.run.dir=$out/hydra"
    "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES='$VERL_USE_EXTERNAL_MODULES'"
)
run "" python -m verl.trainer.main_ppo "${verl[@]}" "$@"
