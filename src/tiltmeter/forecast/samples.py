"""Samples of the reference with scores and a few labels: read from a table, and which of them to have labelled."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter.rows import need_columns, number, read_rows
from tiltmeter.stats.reweighting import Sheet, label_chances

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def read_sheet(path: str | Path, names: Mapping[str, str]) -> tuple[Sheet, list[dict[str, Any]], list[str]]:
    """Samples of a table by the names of its columns: prompt, score, gold, chance. With the rows, and what to note.

    A score that is no number leaves its row out. Without a column of chances labels count as evenly drawn.
    """
    rows = read_rows(path, '{"prompt": "...", "score": 1.7, "gold": 1}')
    need_columns(path, rows, names["prompt"], names["score"])
    scores = [number(row.get(names["score"])) for row in rows]
    kept = [row for row, score in zip(rows, scores, strict=True) if math.isfinite(score)]
    notes = [f"{len(rows) - len(kept)} rows without a score are left out"] if len(kept) < len(rows) else []
    gold = [number(row.get(names["gold"])) for row in kept]
    unread = sum(
        row.get(names["gold"]) not in (None, "")
        for row, worth in zip(kept, gold, strict=True)
        if not math.isfinite(worth)
    )
    if unread:
        notes.append(f"{unread} rows have a {names['gold']} that is no finite number: they count as not labelled")
    chances = [number(row.get(names["chance"])) for row in kept]
    told = any(math.isfinite(chance) for chance in chances)
    if told and not all(0.0 < c <= 1.0 for c, g in zip(chances, gold, strict=True) if math.isfinite(g)):
        raise AttachError(f"{path}: every labelled row needs a {names['chance']} above 0 and at most 1")
    groups: dict[str, list[int]] = {}
    for at, row in enumerate(kept):
        groups.setdefault(str(row.get(names["prompt"])), []).append(at)
    width = max(map(len, groups.values()), default=0)
    score, worth, chance = (np.full((len(groups), width), np.nan) for _ in range(3))
    for line, members in enumerate(groups.values()):
        score[line, : len(members)] = [number(kept[at][names["score"]]) for at in members]
        worth[line, : len(members)] = [gold[at] for at in members]
        chance[line, : len(members)] = [chances[at] for at in members]
    if not told:
        chance = even_chances(score, worth)
        if np.isfinite(worth).sum() < np.isfinite(score).sum():
            notes.append(f"no column {names['chance']!r}: the labelled samples count as drawn evenly from all")
    ordered = [kept[at] for members in groups.values() for at in members]
    return Sheet(score, worth, chance), ordered, notes


def even_chances(score: Floats, gold: Floats) -> Floats:
    """One chance for all: the labelled share."""
    scored = int(np.isfinite(score).sum())
    return np.full(score.shape, max(int(np.isfinite(gold).sum()), 1) / max(scored, 1))


def chosen(sheet: Sheet, labels: int, seed: int) -> tuple[Flags, Floats]:
    """Which samples to have labelled, and the chance each had: half evenly, half towards the best of 16."""
    chances = label_chances(sheet, labels)
    # A stream of its own: samples that were drawn with the same seed must not meet the same numbers again.
    rng = np.random.default_rng([seed, zlib.crc32(b"which samples to label")])
    return np.asarray(rng.random(chances.shape) < chances, np.bool_), chances
