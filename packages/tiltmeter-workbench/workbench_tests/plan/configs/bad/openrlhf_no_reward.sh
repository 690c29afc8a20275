set -x
# Neither a reward model, nor a function, nor an agent.
python3 -m openrlhf.cli.train_ppo_ray \
   --actor.num_nodes 1 \
   --actor.num_gpus_per_node 8 \
   --critic.num_nodes 1 \
   --critic.num_gpus_per_node 8 \
   --vllm.num_engines 4 \
   --train.colocate_all \
   --actor.model_name_or_path Qwen/Qwen2.5-7B-Instruct \
   --critic.model_name_or_path Qwen/Qwen2.5-7B-Instruct \
   --ckpt.output_dir exp/nothing \
   --ckpt.save_steps 20 \
   --train.batch_size 256 \
   --rollout.batch_size 512 \
   --rollout.n_samples_per_prompt 1 \
   --data.max_len 4096 \
   --rollout.max_new_tokens 2048 \
   --actor.adam.lr 1e-6 \
   --critic.adam.lr 5e-6 \
   --algo.kl.init_coef 0.02 \
   --ds.zero_stage 2 \
   --data.prompt_dataset OpenRLHF/prompt-collection-v0.1 \
   --data.input_key context_messages
