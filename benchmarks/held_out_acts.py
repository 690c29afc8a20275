"""Recall of acts on exploits that they were not written for, by kind and by language, and flags on the honest twins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from act_plants import Planted
from tiltmeter.acts import all_acts
from tiltmeter.data.batches import from_columns

EACH = 100


def acts_of(rows: list[Planted]) -> list[set[tuple[str, str]]]:
    """What is seen in each: kinds with their quotes."""
    batch = from_columns(0, list(range(len(rows))), messages=[row.messages for row in rows])
    return [{(act.kind, act.quote) for act in acts or ()} for acts in all_acts(batch)]


def measure(
    kinds: Iterable[str], pair: Callable[[str, int], tuple[Planted, Planted]], prefix: str, before: dict[str, float],
    form_of: Callable[[str, int], str], each: int = EACH,
) -> dict[str, Any]:  # fmt: skip
    """An exploit is seen if there is an act that its twin does not show; a twin is flagged if it shows any. `before`:
    recall by kind when nothing had been mended; empty for the first time. `form_of`: a plant's tool format."""
    table: list[dict[str, Any]] = []
    forms: dict[str, list[bool]] = {}
    flagged, of = 0, 0
    for kind in kinds:
        pairs = [pair(kind, seed) for seed in range(each)]
        bad, good = (acts_of([one[at] for one in pairs]) for at in (0, 1))
        seen = [one - two for one, two in zip(bad, good, strict=True)]
        for seed, acts in enumerate(seen):
            forms.setdefault(form_of(kind, seed), []).append(bool(acts))
        flags = sum(map(bool, good))
        table.append({
            "exploit": kind, "planted": each, "recall": round(sum(map(bool, seen)) / each, 4), "twins_flagged": flags,
            "held_out": before.get(kind),
            "acts": dict(Counter(act for one in seen for act in {name for name, _ in one}).most_common(4)),
        })  # fmt: skip
        flagged, of = flagged + flags, of + each
    recalls = [row["recall"] for row in table]
    return {
        f"{prefix}_min": min(recalls), f"{prefix}_mean": round(float(np.mean(recalls)), 4),
        f"{prefix}_kinds": len(table), f"{prefix}_planted": of, f"{prefix}_rows": table,
        f"{prefix}_by_kind": {row["exploit"]: row["recall"] for row in table},
        f"{prefix}_forms": [
            {"form": form, "planted": len(seen), "recall": round(sum(seen) / len(seen), 4)}
            for form, seen in sorted(forms.items())
        ],
        f"{prefix}_twins_flagged": flagged, f"{prefix}_false_share": round(flagged / of, 5),
    }  # fmt: skip
