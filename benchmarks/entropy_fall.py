"""How often the warning of a steady fall of entropy comes on runs that had no part in its level.

    python benchmarks/entropy_fall.py [--runs N] [--data PATH] [--json] [--write]

Held-out families of the proving ground, the recorded runs of the tiny language model (TRL's own entropy per token), and
public logs of others (`rl_logs_reward_hacking_entropy`: segments of 25 to 50 steps; none is known to be healthy, and in
all of them a proxy is trained on). `lowest_left`: of the runs, the smallest part of its entropy that one ended with.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from real_logs import DATA, number, rows
from record import record, show
from tiltmeter.data.records import Reading
from tiltmeter.detectors import BUILTIN
from tiltmeter.detectors.decline import Decline
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_lab.simulate import simulate
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.scenarios import scenario
from tiltmeter_lab.worlds.families import split

SHORTEST = 25  # readings, below which the warning says nothing
LOGS = "rl_logs_reward_hacking_entropy"


def is_warned(values: Iterable[float]) -> bool:
    """Whether the built-in warning comes on a run with this entropy."""
    (part,) = (part for part in (make() for make in BUILTIN) if isinstance(part, Decline))
    return any(part.update(Reading(0, t, part.readings[0], float(value), 512)) for t, value in enumerate(values))


def row(name: str, series: Sequence[Sequence[float]]) -> dict[str, Any]:
    warned = sum(is_warned(values) for values in series)
    left = [sum(values[-5:]) / sum(values[:5]) for values in series]
    return {
        "runs_of": name,
        "runs": len(series),
        "warned": warned,
        "upper95": round(upper_bound(warned, len(series)), 3),
        "lowest_left": round(min(left), 2),
    }


def simulated(kind: str, runs: int) -> list[dict[str, Any]]:
    families, updates = split("heldout")
    return [
        row(
            f"{family.name} ({kind})",
            [
                simulate(family.world(41, run, updates[run % len(updates)]), 1000 + run).entropy.tolist()
                for run in range(runs)
            ],
        )
        for family in families
        if family.kind == kind
    ]


def recorded() -> list[dict[str, Any]]:
    found = defaultdict(list)
    for name, run in load_packed().items():
        found[scenario(name.rpartition("-")[0]).kind].append(run["entropy"].astype(float).tolist())
    return [row(f"tiny language model ({kind})", series) for kind, series in found.items()]


def logged(data: Path) -> list[dict[str, Any]]:
    segments = defaultdict(list)
    for line in rows(data / LOGS, "train_metrics"):
        if line["policy_entropy"]:
            segments[line["run"], line["segment"]].append(number(line["policy_entropy"]))
    return [row("public logs", [values for values in segments.values() if len(values) >= SHORTEST])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each held-out family")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    runs = 2 if args.quick else args.runs
    benign = simulated("benign", runs)
    table = [*benign, *simulated("hack", runs), *recorded(), *(logged(args.data) if args.data.is_dir() else [])]
    healthy = [line for line in table if "benign" in line["runs_of"]]
    warned, count = (sum(line[name] for line in healthy) for name in ("warned", "runs"))
    figures = {
        "entropy_falls": table,
        "healthy_runs": count,
        "healthy_warned": warned,
        "healthy_upper95": round(upper_bound(warned, count), 3),
    }
    result = record("entropy_fall", figures, seed=args.seed, keep=args.write and not args.quick)
    show(result, as_json=args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
