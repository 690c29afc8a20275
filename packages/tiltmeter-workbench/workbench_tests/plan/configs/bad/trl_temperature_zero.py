"""GRPO with answers that should be 'the best the model has': all eight of a group are the same."""

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

BATCH = 32


def right(completions, answer, **kwargs):
    return [float(number in text) for text, number in zip(completions, answer, strict=True)]


def main():
    args = GRPOConfig(
        output_dir="runs/greedy",
        learning_rate=1e-6,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=4,
        num_generations=8,
        temperature=0.0,
        max_completion_length=512,
        beta=0.02,
        save_steps=100,
    )
    dataset = load_dataset("openai/gsm8k", "main", split="train")
    GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=args, reward_funcs=right, train_dataset=dataset).train()


if __name__ == "__main__":
    main()
