set -x
# 64 prompts with 4 answers each are 256; an update waits for 1024.
python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
   --vllm.num_engines 8 --train.colocate_all \
   --algo.advantage.estimator rloo \
   --algo.kl.init_coef 0.01 \
   --actor.model_name_or_path Qwen/Qwen2.5-3B-Instruct \
   --reward.remote_url rewards/verifiers/maths_reward.py \
   --ckpt.output_dir exp/maths --ckpt.save_steps 20 \
   --train.batch_size 1024 \
   --train.micro_batch_size 8 \
   --rollout.batch_size 64 \
   --rollout.n_samples_per_prompt 4 \
   --data.max_len 4096 \
   --rollout.max_new_tokens 2048 \
   --actor.adam.lr 1e-6 \
   --data.prompt_dataset OpenRLHF/dapo-math-17k \
   --data.input_key prompt --data.label_key label
