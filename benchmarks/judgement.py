"""The judgement as a whole: is it calm over trouble, loud over health, and do its numbers agree?

    python benchmarks/judgement.py [--part NAME,NAME] [--names KIND,KIND] [--runs N] [--seed N] [--quick] [--json]
                                   [--write]

Measured against the truth of each simulated run, which no instrument sees: `troubles` plays 25 troubled and 15 healthy
kinds through the public API, and counts exit code 0 over a trouble and ACT or WATCH over health; `own` does so with the
sealed kinds; `healthy_share` how soon labels exclude a loss in healthy runs, and how often wrongly; `slices` whether a
hacked environment of twelve is named, and healthy ones never; `curricula` false alarms where prompts change; `onset`
whether the interval has the true turn, and gold at the checkpoint to go back to; `surfaces` how many numbers of gold,
onset, checkpoint and odds differ from the verdict's; `tiny` the tiny language model. `NAME_of` is the number of runs
that NAME stands on. `--runs` is the size of each part named, `--quick` the smallest. `--write` puts these parts into
the record and keeps the others as they were measured, each with its revision; a part never run has no figure.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from judged_runs import count_own, count_troubles
from record import ORIGIN, RESULTS, record, revision, show


class Part(NamedTuple):
    measure: Callable[..., Mapping[str, object]]
    runs: int
    least: int  # runs of the smallest size


PARTS = {
    "troubles": Part(count_troubles, 3, 1),
    "own": Part(count_own, 1, 1),
}
DEAR = ("tiny",)  # only where it is named


def recorded() -> dict[str, Any]:
    path = RESULTS / "judgement.json"
    return json.loads(path.read_text()) if path.exists() else {}


def merge(old: Mapping[str, Any], new: Mapping[str, Mapping[str, object]], origin: Mapping[str, object]) -> Any:
    """The old figures without those of the parts measured anew, and these."""
    parts = dict(old.get("parts", {}))
    gone = {figure for name in new for figure in parts.get(name, {}).get("figures", ())}
    figures = {key: value for key, value in old.items() if key not in {*ORIGIN, "parts", *gone}}
    for name, measured in new.items():
        figures |= measured
        parts[name] = {**origin, "figures": list(measured)}
    return {**figures, "parts": parts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", help="names with commas between; default: all but the dear ones")
    parser.add_argument("--names", default="", help="kinds of the parts `troubles` and `own`, with commas between")
    parser.add_argument("--runs", type=int, help="of each part; default: its own size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record in benchmarks/results/judgement.json")
    options = parser.parse_args()
    chosen = options.part.split(",") if options.part else [name for name in PARTS if name not in DEAR]
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if options.write and options.names:
        parser.error("a record has every kind: leave out --names or --write")
    names = [name for name in options.names.split(",") if name]
    measured, sizes = dict[str, Mapping[str, object]](), dict[str, int]()
    for name in chosen:
        part = PARTS[name]
        sizes[name] = options.runs or (part.least if options.quick else part.runs)
        more = {"names": names} if "names" in inspect.signature(part.measure).parameters else {}
        measured[name] = part.measure(sizes[name], options.seed, options.quick, **more)
    figures: dict[str, Any] = recorded() if options.write else {}
    for name, one in measured.items():
        origin = {"revision": revision(), "runs": sizes[name], "seed": options.seed}
        figures = merge(figures, {name: one}, origin)
    show(record("judgement", figures, seed=options.seed, keep=options.write), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
