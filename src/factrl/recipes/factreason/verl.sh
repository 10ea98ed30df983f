#!/usr/bin/env bash
# The GRPO rows of Learning to Reason for Factuality by verl 0.9, in place of run.sh's step of the same name.
#
#   DATA=data OUT=out JUDGE=http://host:8000/v1#meta-llama/Llama-3.3-70B-Instruct GPUS=8 NODES=4 ROW=grpo bash verl.sh [verl's own words]
#
# ROW is grpo, fact-only, fact+detail-0.01, detail-0.01 or detail-0.1.  run.sh has made the SFT model.  The paper trains
# with fairseq2; its values are given where it has them.
# Install: pip install -c constraints-verl.txt 'factrl[verl]' 'verl[vllm]==0.9.1'
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${OUT:?give OUT=, the folder of run.sh}") data=$(realpath -m "${DATA:?give DATA=, the folder of data.py}") row=${ROW:-grpo}
train=$data/rl.jsonl model=$out/sft/model # paper: from SFT
case $row in
    grpo) paper=factreason:paper ;;
    fact-only | fact+detail-0.01 | detail-0.01 | detail-0.1) paper=factreason:$row ;;
    *) echo "$0: no ROW $row; grpo, fact-only, fact+detail-0.01, detail-0.01 or detail-0.1" >&2 && exit 2 ;;
esac
relevance=()
[[ $row == fact* ]] || relevance=(judge.preference_model="${PREFERENCE:-http://localhost:8001/v1#${MODEL:-meta-llama/Llama-3.1-8B-Instruct}}") # paper: Figure 9
run=$out/$row settled=(--config "$here/recipe.toml" --model "$model" --data "$train" paper="$paper" judge.url="${JUDGE:?give JUDGE=}" verifier.web="${WEB:-serper}" train.beta="${BETA:-0.001}" "${relevance[@]}")

train() { # verl's command; its own words come last
    local words=(python -m verl.trainer.main_ppo
        data.train_files="$run/train.parquet" data.val_files="$run/train.parquet" data.filter_overlong_prompts=True
        data.max_prompt_length=1024 data.truncation=error data.seed=0 data.shuffle=True
        data.train_batch_size=32 data.max_response_length=2048 # paper: batch 1, read as on each of 32 GPUs; length not in the paper
        reward.custom_reward_function.path=pkg://factrl.bridges.verl +reward.custom_reward_function.reward_kwargs.recipe="$run/reward.toml"
        algorithm.adv_estimator=factrl_grpo algorithm.use_kl_in_reward=False trainer.v1.trainer_mode=factrl_sync
        algorithm.norm_adv_by_std_in_grpo=False +algorithm.factrl.scale=none # paper: A = R - mean
        actor_rollout_ref.model.path="$model" actor_rollout_ref.model.enable_gradient_checkpointing=True
        actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.clip_ratio_c=1000000 # no second clip
        actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.ppo_epochs=1 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 # paper: one update a batch
        actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.loss_scale_factor=2048 # paper: token sum, no 1/length
        actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef="${BETA:-0.001}" actor_rollout_ref.actor.kl_loss_type=low_var_kl # weight: fairseq2
        actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.optim.lr_scheduler_type=constant # paper; the schedule is not in it
        'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
        actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1
        actor_rollout_ref.rollout.agent.agent_loop_config_path="$run/agent.yaml" actor_rollout_ref.rollout.agent.default_agent_loop=factrl_agent
        actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.rollout.top_p=1.0 # paper: 4; temperature not in it
        trainer.use_v1=True trainer.total_epochs=1 trainer.save_freq=50 trainer.test_freq=-1 trainer.val_before_train=False
        trainer.n_gpus_per_node="${GPUS:-8}" trainer.nnodes="${NODES:-1}" trainer.default_local_dir="$run/checkpoints" trainer.resume_mode=auto
        trainer.project_name=factrl trainer.experiment_name="$row" hydra.run.dir="$run/hydra"
        +ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES="$VERL_USE_EXTERNAL_MODULES" "$@")
    do_ "${words[@]}"
}

settled_verl "$@"
