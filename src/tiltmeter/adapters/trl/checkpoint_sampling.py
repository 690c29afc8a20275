"""Has what a trainer saves asked and judged by a process of its own: a verdict for trainers that make no rollouts.

In the trainer's process a row of the dataset is read when it is attached, and a few bytes are written after a save.
Everything else is done by the workbench's sampler, which is given what is left of one core (`nice` 19, one thread) and,
unless a device is named, no GPU: the trainer's memory there is its own.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from msgspec import Struct, ValidationError, convert

from tiltmeter.adapters.custom_loop import Run
from tiltmeter.adapters.gold_file import absolute_name, write_gold
from tiltmeter.errors import AttachError, StoreError, warn_user
from tiltmeter.gold.try_gold import try_gold
from tiltmeter.monitor.parts import load_gold, names_people
from tiltmeter.rundir.checkpoints.sampling import (
    EVALUATION,
    CheckpointSampling,
    open_sampling_lock,
    read_sampling,
    write_sampling,
    write_save,
)
from tiltmeter.rundir.run_path import open_file
from tiltmeter.rundir.run_path import run_path as trusted_path
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.function_file import FunctionFile, write_function

STARTS = 3  # of the process: the first, and again at a save when it has died
TRIED = 8  # rows that gold is tried on
#: What TRL adds to a dataset for itself: long, and nothing that gold could want.
TRAINED_ON = frozenset({"input_ids", "attention_mask", "completion_mask", "assistant_masks", "labels", "seq_lengths"})

log = logging.getLogger("tiltmeter")
PromptSource = str | os.PathLike[str] | Sequence[Any] | None


class SamplingOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How checkpoints are asked; `device`: "cpu", or as "cuda:1" one that training does not use."""

    prompts: int = 128
    answers: int = 2
    tokens: int = 256
    device: str = "cpu"
    seed: int = 0


def read_options(options: Mapping[str, Any] | None) -> SamplingOptions:
    """Raises `AttachError` for what is no setting, or no number of answers."""
    try:
        read = convert(dict(options or {}), SamplingOptions)
    except ValidationError as error:
        allowed = ", ".join(SamplingOptions.__struct_fields__)
        raise AttachError(f"sampling={dict(options or {})!r}: {error}; it may have {allowed}") from error
    if min(read.prompts, read.answers, read.tokens) < 1:
        raise AttachError("sampling: prompts, answers and tokens are 1 or more")
    return read


def sampler_module() -> str:
    """The module whose process asks checkpoints. Raises `AttachError` where the workbench is not installed."""
    for entry in entry_points(group="tiltmeter.checkpoint_sampler"):
        return entry.value
    raise AttachError("judging saved checkpoints needs the workbench: pip install 'tiltmeter[workbench]'")


