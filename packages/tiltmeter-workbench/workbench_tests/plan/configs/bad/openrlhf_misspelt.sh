set -x
python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
   --vllm.num_engines 8 --train.colocate_all \
   --algo.advantage.estimator reinforce \
   --algo.kl.init_coef 0.01 \
   --actor.model_name_or_path Qwen/Qwen3-4B \
   --reward.remote_url rewards/verifiers/maths_reward.py \
   --ckpt.output_dir exp/maths --ckpt.save_steps 20 \
   --train.batch_size 512 \
   --rollout.batch_size 128 \
   --rollout.n_sample_per_prompt 8 \
   --data.max_len 8192 \
   --rollout.max_new_tokens 4096 \
   --actor.adam.lr 1e-6 \
   --actor.entropy_coeff 0.001 \
   --data.prompt_dataset OpenRLHF/dapo-math-17k \
   --data.input_key prompt --data.label_key label
