#!/usr/bin/env bash
# KLCF's GRPO rows by verl 0.9, with which the paper trained, in place of run.sh's step of the same name.
#
#   DATA=data OUT=out GPUS=8 NODES=2 ROW=klcf-zero WEIGHTS="alpha beta gamma" bash verl.sh [verl's own words]
#
# ROW is klcf-zero, klcf (from SFT), truth-only, eq7 or grpo-factscore (which needs JUDGE=).  run.sh has made the checklists
# and the three models.  The rate, schedule and loss are the paper's; the rest are factrl's defaults, as Table 8 is lost.
# Install: pip install -c constraints-verl.txt 'factrl[verl]' 'verl[vllm]==0.9.1'
source "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${OUT:?give OUT=, the folder of run.sh}") data=$(realpath -m "${DATA:?give DATA=, the folder of data.py}") row=${ROW:-klcf-zero} train=$out/dataset/train.jsonl
base=${MODEL:-Qwen/Qwen2.5-14B} sft=${SFT:-deepseek-ai/DeepSeek-R1-Distill-Qwen-14B} # paper 3.1
read -r alpha beta gamma <<<"${WEIGHTS:-0.4 0.2 0.4}"                               # lost: without WEIGHTS a row of Table 2
claims=(judge.extractor_model="${EXTRACTOR:-$out/extractor/model}") truthful=(judge.truthfulness_model="$out/truthfulness/model")
weights=(reward.alpha="$alpha" reward.beta="$beta" reward.gamma="$gamma" judge.checklist_model="${CHECKER:-$out/checker/model}" "${claims[@]}" "${truthful[@]}")
case $row in
    klcf-zero) model=$base reward=(paper=klcf "${weights[@]}") ;;
    klcf) model=$sft reward=(paper=klcf "${weights[@]}") ;;
    eq7) model=$base reward=(paper=klcf:uncovered "${weights[@]}") ;;
    truth-only) model=$base reward=(paper=klcf:truth-only "${claims[@]}" "${truthful[@]}") ;;
    grpo-factscore) model=$sft reward=(paper=klcf:factscore judge.url="${JUDGE:?give JUDGE=}" verifier.index="$data/wiki" "${claims[@]}") ;;
    *) echo "$0: no ROW $row; klcf-zero, klcf, eq7, truth-only or grpo-factscore" >&2 && exit 2 ;;
esac
[[ -n "${WEIGHTS:-}" || ! "${reward[*]}" == *alpha* ]] || row=$row-$alpha-$beta-$gamma # as run.sh names it
run=$out/$row settled=(--config "$here/recipe.toml" --model "$model" --data "$train" "${reward[@]}")

train() { # verl's command; its own words come last
    local words=(python -m verl.trainer.main_ppo
        data.train_files="$run/train.parquet" data.val_files="$run/train.parquet" data.filter_overlong_prompts=True
        data.max_prompt_length=1024 data.truncation=error data.seed=0 data.shuffle=True
        data.train_batch_size=64 data.max_response_length=2048 # lost: factrl's defaults
        reward.custom_reward_function.path=pkg://factrl.bridges.verl +reward.custom_reward_function.reward_kwargs.recipe="$run/reward.toml"
        algorithm.adv_estimator=factrl_grpo algorithm.use_kl_in_reward=False trainer.v1.trainer_mode=factrl_sync
        algorithm.norm_adv_by_std_in_grpo=True +algorithm.factrl.scale=group +algorithm.factrl.epsilon=1e-6 # paper: GRPO
        actor_rollout_ref.model.path="$model" actor_rollout_ref.model.enable_gradient_checkpointing=True
        actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.clip_ratio_c=1000000 # no second clip
        actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_epochs=1 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
        actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean actor_rollout_ref.actor.use_kl_loss=False # paper: no KL penalty
        actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.optim.lr_scheduler_type=cosine actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.1 # paper; the share is ours
        'actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]'
        actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1
        actor_rollout_ref.rollout.agent.agent_loop_config_path="$run/agent.yaml" actor_rollout_ref.rollout.agent.default_agent_loop=factrl_agent
        actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.rollout.top_p=1.0 # lost: factrl's defaults
        trainer.use_v1=True trainer.total_epochs=1 trainer.save_freq=50 trainer.test_freq=-1 trainer.val_before_train=False
        trainer.n_gpus_per_node="${GPUS:-8}" trainer.nnodes="${NODES:-1}" trainer.default_local_dir="$run/checkpoints" trainer.resume_mode=auto
        trainer.project_name=factrl trainer.experiment_name="$row" hydra.run.dir="$run/hydra"
        +ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES="$VERL_USE_EXTERNAL_MODULES" "$@")
    do_ "${words[@]}"
}

settled_verl "$@"
