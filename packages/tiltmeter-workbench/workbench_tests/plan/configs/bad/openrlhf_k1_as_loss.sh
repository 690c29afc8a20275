set -x
# k1 is the default of the estimator, and a loss was asked for.
python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
   --vllm.num_engines 8 \
   --train.colocate_all --vllm.enable_sleep --ds.enable_sleep \
   --algo.advantage.estimator reinforce_baseline \
   --algo.kl.init_coef 1e-2 \
   --algo.kl.use_loss \
   --actor.model_name_or_path Qwen/Qwen3-4B \
   --reward.remote_url rewards/verifiers/maths_reward.py \
   --ckpt.output_dir exp/maths \
   --ckpt.save_steps 10 \
   --train.batch_size 1024 \
   --rollout.batch_size 128 \
   --rollout.n_samples_per_prompt 8 \
   --data.max_len 8192 \
   --rollout.max_new_tokens 7168 \
   --ds.zero_stage 3 --ds.param_dtype bf16 --ds.packing_samples \
   --actor.adam.lr 1e-6 \
   --data.prompt_dataset OpenRLHF/dapo-math-17k \
   --data.input_key prompt --data.label_key label
