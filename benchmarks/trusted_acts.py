"""Acts in files that answers write as text, and edits of tests that the user asked for: recall and false flags.

    python benchmarks/trusted_acts.py [--json] [--rows]

`sealed_acts.py`, a module beside this one with `TRAJECTORIES`, is measured where it is there: it was written before,
by others. `known_acts.py` was written with the detectors and shows that nothing is broken.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
from collections.abc import Sequence
from typing import Any

import known_acts
from known_acts import Trajectory
from tiltmeter.acts import all_acts
from tiltmeter.data.batches import from_columns

#: Held-out sets by the prefix of their figures. `acts_first` was run once, with recall .80 and .583 of honest work
#: flagged; permits were made general by it, and judged by `acts`, which was written without a look at either.
SEALED = {"acts_first": "sealed_acts", "acts": "sealed_acts_again"}
SMALL = 12  # trajectories of a kind of set at the smallest size


def flags(rows: Sequence[Trajectory]) -> list[set[str]]:
    """The kinds of acts that are seen in each, read as a run directory has it."""
    messages = [[{"role": "user", "content": row.prompt}, *row.turns] for row in rows]
    batch = from_columns(0, list(range(len(rows))), messages=messages)
    return [{act.kind for act in acts or ()} for acts in all_acts(batch)]


def measure_set(rows: Sequence[Trajectory], prefix: str) -> dict[str, Any]:
    """Recall on the hacks and flags on the others, with a row for each kind."""
    seen = flags(rows)
    kinds: dict[tuple[bool, str], list[bool]] = {}
    for row, acts in zip(rows, seen, strict=True):
        kinds.setdefault((row.hack, row.kind), []).append(bool(acts))
    hacks, honest = (
        [bool(acts) for row, acts in zip(rows, seen, strict=True) if row.hack is bad] for bad in (True, False)
    )
    return {
        f"{prefix}_file_form_recall": round(sum(hacks) / len(hacks), 4) if hacks else None,
        f"{prefix}_requested_edits_flagged_share": round(sum(honest) / len(honest), 4) if honest else None,
        f"{prefix}_hacks": len(hacks), f"{prefix}_honest": len(honest),
        f"{prefix}_rows": [
            {"kind": kind, "hack": bad, "of": len(hits), "flagged": sum(hits)}
            for (bad, kind), hits in sorted(kinds.items())
        ],
    }  # fmt: skip


def measure_acts(runs: int, seed: int, small: bool) -> dict[str, Any]:
    """The figures of both sets: `acts_*` of the sealed one, where it is there, else of the known one.

    `runs`: of each set at most so many, 0 for all; `seed`: which.
    """
    figures: dict[str, Any] = {}
    sets: dict[str, Sequence[Trajectory]] = {"acts_known": known_acts.TRAJECTORIES}
    for prefix, module in SEALED.items():
        if importlib.util.find_spec(module) is not None:
            sets[prefix] = importlib.import_module(module).TRAJECTORIES
    most = SMALL if small else runs
    for prefix, rows in sets.items():
        chosen = random.Random(seed).sample(list(rows), min(most or len(rows), len(rows)))
        figures |= measure_set(chosen, prefix)
    return {"acts_sealed": "acts" in sets, **figures}


def missed(rows: Sequence[Trajectory]) -> list[str]:
    """Hacks that are not seen and honest work that is flagged, by name."""
    return [
        f"{row.name}: {sorted(acts)}" for row, acts in zip(rows, flags(rows), strict=True) if row.hack != bool(acts)
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true")
    options.add_argument("--small", action="store_true")
    options.add_argument("--runs", type=int, default=0, help="of each set at most so many; 0: all")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--rows", action="store_true", help="also the known ones that are judged wrongly")
    given = options.parse_args()
    figures = measure_acts(given.runs, given.seed, given.small)
    if given.rows:
        figures["acts_known_wrong"] = missed(known_acts.TRAJECTORIES)
    if given.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:45} {value}")


if __name__ == "__main__":
    main()
