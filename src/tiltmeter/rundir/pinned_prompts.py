"""Pinned prompts: the policy's completions for a fixed set of prompts over the run, one JSON file per snapshot.

A snapshot comes from an evaluation the trainer does anyway, or later from a saved checkpoint; training never generates
extra completions for it. Files are JSON in ASCII, which keeps any text exactly, lone surrogates included.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta, Struct, to_builtins

from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.run_path import entries, make_folder
from tiltmeter.rundir.sidecar import Count, read_sidecar, refuse, write_sidecar
from tiltmeter.rundir.store import RunDirectory

PROMPTS = 32  # in one file
ROWS = 100_000  # of one evaluation that are looked at
TEXT_BYTES = 16 * 1024  # of UTF-8 per text; the first and last half of a longer one are kept
SOURCE_CHARACTERS = 300
FILE_BYTES = 8 << 20  # 32 prompts and completions at their limit, with every byte as an escape of six, and some room

EVALUATION, CHECKPOINT = "evaluation", "checkpoint"

_FILE = re.compile(r"([0-9]{1,9})-([0-9]{1,15})(-checkpoint)?\.json")


PinnedText: TypeAlias = Annotated[str, Meta(max_length=TEXT_BYTES)]


class PinnedCompletion(Struct, frozen=True, omit_defaults=True):
    """One prompt and the policy's completion."""

    prompt: PinnedText
    completion: PinnedText
    reward: float | None = None  # None: nobody scored it
    gold: float | None = None


class SnapshotFile(NamedTuple):
    """Where a snapshot is stored; step, attempt and source as its file name says, before its content is trusted."""

    step: int
    attempt: int
    checkpoint: bool
    path: Path


class PinnedSnapshot(Struct, frozen=True):
    """The completions for the pinned prompts at one step. `source` is `evaluation`, or `checkpoint NAME`.

    >>> PinnedSnapshot(0, 40, "evaluation", (PinnedCompletion("2 + 2?", "4"),)).file
    '0-000040.json'
    >>> PinnedSnapshot(0, 40, "checkpoint model-40", ()).file
    '0-000040-checkpoint.json'
    """

    attempt: Count
    step: Count
    source: Annotated[str, Meta(max_length=SOURCE_CHARACTERS)]
    rows: Annotated[tuple[PinnedCompletion, ...], Meta(min_length=1, max_length=PROMPTS)]

    @property
    def checkpoint(self) -> bool:
        return self.source != EVALUATION

    @property
    def file(self) -> str:
        # A separate name, because a step may have both an evaluation and a checkpoint.
        return f"{self.attempt}-{self.step:06d}{'-checkpoint' if self.checkpoint else ''}.json"


def make_snapshot(
    attempt: int,
    step: int,
    source: str,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    rewards: Sequence[Any] | None = None,
    gold: Sequence[Any] | None = None,
) -> PinnedSnapshot:
    """Build a snapshot: the first completion of each prompt, for the first 32 prompts.

    Texts may be chats, as in `observe`; a score that is no number is left out.

    >>> snapshot = make_snapshot(0, 5, "evaluation", ["a", "a", "b"], ["one", "two", "three"], [None, 1, 2])
    >>> [(row.prompt, row.completion, row.reward) for row in snapshot.rows]
    [('a', 'one', None), ('b', 'three', 2.0)]
    """
    if step < 0:
        raise ValueError(f"step {step}: steps count from 0")
    if len(prompts) > ROWS:
        raise ValueError(f"{len(prompts):,} prompts: pass the same few each time")
    batch = from_columns(step, range(len(prompts)), prompt=prompts, completion=completions, reward=rewards, gold=gold)
    scores = [batch.reward, batch.gold]
    assert batch.prompt is not None and batch.completion is not None
    rows: dict[str, PinnedCompletion] = {}
    for row, (prompt, completion) in enumerate(zip(batch.prompt, batch.completion, strict=True)):
        if prompt is not None and completion is not None and len(rows) < PROMPTS:
            row_scores = [None if column is None else _finite(float(column[row])) for column in scores]
            rows.setdefault(prompt, PinnedCompletion(shorten(prompt), shorten(completion), *row_scores))
    if not rows:
        raise ValueError("no prompt has a completion: pass prompts= and completions=, one of each per row")
    return PinnedSnapshot(attempt, step, source[:SOURCE_CHARACTERS], tuple(rows.values()))


def write_snapshot(run: RunDirectory, snapshot: PinnedSnapshot) -> Path:
    """Store a snapshot. Raises `FileExistsError` if that step has one from this source: the first one is kept."""
    path = make_folder(run.path, "pinned") / snapshot.file
    write_sidecar(path, to_builtins(snapshot) | {"time": time.time()})
    return path


def list_snapshots(run: RunDirectory) -> list[SnapshotFile]:
    """Every snapshot file in step order, of all attempts; no file is opened."""
    matches = [(_FILE.fullmatch(entry.name), entry) for entry in entries(run.path / "pinned") if entry.is_file()]
    return sorted(
        SnapshotFile(int(match[2]), int(match[1]), match[3] is not None, run.path / "pinned" / entry.name)
        for match, entry in matches
        if match
    )


def read_snapshot(location: SnapshotFile) -> PinnedSnapshot:
    """A stored snapshot. Raises `StoreError` for a file that is damaged, too large or not what its name says."""
    snapshot = read_sidecar(location.path, PinnedSnapshot, FILE_BYTES)
    if (snapshot.step, snapshot.attempt, snapshot.checkpoint) != location[:3]:
        raise refuse(location.path, "it holds another look than its name says")
    return snapshot


def shorten(text: str) -> str:
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
