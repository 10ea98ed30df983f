#!/usr/bin/env bash
# KnowRL's rows that train with its reward, by verl 0.9.1 on a Ray cluster, in verl's own words.
#
#   DATA=data JUDGE=openai/gpt-4o-mini GPUS=1 OUT=out bash verl.sh [ROW [WORD…]]
#
# ROW is knowrl (the default), truthrl, format, format+fact, format+correct, no-refusal, dapo or dr_grpo, as in run.sh;
# verl has no loss of BNPO's, and counts what dapo.yaml masks, completions that were cut off.  WORDs are verl's and come last, e.g. trainer.nnodes=2, or without flash-attn
# actor_rollout_ref.model.use_remove_padding=false +actor_rollout_ref.model.override_config.attn_implementation=sdpa.
# The same call goes on at the last checkpoint; then
#   factrl eval … --model OUT/verl-ROW/checkpoints/global_step_N/actor/huggingface
# Install: pip install -c constraints-verl.txt 'factrl[verl]' 'verl[vllm]==0.9.1', without trl, on every node, which
# all see OUT.  DRY=1 prints the command.
#
# Sources: "script" is grpo.yaml of the release, which is for TRL, or the file of the row's name; "TRL" its default.
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd) row=${1:-knowrl} model=${START:-${MODEL:-deepseek-ai/DeepSeek-R1-Distill-Qwen-7B}}
[ -n "${DATA:-}" ] && [ -n "${JUDGE:-}" ] && [ -n "${OUT:-}" ] || fail "give DATA=, JUDGE= and OUT="
other=() reward=knowrl:$row
case $row in
    truthrl | format | format+fact | format+correct | no-refusal) ;;
    knowrl | dapo | dr_grpo) reward=knowrl:paper ;;
    *) fail "name a row: knowrl, truthrl, format, format+fact, format+correct, no-refusal, dapo, dr_grpo" ;;
esac
case $row in # script: 500 steps of 4 prompts, advantages that are not divided
    dapo) other=(data.train_batch_size=4 actor_rollout_ref.actor.ppo_mini_batch_size=4 trainer.total_training_steps=500 algorithm.norm_adv_by_std_in_grpo=false ++algorithm.factrl.scale=none data.max_prompt_length=512 actor_rollout_ref.actor.clip_ratio_high=0.28) ;;
    dr_grpo) other=(data.train_batch_size=4 actor_rollout_ref.actor.ppo_mini_batch_size=4 trainer.total_training_steps=500 algorithm.norm_adv_by_std_in_grpo=false ++algorithm.factrl.scale=none actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.loss_scale_factor=1024) ;;
esac
needs "$DATA"/{train.jsonl,wiki}
run=$(realpath -m "$OUT/verl-$row") wiki=$(realpath -m "$DATA/wiki")

if [ -z "${DRY:-}" ]; then
    mkdir -p "$run/rollouts"
    cat >"$run/agent.yaml" <<YAML
- name: factrl_agent
  _target_: factrl.bridges.verl_agent.FactualAgentLoop
YAML
    [ -e "$run/train.parquet" ] || factrl prepare convert "$DATA/train.jsonl" --to verl --output "$run/train.parquet" --config "$here/recipe.toml"
fi

words=(
    "data.train_files=$run/train.parquet" "data.val_files=$run/train.parquet" # verl wants a file; nothing is held out
    data.train_batch_size=8                                     # script: 20 completions x 4 accumulation steps / 10
    data.max_prompt_length=256 data.max_response_length=1024    # script
    data.filter_overlong_prompts=true data.truncation=error     # longer ones are left out, and counted by verl
    data.shuffle=true data.seed=42                              # script
    "actor_rollout_ref.model.path=$model"
    actor_rollout_ref.model.enable_gradient_checkpointing=true  # script
    actor_rollout_ref.model.lora_rank=128 actor_rollout_ref.model.lora_alpha=256 # script; the paper's too, by a summary
    'actor_rollout_ref.model.target_modules=[q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj]' # script
    actor_rollout_ref.actor.ppo_mini_batch_size=8               # one update a batch
    actor_rollout_ref.actor.ppo_epochs=1                        # TRL
    actor_rollout_ref.actor.use_dynamic_bsz=true                # ours: as many as fit, the gradient is the same
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384     # ours
    actor_rollout_ref.actor.optim.optimizer=AdamW8bit actor_rollout_ref.actor.optim.optimizer_impl=bitsandbytes.optim # script, summary
    actor_rollout_ref.actor.optim.lr=1e-5                       # script, summary
    actor_rollout_ref.actor.optim.lr_scheduler_type=cosine actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.03 # script, summary
    actor_rollout_ref.actor.optim.weight_decay=0                # TRL
    actor_rollout_ref.actor.optim.clip_grad=1.0                 # TRL
    actor_rollout_ref.actor.clip_ratio=0.2                      # TRL
    actor_rollout_ref.actor.clip_ratio_c=1000000.0              # ours: no second clip
    actor_rollout_ref.actor.entropy_coeff=0                     # script; the weight of the paper's term is not known
    actor_rollout_ref.actor.use_kl_loss=true actor_rollout_ref.actor.kl_loss_coef=0.001 # script, summary
    actor_rollout_ref.actor.kl_loss_type=low_var_kl             # TRL
    actor_rollout_ref.actor.loss_agg_mode=token-mean            # TRL 0.23: its default is the loss of DAPO
    actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16    # script
    'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
    actor_rollout_ref.rollout.name=vllm                         # script
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5        # script, summary
    actor_rollout_ref.rollout.n=10                              # script
    actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.rollout.top_p=1.0 # TRL
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=20
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=20
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=$run/agent.yaml"
    actor_rollout_ref.rollout.agent.default_agent_loop=factrl_agent
    reward.custom_reward_function.path=pkg://factrl.bridges.verl
    reward.custom_reward_function.name=compute_score
    "+reward.custom_reward_function.reward_kwargs.recipe=$here/recipe.toml"
    "+reward.custom_reward_function.reward_kwargs.settings='paper=$reward judge.url=$JUDGE judge.max_concurrency=8 verifier.index=$wiki'"
    reward.num_workers=8                                        # each with 8 calls of the judge at a time
    algorithm.adv_estimator=factrl_grpo                         # what could not be graded is left out
    algorithm.use_kl_in_reward=false algorithm.norm_adv_by_std_in_grpo=true # summary
    +algorithm.factrl.scale=group +algorithm.factrl.epsilon=1e-4 # summary; TRL
    +algorithm.factrl.max_masked_share=0.5                      # ours: stop where the judge is gone
    "+algorithm.factrl.run=$run"
    trainer.use_v1=true trainer.v1.trainer_mode=factrl_sync
    trainer.total_training_steps=150 trainer.total_epochs=150   # script; epochs at most
    trainer.save_freq=50 trainer.test_freq=-1                   # script
    trainer.max_actor_ckpt_to_keep=2
    trainer.val_before_train=false
    'trainer.logger=[console]' trainer.project_name=factrl "trainer.experiment_name=knowrl-$row"
    "trainer.default_local_dir=$run/checkpoints" trainer.resume_mode=auto
    "trainer.n_gpus_per_node=${GPUS:-1}"                        # summary: one A800
    "hydra.run.dir=$run/hydra"
)
verl "verl-$row" "${other[@]}" "${@:2}"
