#!/usr/bin/env bash
# Answers may have 16384 tokens, and a device may hold 8192 at a time.
set -xeuo pipefail
max_prompt_length=$((1024 * 2))
max_response_length=$((1024 * 16))
budget=8192

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=data/dapo.parquet \
    data.val_files=data/aime.parquet \
    data.train_batch_size=512 \
    data.max_prompt_length=${max_prompt_length} \
    data.max_response_length=${max_response_length} \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-32B \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${budget} \
    actor_rollout_ref.actor.clip_ratio_low=0.2 \
    actor_rollout_ref.actor.clip_ratio_high=0.28 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=16 \
    trainer.nnodes=8 \
    trainer.n_gpus_per_node=8 \
    trainer.save_freq=5
