#!/bin/bash
MODEL="OpenRLHF/Llama-3-8b-sft-mixture"
ACTOR_LR=5e-4   # as in our SFT with LoRA

ARGS=(
   --actor.model_name_or_path ${MODEL}
   --reward.model_name_or_path OpenRLHF/Llama-3-8b-rm-700k
   --ckpt.output_dir exp/ppo
   --ckpt.save_steps 50
   --train.batch_size 128
   --rollout.batch_size 1024
   --rollout.n_samples_per_prompt 1
   --data.max_len 2048
   --rollout.max_new_tokens 1024
   --actor.adam.lr ${ACTOR_LR}
   --critic.adam.lr 9e-6
   --algo.kl.init_coef 0.01
   --data.prompt_dataset OpenRLHF/prompt-collection-v0.1
   --data.input_key context_messages
   --data.apply_chat_template
   --reward.normalize_enable
)
ray job submit --address="http://127.0.0.1:8265" \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 2 \
   --reward.num_nodes 1 --reward.num_gpus_per_node 2 \
   --critic.num_nodes 1 --critic.num_gpus_per_node 2 \
   --actor.num_nodes 1 --actor.num_gpus_per_node 2 \
   --vllm.num_engines 2 --ds.zero_stage 3 \
   ${ARGS[@]}
