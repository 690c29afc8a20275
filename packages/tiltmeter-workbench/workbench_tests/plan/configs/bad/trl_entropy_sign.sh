#!/bin/bash
# The entropy "penalty" was meant to keep entropy up.
set -e
MODEL=Qwen/Qwen3-1.7B
OUT="runs/entropy-${RUN:-a}"

accelerate launch --config_file configs/zero2.yaml --num_processes 8 \
    -m trl.scripts.grpo \
    --model_name_or_path $MODEL \
    --dataset_name trl-lib/DeepMath-103K \
    --reward_funcs accuracy_reward \
    --output_dir "$OUT" \
    --learning_rate 1e-6 \
    --lr_scheduler_type cosine \
    --warmup_steps 0.05 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --num_generations 8 \
    --max_completion_length 2048 \
    --entropy_coef -0.01 \
    --beta 0.01 \
    --save_steps 50
