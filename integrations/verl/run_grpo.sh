#!/usr/bin/env bash
# GRPO on GSM8K with veRL, watched by Tiltmeter. Data as veRL's examples/data_preprocess/gsm8k.py writes it.
set -euo pipefail

data=${DATA:-$HOME/data/gsm8k}
model=${MODEL:-Qwen/Qwen3-0.6B}
here=$(cd "$(dirname "$0")" && pwd)

python -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_files="$data/train.parquet" \
  data.val_files="$data/test.parquet" \
  data.train_batch_size=256 \
  data.max_prompt_length=512 \
  data.max_response_length=1024 \
  actor_rollout_ref.model.path="$model" \
  actor_rollout_ref.actor.use_kl_loss=True \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  trainer.project_name=tiltmeter \
  trainer.experiment_name=gsm8k \
  trainer.save_freq=20 \
  trainer.test_freq=20 \
  trainer.total_epochs=1 \
  +trainer.tiltmeter.gold.source="$here/checks.py:solved" \
  +trainer.tiltmeter.gold.evals=auto \
  "$@"
