set -x
# Answers of 4096 tokens in sequences of 4096.
python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
   --vllm.num_engines 8 --train.colocate_all \
   --algo.advantage.estimator rloo \
   --algo.kl.init_coef 0.01 \
   --actor.model_name_or_path Qwen/Qwen3-1.7B \
   --reward.remote_url rewards/verifiers/code_reward.py \
   --ckpt.output_dir exp/code \
   --ckpt.save_steps 20 \
   --train.batch_size 512 \
   --rollout.batch_size 128 \
   --rollout.n_samples_per_prompt 8 \
   --data.max_len 4096 \
   --rollout.max_new_tokens 4096 \
   --ds.zero_stage 3 \
   --actor.adam.lr 1e-6 \
   --data.prompt_dataset data/code.jsonl \
   --data.input_key prompt --data.label_key tests
