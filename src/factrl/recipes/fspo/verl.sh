#!/usr/bin/env bash
# FSPO's rows that train with its reward, by verl 0.9.1 on a Ray cluster, in verl's own words.
#
#   DATA=data GPUS=4 OUT=out bash verl.sh [ROW [WORD…]]
#
# ROW is fspo (the default), outcome, outcome+fact, signs, reinforce++, fspo-reinforce++, fspo-1000, fspo-4000 or
# fspo-8000, as in run.sh, whose MODEL and VERIFIER it has too.  WORDs are verl's and come last, e.g. trainer.nnodes=2, or
# without flash-attn actor_rollout_ref.model.use_remove_padding=false
# +actor_rollout_ref.model.override_config.attn_implementation=sdpa.
# The same call goes on at the last checkpoint; then
#   factrl eval … --model OUT/verl-ROW/checkpoints/global_step_N/actor/huggingface
# Install: pip install -c constraints-verl.txt 'factrl[verl]' 'verl[vllm]==0.9.1', without trl, on every node, which
# all see OUT.  DRY=1 prints the command.
#
# The signs of steps are laid on tokens by factrl's agent loop, and turn advantages in its trainer, factrl_sync.
# Sources: "paper" is section 6.1 and Appendix D; "script" is main_grpo_qwen_base.sh of the release; "verl" its default.
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd) row=${1:-fspo} model=${MODEL:-Qwen/Qwen2.5-7B}
[ -n "${DATA:-}" ] && [ -n "${OUT:-}" ] || fail "give DATA= and OUT="
questions=$DATA/train.jsonl estimator=factrl_grpo loss=seq-mean-token-mean
case $row in
    fspo | fspo-reinforce++) reward=mixed ;;
    fspo-1000 | fspo-4000 | fspo-8000) reward=mixed questions=$DATA/train-${row#fspo-}.jsonl ;;
    outcome | reinforce++) reward=outcome ;;
    outcome+fact | signs) reward="$row reward.without_evidence=outcome" ;;
    *) fail "name a row: fspo, outcome, outcome+fact, signs, reinforce++, fspo-reinforce++, fspo-1000, fspo-4000, fspo-8000" ;;
esac
if [[ $row == *reinforce++ ]]; then estimator=factrl_reinforce_pp loss=token-mean; fi
needs "$questions"
run=$(realpath -m "$OUT/verl-$row")
verifier=${VERIFIER:-verifier.judge=nli:MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli} # ours, see run.sh

if [ -z "${DRY:-}" ]; then
    mkdir -p "$run/rollouts"
    # Prompt and beginning of the answer are the recipe's, for a base model without a chat template.
    python - "$here/recipe.toml" >"$run/agent.yaml" <<'PY'
import json, sys
from factrl.job import read_job
data = read_job(sys.argv[1], []).settings.data
loop = "factrl.bridges.verl_agent.FactualAgentLoop"
print(json.dumps([{"name": "factrl_agent", "_target_": loop, "prefill": data.prefill, "chat": data.chat}]))
PY
    [ -e "$run/train.parquet" ] || factrl prepare convert "$questions" --to verl --output "$run/train.parquet" --config "$here/recipe.toml" data.chat=true data.prefill=
fi

words=(
    "data.train_files=$run/train.parquet" "data.val_files=$run/train.parquet" # verl wants a file; nothing is held out
    data.train_batch_size=8                                     # paper; script: 4
    data.max_prompt_length=2048 data.max_response_length=2048   # paper, script
    data.filter_overlong_prompts=true data.truncation=error     # longer ones are left out, and counted by verl
    data.shuffle=true data.seed=0                               # ours
    "actor_rollout_ref.model.path=$model"
    actor_rollout_ref.model.enable_gradient_checkpointing=true  # script
    actor_rollout_ref.actor.ppo_mini_batch_size=8               # paper: 1,024 is more than a batch has: one update
    actor_rollout_ref.actor.ppo_epochs=1                        # verl
    actor_rollout_ref.actor.use_dynamic_bsz=true                # ours: as many as fit, the gradient is the same
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384     # ours
    actor_rollout_ref.actor.optim.lr=4e-7                       # paper; script: 5e-7
    actor_rollout_ref.actor.optim.lr_scheduler_type=constant    # paper
    actor_rollout_ref.actor.optim.weight_decay=0.01             # verl
    actor_rollout_ref.actor.optim.clip_grad=1.0                 # verl
    actor_rollout_ref.actor.clip_ratio=0.2                      # paper
    actor_rollout_ref.actor.clip_ratio_c=1000000.0              # ours: no second clip, which the paper has not
    actor_rollout_ref.actor.entropy_coeff=0                     # the paper has no such term; the engine of the script .001
    actor_rollout_ref.actor.use_kl_loss=true actor_rollout_ref.actor.kl_loss_coef=0.001 # paper, script
    actor_rollout_ref.actor.kl_loss_type=low_var_kl             # script
    "actor_rollout_ref.actor.loss_agg_mode=$loss"               # paper: 1/|y|; script: token-mean
    'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
    actor_rollout_ref.actor.fsdp_config.param_offload=true actor_rollout_ref.actor.fsdp_config.optimizer_offload=true # script
    actor_rollout_ref.ref.fsdp_config.param_offload=true        # script
    actor_rollout_ref.rollout.name=vllm                         # script
    actor_rollout_ref.rollout.tensor_model_parallel_size=1      # script
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6        # script
    actor_rollout_ref.rollout.n=8                               # paper, script
    actor_rollout_ref.rollout.temperature=1.0                   # paper, script
    actor_rollout_ref.rollout.top_p=1.0                         # verl
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=$run/agent.yaml"
    actor_rollout_ref.rollout.agent.default_agent_loop=factrl_agent
    reward.custom_reward_function.path=pkg://factrl.bridges.verl
    reward.custom_reward_function.name=compute_score
    "+reward.custom_reward_function.reward_kwargs.recipe=$here/recipe.toml"
    "+reward.custom_reward_function.reward_kwargs.settings='paper=fspo:$reward $verifier'"
    reward.num_workers=8                                        # each loads the verifier
    "algorithm.adv_estimator=$estimator"                        # what could not be judged is left out
    algorithm.use_kl_in_reward=false algorithm.norm_adv_by_std_in_grpo=true # paper
    +algorithm.factrl.scale=group +algorithm.factrl.epsilon=1e-6 # paper; verl
    +algorithm.factrl.max_masked_share=0.5                      # ours: stop where the verifier is gone
    "+algorithm.factrl.run=$run"
    trainer.use_v1=true trainer.v1.trainer_mode=factrl_sync
    trainer.total_epochs=1                                      # paper
    trainer.save_freq=100 trainer.test_freq=-1                  # script
    trainer.max_actor_ckpt_to_keep=2
    trainer.val_before_train=false
    'trainer.logger=[console]' trainer.project_name=factrl "trainer.experiment_name=fspo-$row"
    "trainer.default_local_dir=$run/checkpoints" trainer.resume_mode=auto
    "trainer.n_gpus_per_node=${GPUS:-4}"                        # paper: 4
    "hydra.run.dir=$run/hydra"
)
verl "verl-$row" "${@:2}"
