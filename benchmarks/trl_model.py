"""Small language models and unmodified TRL trainers on them, for benchmarks that need real training in seconds."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here is downloaded, and a forgotten name fails at once
os.environ.setdefault("TILTMETER_QUIET", "1")  # what a benchmark prints is its result

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

Reward = Callable[..., Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Size:
    """A Llama by its layers and width, and how much it generates for one optimiser step."""

    layers: int
    width: int
    completions: int
    tokens: int
    group: int


SMALL = Size(layers=2, width=32, completions=8, tokens=16, group=4)
MEDIUM = Size(layers=4, width=128, completions=128, tokens=32, group=8)


def make_model(folder: Path, size: Size, seed: int = 0) -> Path:
    """A random model and a byte-level tokenizer, saved: TRL loads the reference model by its path."""
    torch, tokenizers, transformers = map(import_module, ("torch", "tokenizers", "transformers"))
    transformers.utils.logging.disable_progress_bar()
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer, bpe.decoder = tokenizers.pre_tokenizers.ByteLevel(), tokenizers.decoders.ByteLevel()
    text = ["what is 1 plus 2", "the answer is 3 because one and two"] * 50
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<eos>"}
    teacher = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=list(special.values()), show_progress=False)
    bpe.train_from_iterator(text, teacher)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    torch.manual_seed(seed)
    heads = max(2, size.width // 32)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=size.width, intermediate_size=2 * size.width + 96,
        num_hidden_layers=size.layers, num_attention_heads=heads, max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_trainer(
    model: Path, output: Path, size: Size, *, steps: int, rewards: Sequence[Reward], kind: str = "GRPO", **changes: Any
) -> Any:
    """A `GRPOTrainer` or `RLOOTrainer` as anybody would write it; `changes` are settings of its configuration."""
    trl, datasets, transformers = map(import_module, ("trl", "datasets", "transformers"))
    settings: dict[str, Any] = {
        "output_dir": str(output), "max_steps": steps, "per_device_train_batch_size": size.completions,
        "num_generations": size.group, "max_completion_length": size.tokens, "beta": 0.04, "learning_rate": 1e-3,
        "logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "seed": 1,
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
    }  # fmt: skip
    rows = [{"prompt": f"what is {i} plus 2", "answer": str(i + 2)} for i in range(64)]
    with quiet():
        trainer = getattr(trl, f"{kind}Trainer")(
            model=str(model),
            args=getattr(trl, f"{kind}Config")(**settings | changes),
            processing_class=transformers.AutoTokenizer.from_pretrained(model),
            train_dataset=datasets.Dataset.from_list(rows),
            reward_funcs=list(rewards),
        )
    trainer.remove_callback(transformers.PrinterCallback)  # what a benchmark prints is its result
    return trainer


def call_at(trainer: Any, event: str, work: Callable[[int], None]) -> None:
    """Have `work` called with the number of finished steps at one of the trainer's events, as `on_step_begin`."""

    def told(self: object, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        work(int(state.global_step))

    base = import_module("transformers").TrainerCallback
    trainer.add_callback(type(f"CallAt_{event}_{id(work)}", (base,), {event: told})())


def parameters(trainer: Any) -> str:
    """A hash of every parameter, bit by bit."""
    digest = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def quiet() -> Iterator[None]:
    """Without what TRL, transformers and torch warn of about themselves, and without our advice at attach."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        yield


def long(completions: Sequence[str], **_: Any) -> list[float]:
    """A reward that length pays."""
    return [len(text) / 50 for text in completions]


def right(completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    """A reward that the answer pays."""
    return [float(a in text) for text, a in zip(completions, answer, strict=True)]
