"""Joins the rows of a dataset (answers, tests, sources) to rollouts by prompt: trainers store no such columns."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from tiltmeter.audit.label_file import SUFFIXES, table_rows
from tiltmeter.data.batches import plain_text
from tiltmeter.data.dataset_facts import from_text, to_text
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.safety.safe_text import log_line

#: Columns that hold what a policy is asked, best first; `--on` names another.
PROMPT_COLUMNS = ("prompt", "question", "problem", "query", "instruction", "input")
ANCHOR = 24  # characters of a prompt by which it is looked for inside another
MOST_ROWS = 4_000_000
HUB = "hf:"


@dataclass(frozen=True)
class DatasetRows:
    """What a dataset holds beside its prompts, by prompt.

    A prompt is found as it stands, or inside the text that a chat template has made of it, where it is the longest of
    the dataset's prompts that occurs there as a whole. Prompts that stand for rows with different facts join nothing.

    >>> rows = DatasetRows.of("tasks", "prompt", [{"prompt": "What is 2+2?", "answer": "4"}])
    >>> rows.lookup("What is 2+2?"), rows.lookup("user\\nWhat is 2+2?\\nassistant\\n"), rows.lookup("What is 2+3?")
    ('{"answer":"4"}', '{"answer":"4"}', None)
    """

    name: str
    on: str
    facts: Mapping[str, str | None]  # by prompt; None: rows with different facts have it
    sample: tuple[Mapping[str, Any], ...] = ()  # some rows, to look for gold in
    digest: str = ""
    _anchors: Mapping[int, Mapping[str, Sequence[str]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, name: str, on: str, rows: Iterable[Mapping[str, Any]]) -> DatasetRows:
        facts: dict[str, str | None] = {}
        sample: list[Mapping[str, Any]] = []
        digest = blake2b(on.encode(), digest_size=12)
        for row in rows:
            prompt = _words(_question(row.get(on)))
            if not prompt:
                continue
            text = to_text({key: value for key, value in row.items() if key != on and value is not None})
            digest.update(f"{prompt}\n{text}\n".encode("utf-8", "surrogatepass"))
            facts[prompt] = text if facts.get(prompt, text) == text else None
            if len(sample) < 64:
                sample.append({"prompt": row.get(on), **{key: value for key, value in row.items() if key != on}})
        anchors: dict[int, dict[str, list[str]]] = {}
        for prompt in facts:
            start = prompt[:ANCHOR]
            anchors.setdefault(len(start), {}).setdefault(start, []).append(prompt)
        return cls(name, on, facts, tuple(sample), digest.hexdigest(), anchors)

    def lookup(self, prompt: str | None) -> str | None:
        """The facts of a prompt as JSON text; None where the dataset has no row for it, or several."""
        text = _words(prompt)
        return self.facts[text] if text in self.facts else self.facts.get(self._inside(text) or "")

    def _inside(self, text: str) -> str | None:
        """The longest prompt of the dataset that stands in a text, not as a part of a word."""
        best = ""
        for size, starts in self._anchors.items():
            for at in range(len(text) - size + 1):
                for prompt in starts.get(text[at : at + size], ()):
                    end = at + len(prompt)
                    whole = not text[at - 1 : at].isalnum() and not text[end : end + 1].isalnum()
                    if len(prompt) > len(best) and whole and text.startswith(prompt, at):
                        best = prompt
        return best or None

    def join(self, batch: RolloutBatch) -> RolloutBatch:
        """The batch with these facts beside its own."""
        if batch.prompt is None:
            return batch
        matches = {prompt: self.lookup(prompt) for prompt in set(batch.prompt)}
        before = batch.facts or (None,) * len(batch)
        facts = [_merge(matches[prompt], old) for prompt, old in zip(batch.prompt, before, strict=True)]
        return replace(batch, facts=tuple(facts))

    def count(self, batch: RolloutBatch) -> int:
        matches = {prompt: self.lookup(prompt) is not None for prompt in set(batch.prompt or ())}
        return sum(matches[prompt] for prompt in batch.prompt or ())


def open_dataset(name: str, on: str = "") -> DatasetRows:
    """The rows of a CSV, JSONL or Parquet file, of a folder that `datasets` saved, or of `hf:OWNER/NAME[:SPLIT]`."""
    path = Path(name)
    if name.startswith(HUB) or (not path.exists() and name.count("/") == 1):
        rows = _hub_rows(name.removeprefix(HUB))
    elif path.is_dir():
        rows = _saved_rows(path)
    elif path.name.endswith(SUFFIXES):
        rows = table_rows(path)
    else:
        raise StoreError(
            f"{path}: a dataset is one of {', '.join(SUFFIXES)}, a folder that was saved, or hf:OWNER/NAME"
        )
    try:
        listed = list(islice(rows, MOST_ROWS + 1))
    except (OSError, ValueError, TypeError, RecursionError, EOFError, csv.Error, zlib.error) as error:
        raise StoreError(f"{name} cannot be read as a dataset: {type(error).__name__}: {str(error)[:200]}") from error
    if not listed or len(listed) > MOST_ROWS:
        raise StoreError(f"{name} has {'no rows' if not listed else f'more than {MOST_ROWS:,} rows'}: name another")
    columns = list(dict.fromkeys(key for row in listed[:50] for key in row))
    column = on or next((one for one in PROMPT_COLUMNS if one in columns), "")
    if column not in columns:
        shown = ", ".join(log_line(str(one), 60) for one in columns[:30])
        raise StoreError(f"{name}: no column {log_line(on, 60) or 'of prompts'}; name it: --on COLUMN, one of {shown}")
    dataset = DatasetRows.of(log_line(path.name if path.exists() else name, 80), column, listed)
    if not any(dataset.facts.values()):
        raise StoreError(f"{name}: {column!r} tells no two rows apart, or nothing stands beside it: name another --on")
    return dataset


def _hub_rows(name: str) -> Iterable[Mapping[str, Any]]:
    owner, _, split = name.partition(":")
    datasets = _datasets_package()
    try:
        # Code that a repository brings along is never run.
        loaded: Iterable[Mapping[str, Any]] = datasets.load_dataset(owner, split=split or "train").with_format(None)
    except Exception as error:
        why = log_line(f"{type(error).__name__}: {error}", 200)
        raise StoreError(f"hf:{owner} cannot be loaded ({why}); hf:OWNER/NAME:SPLIT names a split") from error
    return loaded


def _saved_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    datasets = _datasets_package()
    try:
        loaded: Any = datasets.load_from_disk(str(path))
    except Exception as error:
        why = log_line(f"{type(error).__name__}: {error}", 200)
        raise StoreError(f"{path} is no folder that `datasets` saved ({why})") from error
    return loaded["train"] if isinstance(loaded, Mapping) else loaded  # type: ignore[no-any-return]


def _datasets_package() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise AttachError("this needs the package datasets: pip install 'tiltmeter[trl]'") from error
    return datasets


def _question(value: object) -> str | None:
    """What a dataset asks: of a conversation, what the user says last, because templates change what is around it."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(message, Mapping) for message in value):
        questions = [message.get("content") for message in value if message.get("role") == "user"]
        return plain_text(questions[-1] if questions else value)
    return plain_text(value)


def _words(text: str | None) -> str:
    return " ".join((text or "").split())


def _merge(new: str | None, old: str | None) -> str | None:
    if new is None or old is None:
        return new or old
    return to_text({**from_text(new), **from_text(old)})
