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
from tiltmeter_workbench.common.table_files import need_columns, parse_number, read_rows
from tiltmeter_workbench.stats.reweighting import SampleTable, label_chances

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def read_sheet(path: str | Path, names: Mapping[str, str]) -> tuple[SampleTable, list[dict[str, Any]], list[str]]:
    """Samples of a table by the names of its columns: prompt, score, gold, chance. With the rows, and what to note.

    A score that is no number leaves its row out. Without a column of chances labels count as evenly drawn.
    """
    rows = read_rows(path, '{"prompt": "...", "score": 1.7, "gold": 1}')
    need_columns(path, rows, names["prompt"], names["score"])
    scores = [parse_number(row.get(names["score"])) for row in rows]
    scored_rows = [row for row, score in zip(rows, scores, strict=True) if math.isfinite(score)]
    notes = (
        [f"{len(rows) - len(scored_rows)} rows without a score are left out"] if len(scored_rows) < len(rows) else []
    )
    gold = [parse_number(row.get(names["gold"])) for row in scored_rows]
    unreadable = sum(
        row.get(names["gold"]) not in (None, "")
        for row, gold_values in zip(scored_rows, gold, strict=True)
        if not math.isfinite(gold_values)
    )
    if unreadable:
        notes.append(f"{unreadable} rows have a {names['gold']} that is no finite number: they count as not labelled")
    chances = [parse_number(row.get(names["chance"])) for row in scored_rows]
    has_chances = any(math.isfinite(chance) for chance in chances)
    if has_chances and not all(0.0 < c <= 1.0 for c, g in zip(chances, gold, strict=True) if math.isfinite(g)):
        raise AttachError(f"{path}: every labelled row needs a {names['chance']} above 0 and at most 1")
    groups: dict[str, list[int]] = {}
    for at, row in enumerate(scored_rows):
        groups.setdefault(str(row.get(names["prompt"])), []).append(at)
    width = max(map(len, groups.values()), default=0)
    score, gold_values, chance = (np.full((len(groups), width), np.nan) for _ in range(3))
    for line, members in enumerate(groups.values()):
        score[line, : len(members)] = [parse_number(scored_rows[at][names["score"]]) for at in members]
        gold_values[line, : len(members)] = [gold[at] for at in members]
        chance[line, : len(members)] = [chances[at] for at in members]
    if not has_chances:
        chance = even_chances(score, gold_values)
        if np.isfinite(gold_values).sum() < np.isfinite(score).sum():
            notes.append(f"no column {names['chance']!r}: the labelled samples count as drawn evenly from all")
    ordered = [scored_rows[at] for members in groups.values() for at in members]
    return SampleTable(score, gold_values, chance), ordered, notes


def even_chances(score: Floats, gold: Floats) -> Floats:
    """One chance for all: the labelled share."""
    scored = int(np.isfinite(score).sum())
    return np.full(score.shape, max(int(np.isfinite(gold).sum()), 1) / max(scored, 1))


def choose_samples(sheet: SampleTable, labels: int, seed: int) -> tuple[Flags, Floats]:
    """Which samples to have labelled, and the chance each had: half evenly, half towards the best of 16."""
    chances = label_chances(sheet, labels)
    # A stream of its own: samples that were drawn with the same seed must not meet the same numbers again.
    rng = np.random.default_rng([seed, zlib.crc32(b"which samples to label")])
    return np.asarray(rng.random(chances.shape) < chances, np.bool_), chances
