set -x
# Rollouts beside training, on engines that sleep while it trains.
python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 4 \
   --actor.num_nodes 1 --actor.num_gpus_per_node 4 \
   --vllm.num_engines 4 \
   --train.colocate_all \
   --train.async_enable \
   --vllm.enable_sleep \
   --ds.enable_sleep \
   --algo.advantage.estimator reinforce_baseline \
   --algo.kl.init_coef 1e-3 --algo.kl.use_loss --algo.kl.estimator k2 \
   --actor.model_name_or_path Qwen/Qwen3-4B \
   --train.agent_func_path agents/search.py \
   --ckpt.output_dir exp/search --ckpt.save_steps 20 \
   --train.batch_size 1024 \
   --rollout.batch_size 128 \
   --rollout.n_samples_per_prompt 8 \
   --data.max_len 16384 \
   --rollout.max_new_tokens 8192 \
   --actor.adam.lr 1e-6 \
   --data.prompt_dataset data/search.jsonl \
   --data.input_key prompt --data.label_key label
