"""What each part of the alarm buys: variants of sampler and bets on the same development runs and labels.

    python benchmarks/variants.py [--runs 24] [--json]

A variant changes constants of `gold/sampler.py` and `stats/wealth.py`, or replaces the bet. Held-out families have no
part in it. Smooth development hacks; α = 1 % per run, 2 % of rollouts labelled; a miss counts as all that was lost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from record import record
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.gold import sampler
from tiltmeter.stats import wealth
from tiltmeter.stats.sequential import SequentialTest
from tiltmeter_lab import watch_run as watching
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.worlds.families import FAMILIES, split

SEED = 11


class Instalments:
    """The bets as they were: whole money in instalments 1 / (j (j + 1)) every 20 steps, on each table half of it."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}
        self.bets: dict[str, SequentialTest] = {}

    def place(self, name: str, step: int, us: list[float], *, shared: bool = False, top: float = 1.0) -> None:
        assert top == 1.0, "no judge's guess corrects these bets"
        self.bets.setdefault(name, SequentialTest(20)).place(step, us)
        table = self.tables.setdefault(name, wealth.BetTable())
        table.steps.append(step)
        table.means.append(float(np.mean(us)) if len(us) else 0.0)

    def log_wealth(self, name: str) -> float:
        return self.bets[name].evidence - float(np.log(2.0))

    @property
    def evidence(self) -> float:
        return float(np.logaddexp.reduce([self.log_wealth(name) for name in self.bets]))

    @property
    def richest(self) -> str:
        return max(self.bets, key=self.log_wealth)


def as_it_was(alpha: float) -> GoldLossTest:
    made = GoldLossTest(alpha)
    made._wealth = Instalments()  # type: ignore[assignment]
    return made


#: Name, what is changed in the sampler, in the test, and the note. The first is what is shipped.
VARIANTS: tuple[tuple[str, dict[str, Any], dict[str, Any], str], ...] = (
    ("shipped", {}, {}, ""),
    ("even rate", {"FLOOR": 1.0, "ADVANCE": 0.0}, {}, "labels spread evenly over the run"),
    (
        "even rate, instalments",
        {"FLOOR": 1.0, "ADVANCE": 0.0},
        {"GoldLossTest": as_it_was},
        "the alarm before one purse and pairs",
    ),
    ("instalments", {}, {"GoldLossTest": as_it_was}, "the sampler alone, with the bets as they were"),
    ("no duels", {"DUELS": 0.0}, {}, "duels only where groups are dead"),
    ("more duels", {"DUELS": 0.3}, {}, ""),
    ("no advance", {"ADVANCE": 0.0}, {}, "never more than has accrued"),
    ("whole plan in advance", {"ADVANCE": 1.0}, {}, "all labels may be spent at the first suspicion"),
    ("low floor", {"FLOOR": 0.05}, {}, ""),
    ("high floor", {"FLOOR": 0.5}, {}, ""),
    ("spends faster", {"SPEND": 0.4}, {}, ""),
    ("spends slower", {"SPEND": 0.05}, {}, ""),
    ("suspects any fall", {"HARM": 0.0}, {}, "spends as soon as the slope may be below zero"),
    ("suspects deep falls", {"HARM": -0.15}, {}, ""),
    ("lays money evenly", {}, {"EAGER": 0.02, "LEAST": 0.02}, "2 % of the cash per step, whatever is believed"),
    ("lays half at once", {}, {"EAGER": 0.5}, ""),
    ("all stakes alike", {}, {"WIDTH": 10.0}, "no aim at the stake that grows fastest"),
)


@contextmanager
def changed(module: Any, values: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def hacks(runs: int) -> list[tuple[str, Trace, GroundTruth]]:
    """Smooth development runs that are hacks."""
    families, updates = split("dev")
    found = []
    for family in families:
        if family.kind != "hack" or family.cliff:
            continue
        for index in range(runs):
            trace = simulate(
                FAMILIES[family.name].world(SEED, index, updates[index % len(updates)]), SEED * 1000 + index
            )
            truth = GroundTruth.of(trace.gold, trace.slope)
            if truth.kind == "hack":
                found.append((family.name, trace, truth))
        print(f"{family.name} made", file=sys.stderr)
    return found


def measured(made: list[tuple[str, Trace, GroundTruth]], floor: float) -> dict[str, float]:
    regrets: list[float] = []
    by: dict[str, list[bool]] = {}
    labels: list[int] = []
    for index, (family, trace, truth) in enumerate(made):
        played = watching.play(trace, index, floor=floor)
        alarm = None if played.alarm is None else played.alarm.step
        regrets.append(truth.regret(trace.gold, alarm))
        by.setdefault(family, []).append(alarm is not None)
        if alarm is not None:
            labels.append(played.labels)
    return {
        "detection_worst": round(min(float(np.mean(found)) for found in by.values()), 3),
        "regret_median": round(float(np.median(regrets)), 4),
        "regret_p90": round(float(np.quantile(regrets, 0.9)), 4),
        "labels_median": round(float(np.median(labels))) if labels else 0,
        "runs": len(made),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=24, help="of each family")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/variants.json")
    asked = parser.parse_args()
    made = hacks(asked.runs)
    rows = []
    for name, spends, bets, note in VARIANTS:
        replaced = {key: value for key, value in bets.items() if key == "GoldLossTest"}
        constants = {key: value for key, value in bets.items() if key != "GoldLossTest"}
        floor = spends.get("FLOOR", sampler.FLOOR)
        with changed(sampler, spends), changed(wealth, constants), changed(watching, replaced):
            rows.append({"variant": name, **measured(made, floor), "note": note})
        print(json.dumps(rows[-1]), flush=True)
    record("variants", {"variants": rows}, seed=SEED, keep=asked.json)


if __name__ == "__main__":
    main()
