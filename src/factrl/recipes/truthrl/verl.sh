#!/usr/bin/env bash
# TruthRL's rows that train with a reward, by verl 0.9.1 on a Ray cluster, in verl's own words.
#
#   DATA=data JUDGE=http://host:8000/v1#meta-llama/Llama-3.3-70B-Instruct GPUS=8 OUT=out bash verl.sh [ROW [WORD…]]
#
# ROW is ternary (the default), binary, binary-knowledge, ternary-knowledge, rule-based or reasoning-…, as in
# run.sh; WORDs are verl's and come last, e.g. trainer.nnodes=2, or without flash-attn
# actor_rollout_ref.model.use_remove_padding=false +actor_rollout_ref.model.override_config.attn_implementation=sdpa.
# The same call goes on at the last checkpoint; then
#   factrl eval … --model OUT/verl-ROW/checkpoints/global_step_N/actor/huggingface
# Install: pip install -c constraints-verl.txt 'factrl[verl]' 'verl[vllm]==0.9.1', without trl, on every node, which
# all see OUT.  DRY=1 prints the command; RETRIEVAL=no as in run.sh.
#
# Sources: "paper" is Appendix A; "script" is train_grpo.sh of the authors' release; "verl" its default.
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd) row=${1:-ternary} model=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}
[ -n "${DATA:-}" ] && [ -n "${JUDGE:-}" ] && [ -n "${OUT:-}" ] || fail "give DATA=, JUDGE= and OUT="
shown=truthrl:retrieval reasons=truthrl:retrieval-reasoning questions=$DATA/train.jsonl
if [ "${RETRIEVAL:-yes}" = no ]; then shown=truthrl reasons=truthrl:reasoning-multiplicative; fi
case $row in
    ternary) reward=$shown ;;
    binary) reward="$shown reward.abstain=-1" ;;
    ternary-knowledge) reward="$shown reward.knowledge=true" questions=$OUT/known/questions.jsonl ;;
    binary-knowledge) reward="$shown reward.abstain=-1 reward.knowledge=true" questions=$OUT/known/questions.jsonl ;;
    rule-based) reward="$shown reward.verifier=em" ;;
    reasoning-*) reward="$reasons reward.combine=${row#reasoning-} reward.weight=0.5" ;;
    *) fail "name a row: binary, ternary, binary-knowledge, ternary-knowledge, rule-based, reasoning-multiplicative, reasoning-additive, reasoning-conditional" ;;
esac
needs "$questions" "$DATA/crag.jsonl"
run=$(realpath -m "$OUT/verl-$row")

if [ -z "${DRY:-}" ]; then
    mkdir -p "$run/rollouts"
    read -ra settings <<<"$reward" # config.toml and what verl writes beside it are what `factrl report` reads
    if [ ! -e "$run/config.toml" ]; then
        factrl train "${settings[0]}" --config "$here/recipe.toml" --model "$model" --data "$questions" --judge "$JUDGE" "data.eval=$DATA/crag.jsonl" "${settings[@]:1}" ${TRAIN:-} --dry-run >"$run/config.part"
        mv "$run/config.part" "$run/config.toml"
    fi
    cat >"$run/agent.yaml" <<YAML
- name: factrl_agent
  _target_: factrl.bridges.verl_agent.FactualAgentLoop
YAML
    [ -e "$run/train.parquet" ] || factrl prepare convert "$questions" --to verl --output "$run/train.parquet" "paper=$shown"
    [ -e "$run/eval.parquet" ] || factrl prepare convert "$DATA/crag.jsonl" --to verl --output "$run/eval.parquet" "paper=$shown" data.split=test
fi

words=(
    "data.train_files=$run/train.parquet" "data.val_files=$run/eval.parquet"
    data.train_batch_size=64                                    # paper; script: one update a batch
    data.max_prompt_length=16384 data.max_response_length=2048  # paper, script
    data.filter_overlong_prompts=true data.truncation=error     # longer ones are left out, and counted by verl
    data.shuffle=true data.seed=0
    "actor_rollout_ref.model.path=$model"
    actor_rollout_ref.model.enable_gradient_checkpointing=true  # paper
    actor_rollout_ref.actor.ppo_mini_batch_size=64              # script
    actor_rollout_ref.actor.ppo_epochs=1                        # verl
    actor_rollout_ref.actor.use_dynamic_bsz=true                # ours: as many as fit, the gradient is the same
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=18432     # ours: the longest prompt with its completion
    actor_rollout_ref.actor.optim.lr=1e-6                       # paper
    actor_rollout_ref.actor.optim.lr_scheduler_type=constant    # paper
    actor_rollout_ref.actor.optim.weight_decay=0.01             # verl
    actor_rollout_ref.actor.optim.clip_grad=1.0                 # verl
    actor_rollout_ref.actor.clip_ratio=0.2                      # paper
    actor_rollout_ref.actor.clip_ratio_c=1000000.0              # ours: no second clip, which the paper has not
    actor_rollout_ref.actor.entropy_coeff=0                     # script
    actor_rollout_ref.actor.use_kl_loss=true actor_rollout_ref.actor.kl_loss_coef=0.001 # paper
    actor_rollout_ref.actor.kl_loss_type=low_var_kl             # script
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean   # paper: 1/|y|
    'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
    actor_rollout_ref.actor.fsdp_config.param_offload=true      # paper: ZeRO 3 with offload
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=true  # paper
    actor_rollout_ref.rollout.name=vllm                         # paper
    actor_rollout_ref.rollout.tensor_model_parallel_size=2      # paper
    actor_rollout_ref.rollout.gpu_memory_utilization=0.8        # paper
    actor_rollout_ref.rollout.n=8                               # script
    actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.rollout.top_p=1.0 # paper
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=$run/agent.yaml"
    actor_rollout_ref.rollout.agent.default_agent_loop=factrl_agent
    reward.custom_reward_function.path=pkg://factrl.bridges.verl
    reward.custom_reward_function.name=compute_score
    "+reward.custom_reward_function.reward_kwargs.settings='paper=$reward judge.url=$JUDGE judge.max_concurrency=8 judge.max_answer_chars=0'"
    reward.num_workers=8                                        # each with 8 calls of the judge at a time
    algorithm.adv_estimator=factrl_grpo                         # what could not be graded is left out
    algorithm.use_kl_in_reward=false algorithm.norm_adv_by_std_in_grpo=true # paper
    +algorithm.factrl.scale=group +algorithm.factrl.epsilon=1e-6 # paper; verl
    +algorithm.factrl.max_masked_share=0.5                      # ours: stop where the judge is gone
    "+algorithm.factrl.run=$run"
    trainer.use_v1=true trainer.v1.trainer_mode=factrl_sync
    trainer.total_epochs=1                                      # script
    trainer.save_freq=10 trainer.test_freq=5                    # script
    trainer.max_actor_ckpt_to_keep=2
    trainer.val_before_train=false
    'trainer.logger=[console]' trainer.project_name=factrl "trainer.experiment_name=truthrl-$row"
    "trainer.default_local_dir=$run/checkpoints" trainer.resume_mode=auto
    "trainer.n_gpus_per_node=${GPUS:-8}"                        # paper: 8
    "hydra.run.dir=$run/hydra"
)
verl "verl-$row" "${@:2}"
