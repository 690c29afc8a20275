"""PPO on TL;DR with TRL, as it was written two years ago."""

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import PPOConfig, PPOTrainer

tokenizer = AutoTokenizer.from_pretrained("EleutherAI/pythia-1b-deduped", padding_side="left")
policy = AutoModelForCausalLM.from_pretrained("cleanrl/EleutherAI_pythia-1b-deduped__sft__tldr")
reward = AutoModelForSequenceClassification.from_pretrained("cleanrl/EleutherAI_pythia-1b-deduped__reward__tldr")

args = PPOConfig(
    output_dir="runs/ppo_tldr",
    learning_rate=3e-6,
    num_ppo_epochs=4,
    num_mini_batches=1,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=4,
    total_episodes=100_000,
    response_length=53,
    missing_eos_penalty=1.0,
    kl_coef=0.05,
)
dataset = load_dataset("trl-lib/tldr", split="train")
trainer = PPOTrainer(args=args, model=policy, reward_model=reward, train_dataset=dataset, processing_class=tokenizer)
trainer.train()
