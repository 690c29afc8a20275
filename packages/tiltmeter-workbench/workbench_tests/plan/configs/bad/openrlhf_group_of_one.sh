set -x
# n_samples_per_prompt is 1 unless it is said.
python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 \
   --ref.num_gpus_per_node 8 \
   --actor.num_nodes 1 \
   --actor.num_gpus_per_node 8 \
   --vllm.num_engines 4 \
   --vllm.tensor_parallel_size 2 \
   --train.colocate_all \
   --algo.advantage.estimator group_norm \
   --algo.kl.init_coef 1e-2 \
   --algo.kl.use_loss \
   --algo.kl.estimator k2 \
   --actor.model_name_or_path OpenRLHF/Llama-3-8b-sft-mixture \
   --reward.remote_url rewards/verifiers/maths_reward.py \
   --ckpt.output_dir exp/maths \
   --ckpt.save_steps 20 \
   --train.batch_size 128 \
   --rollout.batch_size 1024 \
   --data.max_len 2048 \
   --rollout.max_new_tokens 1024 \
   --ds.zero_stage 3 \
   --actor.adam.lr 1e-6 \
   --data.prompt_dataset OpenRLHF/dapo-math-17k \
   --data.input_key prompt \
   --data.label_key label