class CheckpointSampler:
    """Starts the process that asks what a trainer saves, and tells it of each save."""

    def __init__(
        self,
        trainer: Any,
        gold: str | Callable[..., Any],
        prompts: PromptSource = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises `AttachError` for what cannot work; nothing is written or started yet."""
        sampler_module()
        args = trainer.args
        if str(getattr(args.save_strategy, "value", args.save_strategy)) == "no":
            raise AttachError(
                f"{type(trainer).__name__} makes no rollouts, so that gold judges what it saves, and it saves nothing: "
                'set save_strategy="steps" and save_steps, or leave gold= out'
            )
        self._options = read_options(options)
        self.kind: Literal["answers", "pairs"] = "pairs" if _is_classifier(trainer) else "answers"
        self.rows, self._source = _rows(trainer, prompts, self.kind, self._options)
        self._output, self._base = str(Path(args.output_dir).absolute()), _base_folder(trainer)
        self._plain = _trains_on_texts(trainer)
        self._gold = self._check_gold(gold)
        self.judge = _short_name(self._gold.file if isinstance(self._gold, FunctionFile) else self._gold)
        self._run: RunDirectory | None = None
        self._attempt, self._starts = 0, 0
        self._process: subprocess.Popen[bytes] | None = None

    def _check_gold(self, gold: str | Callable[..., Any]) -> FunctionFile | str:
        """Gold as another process can load it, after it was tried on a few rows."""
        passed = write_function(gold) if callable(gold) else str(gold)
        if isinstance(passed, str) and (names_people(passed) or passed.startswith("reward:")):
            raise AttachError(
                f"gold={passed!r} cannot judge checkpoints: pass a function, checks.py:score, judge.toml, tests or "
                "answers"
            )
        with TemporaryDirectory(prefix="tiltmeter-") as folder:
            name = write_gold(trusted_path(folder), passed) if isinstance(passed, FunctionFile) else passed
            if lines := try_gold(load_gold(name), self.rows[:TRIED]):
                warn_user("\n".join(lines), 0)
        return passed if isinstance(passed, FunctionFile) else absolute_name(passed)

    @property
    def cost(self) -> str:
        """What each save costs, in words."""
        options = self._options
        if self.kind == "pairs":
            return f"{len(self.rows)} pairs of answers, scored by a process of its own on {options.device}"
        return (
            f"{len(self.rows)} prompts {self._source} x {options.answers} answers of at most {options.tokens} tokens, "
            f"by a process of its own on {options.device}"
        )

    def open(self, run: Run) -> None:
        """Leave what is asked in the run directory, and start the process. Raises `AttachError`."""
        if run.store is None or run.rank != 0:
            return
        self._run, self._attempt, self._starts = run.store, run.attempt, 0
        try:
            gold = write_gold(run.store.path, self._gold) if isinstance(self._gold, FunctionFile) else self._gold
            sampling = CheckpointSampling(
                name=EVALUATION, kind=self.kind, output=self._output, base=self._base, gold=gold,
                rows=tuple(self.rows), source=self._source, plain=self._plain, answers=self._options.answers,
                tokens=self._options.tokens, seed=self._options.seed,
            )  # fmt: skip
            write_sampling(run.store, run.attempt, _with_name(run.store, run.attempt, sampling))
            self._start()
        except (OSError, TypeError, ValueError) as error:
            raise AttachError(f"checkpoints cannot be asked: {error}") from error

    def record_save(self, step: int) -> None:
        """A checkpoint was saved; the process is started again if it has died."""
        if self._run is None:
            return
        write_save(self._run, self._attempt, step)
        if self._process is not None and self._process.poll() is not None and self._starts < STARTS:
            log.warning(
                "the process that asks checkpoints ended with %s; it is started again", self._process.returncode
            )
            self._start()

    def _start(self) -> None:
        assert self._run is not None
        self._starts += 1
        device = self._options.device
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": device.partition(":")[2] or "0" if device.startswith("cuda") else "",
        }  # fmt: skip
        lock = open_sampling_lock(self._run)
        log_file = open_file(self._run.path / "monitor.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            words = [sampler_module(), str(self._run.path), str(self._attempt), str(os.getpid())]
            # It inherits the lock, so that from here on whoever waits for it waits. A group of its own: Ctrl-C stops
            # training, and what is saved is still asked. No session of its own: where Linux shares the cores by
            # session, that would have as much of them as training, however nice it is.
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words], stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file,
                process_group=0, pass_fds=(lock,), env=environment,
            )  # fmt: skip
            threading.Thread(target=self._process.wait, name="tiltmeter-sampling-wait", daemon=True).start()
        finally:
            os.close(lock)
            os.close(log_file)


def _with_name(run: RunDirectory, attempt: int, sampling: CheckpointSampling) -> CheckpointSampling:
    """Under the name of an earlier attempt that asked the same, or under a new one: they are not to be compared."""
    from msgspec.structs import replace

    taken: set[str] = set()
    for earlier in range(attempt):
        try:
            one = read_sampling(run, earlier)
        except StoreError:
            continue  # that attempt was not judged
        if replace(one, base="", output="", seed=0) == replace(sampling, name=one.name, base="", output="", seed=0):
            return replace(sampling, name=one.name)
        taken.add(one.name)
    names = (f"{EVALUATION}_{number}" if number > 1 else EVALUATION for number in range(1, attempt + 2))
    return replace(sampling, name=next(name for name in names if name not in taken))


def _short_name(name: str) -> str:
    """A gold source as people name it: without its folders."""
    file, colon, function = name.rpartition(":") if ".py:" in name else (name, "", "")
    return f"{Path(file).name}{colon}{function}"


def _is_classifier(trainer: Any) -> bool:
    """Whether a reward model is trained: it says what an answer is worth, and answers nothing."""
    return "SequenceClassification" in type(_unwrapped(trainer)).__name__


def _unwrapped(trainer: Any) -> Any:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _trains_on_texts(trainer: Any) -> bool:
    """Whether the dataset holds plain texts, which TRL puts into no chat template."""
    row: Mapping[str, Any] = next(iter(trainer.train_dataset), {}) if trainer.train_dataset is not None else {}
    return not any(isinstance(row.get(name), list) for name in ("prompt", "messages", "chosen", "completion"))


def _base_folder(trainer: Any) -> str:
    """The folder of the model that training began with; empty if it is in none that could be loaded again."""
    named = str(getattr(_unwrapped(trainer).config, "_name_or_path", "") or "")
    if not named or Path(named).is_dir():
        return str(Path(named).absolute()) if named else ""
    try:
        from huggingface_hub import snapshot_download

        return str(snapshot_download(named, local_files_only=True))
    except (OSError, ValueError):  # it is not here, or is no name of the hub
        return ""


def _rows(trainer: Any, prompts: PromptSource, kind: str, options: SamplingOptions) -> tuple[list[dict[str, Any]], str]:
    """What checkpoints are asked, drawn at random, each prompt once; and where it is from, in words."""
    if prompts is not None:
        table, source = _own_rows(prompts), "of yours"
    else:
        table, source = _dataset_rows(trainer, options)
    end = str(getattr(trainer.processing_class, "eos_token", "") or "")
    order = np.random.default_rng(options.seed).permutation(len(table))
    rows: dict[str, dict[str, Any]] = {}
    for at in order:
        if (row := _pair_row(table[at], end) if kind == "pairs" else _prompt_row(table[at])) is not None:
            rows.setdefault(json.dumps(row["prompt"]) if kind == "answers" else json.dumps(row), row)
        if len(rows) == options.prompts:
            break
    if not rows:
        columns = ", ".join(sorted(table[0])) if table else "none"
        need = "prompt, chosen and rejected" if kind == "pairs" else "prompt or messages"
        raise AttachError(
            f"gold judges what is saved, and nothing says what to ask: the rows have {columns}, and {need} is needed; "
            'pass prompts=["...", ...], rows with a prompt, or a file of them (.jsonl)'
        )
    return list(rows.values()), source


def _own_rows(prompts: PromptSource) -> list[dict[str, Any]]:
    if isinstance(prompts, str | os.PathLike):
        try:
            lines: Iterable[Any] = [json.loads(line) for line in Path(prompts).read_text("utf-8").splitlines() if line]
        except (OSError, ValueError) as error:
            raise AttachError(f"prompts={str(prompts)!r} cannot be read as JSON lines: {error}") from error
    else:
        lines = list(prompts or ())
    return [{"prompt": one} if isinstance(one, str | list) else dict(one) for one in lines]


def _dataset_rows(trainer: Any, options: SamplingOptions) -> tuple[list[dict[str, Any]], str]:
    """Rows of the evaluation dataset, or of the one that is trained on; a part of a large one, drawn at random."""
    from datasets import Dataset

    held_out = trainer.eval_dataset
    held_out = next(iter(held_out.values()), None) if isinstance(held_out, Mapping) else held_out
    for dataset, source in ((held_out, "of the evaluation dataset"), (trainer.train_dataset, "that are trained on")):
        if isinstance(dataset, Dataset) and len(dataset):
            plain = dataset.with_format(None)
            many = min(len(plain), 8 * options.prompts)  # some may ask what another asks
            chosen = np.random.default_rng(options.seed).choice(len(plain), many, replace=False)
            return [plain[int(at)] for at in chosen], source
    return [], ""


def _prompt_row(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row with its prompt, a text or messages; None if it has none."""
    prompt = row.get("prompt")
    if prompt is None and isinstance(messages := row.get("messages"), list):
        last = max((at for at, turn in enumerate(messages) if turn.get("role") == "assistant"), default=len(messages))
        prompt = [{"role": turn["role"], "content": turn["content"]} for turn in messages[:last]]
    if not prompt or not isinstance(prompt, str | list):
        return None
    return {**_columns(row), "prompt": prompt}


def _pair_row(row: Mapping[str, Any], end: str) -> dict[str, Any] | None:
    """A row with two answers to a prompt, which may be what both conversations begin with.

    TRL's reward trainer writes into its dataset: the prompt before each answer, and the token for the end behind it.
    """
    chosen, rejected = row.get("chosen"), row.get("rejected")
    if not chosen or not rejected or chosen == rejected:
        return None
    prompt = row.get("prompt")
    if isinstance(chosen, str) and isinstance(rejected, str):
        chosen, rejected = (text.removesuffix(end) for text in (chosen, rejected))
    if prompt and all(isinstance(one, type(prompt)) and one[: len(prompt)] == prompt for one in (chosen, rejected)):
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if prompt is None and isinstance(chosen, list) and isinstance(rejected, list):
        pairs = zip(chosen, rejected, strict=False)
        same = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(chosen), len(rejected)))
        prompt, chosen, rejected = chosen[:same], chosen[same:], rejected[same:]
    return {**_columns(row), "prompt": prompt or "", "chosen": chosen, "rejected": rejected}


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that gold may want and JSON can write."""
    columns: dict[str, Any] = {}
    for name, value in row.items():
        if name in TRAINED_ON or name.endswith(("_ids", "_logps")):
            continue
        try:
            columns[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            continue
    return columns
