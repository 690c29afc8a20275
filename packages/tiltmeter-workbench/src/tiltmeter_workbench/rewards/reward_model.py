"""`model`: a saved reward model as a reward function; deterministic, from safetensors only, without remote code."""

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

from tiltmeter.data.batches import replace_surrogates
from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.reward import Scores, texts

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@dataclass
class RewardModel:
    """A sequence classifier with one output as a reward function: `model("folder")`.

    The trainer could load the model itself, but this object can also be a member of an `ensemble`, be length-debiased,
    gated and probed. It is loaded at the first score, from safetensors only; it is never trained, its
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
    max_length: int | None = None  # tokens; None: the maximum of model and tokenizer
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
        """What the reward fingerprint is made of: the hash of the weights, and how texts are formatted."""
        return (hash_model(self.folder), self.max_length, self.between, self.ending)

    @cached_property
    def max_tokens(self) -> int:
        """How many tokens of a text are read."""
        if self.max_length is not None:
            return self.max_length
        config = self.model.config.get_text_config()
        # As an attribute: some families, GPT-2 among them, store it under a name of their own.
        made_for = config.max_position_embeddings if hasattr(config, "max_position_embeddings") else 1 << 20
        return min(int(self.tokenizer.model_max_length), int(made_for))

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        """One score for each completion; None, and `infra`, where the model gave no finite number."""
        formatted = self.format_texts(prompts, completions)
        scores = self._score_texts(formatted)
        finite = [score == score and abs(score) != float("inf") for score in scores]
        self.infra = [not is_finite for is_finite in finite]
        return [score if is_finite else None for score, is_finite in zip(scores, finite, strict=True)]

    def format_texts(self, prompts: Any, completions: Any) -> list[str]:
        """The text of each row as the model reads it."""
        answers = list(completions)
        prompt_list = [None] * len(answers) if prompts is None else list(prompts)
        chat = self.tokenizer.chat_template is not None and any(isinstance(answer, list) for answer in answers)
        self.formatting = "chat template" if chat else "plain text"
        if chat:
            messages = [[*_messages(prompt, "user"), *_messages(answer, "assistant")]
                        for prompt, answer in zip(prompt_list, answers, strict=True)]  # fmt: skip
            return [self.tokenizer.apply_chat_template(row, tokenize=False) for row in messages]
        before = texts(["" if prompt is None else prompt for prompt in prompt_list])
        return [
            f"{prompt}{self.between if prompt else ''}{answer}{self.ending}"
            for prompt, answer in zip(before, texts(answers), strict=True)
        ]

    def tokenize(self, formatted: Sequence[str]) -> tuple[Any, list[bool]]:
        """Tokens of one batch, padded on the right, and which texts were cut."""
        nonempty = [
            replace_surrogates(text) or self.tokenizer.eos_token or self.tokenizer.pad_token for text in formatted
        ]
        # A template has written special tokens itself.
        special = {"add_special_tokens": self.formatting != "chat template"}
        # One token more than is read, to distinguish a text that was cut from one that just fits.
        cut = {"truncation": True, "max_length": self.max_tokens}
        more = self.tokenizer(nonempty, truncation=True, max_length=self.max_tokens + 1, **special)
        tokens = self.tokenizer(nonempty, return_tensors="pt", padding=True, padding_side="right", **cut, **special)
        return tokens, [len(ids) > self.max_tokens for ids in more["input_ids"]]

    def _score_texts(self, formatted: Sequence[str]) -> list[float]:
        import torch

        order = sorted(
            range(len(formatted)), key=lambda at: len(formatted[at])
        )  # texts of a length need little padding
        scores = [float("nan")] * len(formatted)
        self.cut = [False] * len(formatted)
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            tokens, cut = self.tokenize([formatted[at] for at in rows])
            inputs = {name: tokens[name].to(self.device) for name in ("input_ids", "attention_mask")}
            with torch.inference_mode():
                logits = self.model(**inputs).logits[:, 0].float().tolist()
            for at, score, short in zip(rows, logits, cut, strict=True):
                scores[at], self.cut[at] = score, short
        return scores

    def use_model(self, model: Any, tokenizer: Any) -> None:
        """Use this model in place of the one in the folder, as for a student during training."""
        self._model, self._tokenizer = model, tokenizer

    def _load(self) -> None:
        if self._model is None:
            self._model, self._tokenizer = load_reward_model(self.folder)
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
    """The reward model in a folder as a reward function; see `RewardModel`. What cannot be loaded is refused here.

    Example:

        reward = rewards.shaped(rewards.model("reward-model"), reference=0.0)
    """
    check_model_folder(folder)
    return RewardModel(folder, batch, max_length, name, between, ending, device)


def check_model_folder(folder: str | Path) -> Path:
    """The folder, if it may hold a reward model. Raises `AttachError` with the fix; nothing is loaded."""
    path = Path(folder)
    if not path.is_dir():
        raise AttachError(f"{path} is no folder; save a reward model with model.save_pretrained and its tokenizer too")
    if (path / "adapter_config.json").exists():
        raise AttachError(f"{path} holds an adapter; save the whole model: model.merge_and_unload().save_pretrained")
    if not (path / "config.json").exists():
        raise AttachError(f"{path} has no config.json; save a reward model with model.save_pretrained")
    if not any(path.glob("*.safetensors")):
        pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
        what = f"only {', '.join(pickles)}, which can run code when they are opened" if pickles else "no weights"
        raise AttachError(
            f"{path} has {what}; where you trust them, load them in a process of their own and save them again with "
            "model.save_pretrained(folder), which writes *.safetensors"
        )
    return path


def load_reward_model(folder: str | Path) -> tuple[Any, Any]:
    """Model and tokenizer, frozen and in eval mode. Raises `AttachError` for what is no reward model."""
    path = check_model_folder(folder)
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    safe = {"local_files_only": True, "trust_remote_code": False}
    with preserve_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path), **safe)
            classifier, loading_info = AutoModelForSequenceClassification.from_pretrained(
                str(path), use_safetensors=True, output_loading_info=True, dtype="float32", **safe
            )
        except (ValueError, OSError, KeyError) as error:
            raise AttachError(f"{path} could not be loaded as a reward model: {str(error).splitlines()[0]}") from error
    if missing := sorted(loading_info["missing_keys"]):
        raise AttachError(
            f"{path} lacks {', '.join(missing[:3])}: it was not trained as a reward model, and what is missing would "
            "be random; train it as AutoModelForSequenceClassification with num_labels=1"
        )
    if classifier.config.num_labels != 1:
        raise AttachError(f"{path} gives {classifier.config.num_labels} numbers for a text; a reward model gives 1")
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise AttachError(f"the tokenizer in {path} has neither a padding token nor one for the end; set one")
        tokenizer.pad_token = tokenizer.eos_token
    classifier.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    classifier.eval().requires_grad_(False)
    return classifier, tokenizer


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore the random state of numpy, random and torch afterwards, and silence transformers meanwhile."""
    import random

    import numpy as np
    import torch
    from transformers.utils import logging

    loud, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # our AttachError reports problems, with the fix
    logging.disable_progress_bar()
    before, pure = np.random.get_state(), random.getstate()  # noqa: NPY002  # the trainer may use it
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            np.random.set_state(before)  # noqa: NPY002
            random.setstate(pure)
            logging.set_verbosity(loud)
            if bars:
                logging.enable_progress_bar()


def hash_model(folder: str | Path) -> str:
    """SHA-256 of a folder's configuration and weights, whatever the files with the weights are called."""
    path = check_model_folder(folder)
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
