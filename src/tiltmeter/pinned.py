"""Pinned prompts: what the policy says to the same few prompts as the run goes on, one small file per look.

A look comes from an evaluation that the trainer makes anyway, or later from a saved checkpoint; training is never asked
to generate for it. Files are JSON in ASCII, which keeps any text exactly, lone surrogates included.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tiltmeter.batches import from_columns
from tiltmeter.durable import entries, publish, sync_folder
from tiltmeter.errors import StoreError
from tiltmeter.store import RunDirectory

PROMPTS = 32  # in one file
TEXT_BYTES = 16 * 1024  # of UTF-8 per text; the first and last half of a longer one are kept
SOURCE_CHARACTERS = 300
FILE_BYTES = 8 << 20  # 32 prompts and completions at their limit, with every byte as an escape of six, and some room

EVALUATION, CHECKPOINT = "evaluation", "checkpoint"

_FILE = re.compile(r"([0-9]{1,9})-([0-9]{1,15})(-checkpoint)?\.json")


@dataclass(frozen=True, slots=True)
class Said:
    """One prompt, and what the policy answered."""

    prompt: str
    completion: str
    reward: float | None = None  # None: nobody scored it
    gold: float | None = None


class Place(NamedTuple):
    """Where a look is stored; what its name says, before anything in it is trusted."""

    step: int
    attempt: int
    checkpoint: bool
    path: Path


@dataclass(frozen=True, slots=True)
class Pins:
    """What the policy said to the pinned prompts at one step. `source` is `evaluation`, or `checkpoint NAME`.

    >>> Pins(0, 40, "evaluation", (Said("2 + 2?", "4"),)).file, Pins(0, 40, "checkpoint model-40", ()).file
    ('0-000040.json', '0-000040-checkpoint.json')
    """

    attempt: int
    step: int
    source: str
    rows: tuple[Said, ...]

    @property
    def checkpoint(self) -> bool:
        return self.source != EVALUATION

    @property
    def file(self) -> str:
        # A name of its own, because an evaluation and a checkpoint of one step are both worth keeping.
        return f"{self.attempt}-{self.step:06d}{'-checkpoint' if self.checkpoint else ''}.json"


def pins(
    attempt: int,
    step: int,
    source: str,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    rewards: Sequence[Any] | None = None,
    gold: Sequence[Any] | None = None,
) -> Pins:
    """What a trainer has at hand, cleaned: of each prompt the first completion, of more than 32 prompts the first.

    Texts may be chats, as in `observe`; a score that is no number is left out.

    >>> made = pins(0, 5, "evaluation", ["a", "a", "b"], ["one", "two", "three"], [None, 1, 2])
    >>> [(row.prompt, row.completion, row.reward) for row in made.rows]
    [('a', 'one', None), ('b', 'three', 2.0)]
    """
    if step < 0:
        raise ValueError(f"step {step}: steps count from 0")
    batch = from_columns(
        step, range(len(prompts)), prompt=list(prompts), completion=list(completions), reward=rewards, gold=gold
    )
    scores = [batch.reward, batch.gold]
    assert batch.prompt is not None and batch.completion is not None
    rows: dict[str, Said] = {}
    for row, (prompt, completion) in enumerate(zip(batch.prompt, batch.completion, strict=True)):
        if prompt is not None and completion is not None and len(rows) < PROMPTS:
            told = [None if column is None else _finite(float(column[row])) for column in scores]
            rows.setdefault(prompt, Said(cut(prompt), cut(completion), *told))
    if not rows:
        raise ValueError("no prompt has a completion: pass prompts= and completions=, one of each per row")
    return Pins(attempt, step, source[:SOURCE_CHARACTERS], tuple(rows.values()))


def keep(run: RunDirectory, made: Pins) -> Path:
    """Store a look, once. Raises `FileExistsError` if that step has one from there already: the first stands."""
    folder = run.path / "pinned"
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync_folder(run.path)
    rows: list[dict[str, object]] = []
    for said in made.rows:
        rows.append({"prompt": said.prompt, "completion": said.completion})
        rows[-1] |= {} if said.reward is None else {"reward": said.reward}
        rows[-1] |= {} if said.gold is None else {"gold": said.gold}
    facts = {"attempt": made.attempt, "step": made.step, "source": made.source, "time": time.time(), "rows": rows}
    publish(folder / made.file, [json.dumps(facts, allow_nan=False).encode()])
    return folder / made.file


def listed(run: RunDirectory) -> list[Place]:
    """Every look by its name, in step order, of all attempts; nothing is opened."""
    named = [(_FILE.fullmatch(entry.name), entry) for entry in entries(run.path / "pinned") if entry.is_file()]
    return sorted(
        Place(int(match[2]), int(match[1]), match[3] is not None, Path(entry.path)) for match, entry in named if match
    )


def read(place: Place) -> Pins:
    """A stored look. Raises `StoreError` for a file that is damaged, too large or not what its name says."""
    try:
        with place.path.open("rb") as file:
            text = file.read(FILE_BYTES + 1)
        if len(text) > FILE_BYTES:
            raise ValueError(f"more than {FILE_BYTES} bytes")
        facts = json.loads(text)
        rows = facts["rows"]
        if not isinstance(rows, list) or not 0 < len(rows) <= PROMPTS:
            raise ValueError(f"not a list of 1 to {PROMPTS} rows")
        source = _text(facts["source"], SOURCE_CHARACTERS)
        found = Pins(place.attempt, place.step, source, tuple(_said(row) for row in rows))
        if (facts["attempt"], facts["step"], found.checkpoint) != (place.attempt, place.step, place.checkpoint):
            raise ValueError("it holds another look than its name says")
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{place.path} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    return found


def cut(text: str) -> str:
    """The text within the limit: the first and last half of a longer one, and between them how much is left out."""
    whole = text.encode("utf-8", "surrogatepass")
    if len(whole) <= TEXT_BYTES:
        return text
    half = TEXT_BYTES // 2 - 32  # room for the words in between
    head, tail = half, len(whole) - half
    while whole[head] & 0xC0 == 0x80:  # back to a code point's first byte
        head -= 1
    while whole[tail] & 0xC0 == 0x80:
        tail += 1
    before, after = (part.decode("utf-8", "surrogatepass") for part in (whole[:head], whole[tail:]))
    return f"{before}\n[... {len(text) - len(before) - len(after)} characters left out ...]\n{after}"


def _said(row: Any) -> Said:
    prompt, completion = (_text(row[name], TEXT_BYTES) for name in ("prompt", "completion"))
    return Said(prompt, completion, _score(row, "reward"), _score(row, "gold"))


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"not a text of at most {most} characters")
    return value


def _score(row: Any, name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} is no finite number")
    return float(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
