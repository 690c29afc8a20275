"""A reward model in a folder as a reward function: what it would pay, without chance, and without code of its own."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiltmeter.batches import sound
from tiltmeter.errors import AttachError
from tiltmeter.rewards import Scores, texts

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@dataclass
class RewardModel:
    """A sequence classifier with one output as a reward function: `model("folder")`.

    Worth having where the trainer would load the model itself, because the same object can be an arm of an `ensemble`,
    be debiased, gated and probed. It is loaded at the first score, from safetensors only; it is never trained, its
    parameters take no gradient (those of its inputs can be asked for through `model`), and the trainer's random
    numbers and threads are left alone. A score is the same in every process; in another batch, where it is padded
    otherwise, it may differ in the last digits.

    Messages are written by the tokenizer's chat template. Without a template, and for plain text, prompt and
    completion are put one after the other with `between` between them and `ending` after them; `formatting` says
    which it was. TRL's RewardTrainer ends plain text with the token for the end: say `ending=tokenizer.eos_token` for
    a model of its making. What stands beyond `max_length` tokens is not read: `cut` says of which rows.

    >>> reward = RewardModel("a/folder", name="helpful")
    >>> reward.__name__, reward.bounds, reward.loaded
    ('helpful', (None, None), False)
    """

    folder: str | Path
    batch: int = 16
    max_length: int | None = None  # tokens; without it what the model was made for
    name: str = ""
    between: str = ""
    ending: str = ""
    device: str = "cpu"
    bounds: tuple[float | None, float | None] = field(default=(None, None), init=False)
    components: tuple[str, ...] = field(default=(), init=False)
    told: Mapping[str, Scores] = field(default_factory=lambda: MappingProxyType({}), init=False, repr=False)
    infra: list[bool] = field(default_factory=list, init=False, repr=False)  # no finite score: the model is broken
    cut: list[bool] = field(default_factory=list, init=False, repr=False)
    formatting: str = field(default="", init=False)
    _model: Any = field(default=None, init=False, repr=False)
    _tokenizer: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.__name__ = self.name or Path(self.folder).name
        if self.batch < 1:
            raise AttachError(f"a batch of {self.batch} completions cannot be scored; use 1 or more")

    @property
    def loaded(self) -> bool:
        return self._model is not None

    @property
    def model(self) -> Any:
        """The torch module, in eval mode."""
        self._load()
        return self._model

    @property
    def tokenizer(self) -> Any:
        self._load()
        return self._tokenizer

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """What makes it another reward: other weights, or other text around the same."""
        return (hash_of(self.folder), self.max_length, self.between, self.ending)

    @cached_property
    def longest(self) -> int:
        """How many tokens of a text are read."""
        if self.max_length is not None:
            return self.max_length
        config = self.model.config.get_text_config()
        # As an attribute: some families, GPT-2 among them, store it under a name of their own.
        made_for = config.max_position_embeddings if hasattr(config, "max_position_embeddings") else 1 << 20
        return min(int(self.tokenizer.model_max_length), int(made_for))

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        """One score for each completion; None, and `infra`, where the model gave no finite number."""
        written = self.written(prompts, completions)
        scores = self._scored(written)
        finite = [score == score and abs(score) != float("inf") for score in scores]
        self.infra = [not known for known in finite]
        return [score if known else None for score, known in zip(scores, finite, strict=True)]

    def written(self, prompts: Any, completions: Any) -> list[str]:
        """What the model reads of each row."""
        answers = list(completions)
        asked = [None] * len(answers) if prompts is None else list(prompts)
        chat = self.tokenizer.chat_template is not None and any(isinstance(answer, list) for answer in answers)
        self.formatting = "chat template" if chat else "plain text"
        if chat:
            messages = [[*_messages(prompt, "user"), *_messages(answer, "assistant")]
                        for prompt, answer in zip(asked, answers, strict=True)]  # fmt: skip
            return [self.tokenizer.apply_chat_template(row, tokenize=False) for row in messages]
        before = texts(["" if prompt is None else prompt for prompt in asked])
        return [
            f"{prompt}{self.between if prompt else ''}{answer}{self.ending}"
            for prompt, answer in zip(before, texts(answers), strict=True)
        ]

    def encoded(self, written: Sequence[str]) -> tuple[Any, list[bool]]:
        """Tokens of one batch, padded on the right, and which texts were cut."""
        given = [sound(text) or self.tokenizer.eos_token or self.tokenizer.pad_token for text in written]
        # A template has written special tokens itself.
        special = {"add_special_tokens": self.formatting != "chat template"}
        # One token more than is read: it tells a text that was cut from one that just fits.
        cut = {"truncation": True, "max_length": self.longest}
        more = self.tokenizer(given, truncation=True, max_length=self.longest + 1, **special)
        tokens = self.tokenizer(given, return_tensors="pt", padding=True, padding_side="right", **cut, **special)
        return tokens, [len(ids) > self.longest for ids in more["input_ids"]]

    def _scored(self, written: Sequence[str]) -> list[float]:
        import torch

        order = sorted(range(len(written)), key=lambda at: len(written[at]))  # texts of a length need little padding
        scores = [float("nan")] * len(written)
        self.cut = [False] * len(written)
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            tokens, cut = self.encoded([written[at] for at in rows])
            given = {name: tokens[name].to(self.device) for name in ("input_ids", "attention_mask")}
            with torch.inference_mode():
                told = self.model(**given).logits[:, 0].float().tolist()
            for at, score, short in zip(rows, told, cut, strict=True):
                scores[at], self.cut[at] = score, short
        return scores

    def give(self, model: Any, tokenizer: Any) -> None:
        """Use this model in place of the one in the folder, as a student does while it learns."""
        self._model, self._tokenizer = model, tokenizer

    def _load(self) -> None:
        if self._model is None:
            self._model, self._tokenizer = load(self.folder)
            self._model.to(self.device)


def model(
    folder: str | Path,
    batch: int = 16,
    max_length: int | None = None,
    name: str = "",
    *,
    between: str = "",
    ending: str = "",
    device: str = "cpu",
) -> RewardModel:
    """The reward model in a folder as a reward function; see `RewardModel`. What cannot be loaded is refused here."""
    check(folder)
    return RewardModel(folder, batch, max_length, name, between, ending, device)


def check(folder: str | Path) -> Path:
    """The folder, if it may hold a reward model. Raises `AttachError` with the fix; nothing is loaded."""
    path = Path(folder)
    if not path.is_dir():
        raise AttachError(f"{path} is no folder; save a reward model with model.save_pretrained and its tokenizer too")
    if (path / "adapter_config.json").exists():
        raise AttachError(f"{path} holds an adapter; save the whole model: model.merge_and_unload().save_pretrained")
    if not (path / "config.json").exists():
        raise AttachError(f"{path} has no config.json; save a reward model with model.save_pretrained")
    if not any(path.glob("*.safetensors")):
        found = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
        what = f"only {', '.join(found)}, which can run code when they are opened" if found else "no weights"
        raise AttachError(
            f"{path} has {what}; where you trust them, load them in a process of their own and save them again with "
            "model.save_pretrained(folder), which writes *.safetensors"
        )
    return path


def load(folder: str | Path) -> tuple[Any, Any]:
    """Model and tokenizer, frozen and in eval mode. Raises `AttachError` for what is no reward model."""
    path = check(folder)
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    safe = {"local_files_only": True, "trust_remote_code": False}
    with untouched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path), **safe)
            made, said = AutoModelForSequenceClassification.from_pretrained(
                str(path), use_safetensors=True, output_loading_info=True, dtype="float32", **safe
            )
        except (ValueError, OSError, KeyError) as error:
            raise AttachError(f"{path} could not be loaded as a reward model: {str(error).splitlines()[0]}") from error
    if missing := sorted(said["missing_keys"]):
        raise AttachError(
            f"{path} lacks {', '.join(missing[:3])}: it was not trained as a reward model, and what is missing would "
            "be random; train it as AutoModelForSequenceClassification with num_labels=1"
        )
    if made.config.num_labels != 1:
        raise AttachError(f"{path} gives {made.config.num_labels} numbers for a text; a reward model gives 1")
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise AttachError(f"the tokenizer in {path} has neither a padding token nor one for the end; set one")
        tokenizer.pad_token = tokenizer.eos_token
    made.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    made.eval().requires_grad_(False)
    return made, tokenizer


@contextmanager
def untouched() -> Iterator[None]:
    """Whatever is loaded or made inside, quietly: the random numbers of whoever called go on as if it had not been."""
    import random

    import numpy as np
    import torch
    from transformers.utils import logging

    loud, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # what it would say of a folder, an AttachError says, with the fix
    logging.disable_progress_bar()
    before, pure = np.random.get_state(), random.getstate()  # noqa: NPY002  # the one that others may depend on
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            np.random.set_state(before)  # noqa: NPY002
            random.setstate(pure)
            logging.set_verbosity(loud)
            if bars:
                logging.enable_progress_bar()


def hash_of(folder: str | Path) -> str:
    """SHA-256 of a folder's configuration and weights, whatever the files with the weights are called."""
    path = check(folder)
    total = hashlib.sha256()
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config.pop("_name_or_path", None)
    total.update(json.dumps(config, sort_keys=True).encode())
    for file in sorted(path.glob("*.safetensors")):
        with file.open("rb") as opened:
            total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()


def _messages(value: Any, role: str) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return value
    return [] if value is None else [{"role": role, "content": str(value)}]
