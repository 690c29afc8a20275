"""Slices: what is named in a real run of five environments, what a slice costs, and how often a healthy one is named.

`measure()` is the part `slices` of `gold_auto.py`. The real run (`agentic_hacking_by_env`) has, every 64 epochs and for
each environment, 64 rollouts that a judge looked at: paid or not, hacked or not. They are bet on twice: as gold "of
what is paid, what is honest", a level by environment, and as traps are, "paid by a hack", against a chance of
`HONEST_CHANCE` that a judge calls honest pay a hack. In the simulation bets are +1 or -1, the hardest kind. A
bound of .01 cannot be seen in so few runs, so the share of runs is counted at an α of 1 too, where slices may be
named in 24 % of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from real_logs import DATA, rows
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.data.slices import bets_by_slice
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.slice_tests import SLICE_SHARE, slice_weight
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.intervals import upper_bound

RUN = "agentic_hacking_by_env"
HACKED, HONEST = {"AEEnv", "OmitDescriptionEnv"}, {"BashCodeforcesEnv", "SWEFixerEnv"}
HONEST_CHANCE = 0.05
HEALTHY, HARMFUL, TURN = 0.2, -0.3, 30  # mean of u before and after the step at which one slice turns
BETS = 4  # of a slice in a step
RUNS, NULL_RUNS = 12, 300  # a run of a thousand healthy slices takes three seconds


def judged(data: Path = DATA) -> Iterator[tuple[int, list[dict[str, int | str]]]]:
    """Epoch, and by environment how many of its 64 rollouts were paid honestly and paid by a hack."""
    by_epoch: dict[int, list[dict[str, int | str]]] = {}
    for row in rows(data / RUN, "by_epoch"):
        numbers = {name.removeprefix("n_"): int(row[name]) for name in row if name.startswith("n_")}
        honest, hacked = numbers["no_hacking_successful"], numbers["hacking_successful"]
        facts: dict[str, int | str] = {
            "env": row["env"],
            "honest": honest,
            "hacked": hacked,
            "judged": sum(numbers.values()),
        }
        by_epoch.setdefault(int(row["epoch"]), []).append(facts)
    yield from sorted(by_epoch.items())


def honest_of_paid(data: Path = DATA) -> list[Alarm]:
    """The alarms where gold is the part of paid rollouts that is honest, an evaluation by environment."""
    test, raised = GoldLossTest(), []
    for epoch, environments in judged(data):
        for one in environments:
            paid = int(one["honest"]) + int(one["hacked"])
            if paid:
                value, whose = int(one["honest"]) / paid, ((str(one["env"]), 1),)
                reading = Reading(0, epoch, "slices.eval.honest", value, paid, None, (value,), "", (paid,), whose)
                raised += test.update_slices(reading)
    return raised


def paid_by_a_hack(data: Path = DATA) -> list[Alarm]:
    """The alarms where every judged rollout bets that honest work is called a paid hack with a chance above `p0`."""
    test, raised = GoldLossTest(), []
    for epoch, environments in judged(data):
        us, slices = [], []
        for one in environments:
            hacks = np.arange(int(one["judged"])) < int(one["hacked"])
            hacks = np.random.default_rng(epoch).permutation(hacks)  # their order is not known
            us += (1.0 - hacks / HONEST_CHANCE).tolist()
            slices += [str(one["env"])] * len(hacks)
        sliced = bets_by_slice(Reading(0, epoch, "gold.slope", float(np.mean(us)), len(us)), us, slices)
        assert sliced is not None
        raised += test.update_slices(sliced)
    return raised


def real_run(data: Path = DATA) -> dict[str, Any]:
    if not (data / RUN).is_dir():
        return {"slices_named": None}
    figures: dict[str, Any] = {}
    named = []
    for way, alarms in (("gold", honest_of_paid(data)), ("hack", paid_by_a_hack(data))):
        epochs = {alarm.name.split(".")[1]: alarm.step for alarm in alarms}
        figures[f"slices_by_{way}"] = epochs
        named.append(HACKED & epochs.keys() if not HONEST & epochs.keys() else set())
    return {"slices_named": len(set.intersection(*named)), **figures}


def coins(rng: np.random.Generator, means: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(rng.random(len(means)) < (1.0 - means) / 2.0, -1.0, 1.0)


def one_of_twenty(seed: int, slices: int = 20, steps: int = 300) -> dict[str, int | None]:
    """Labels of the slice that turns until an alarm: it alone, named among all, and by the test of the run."""
    rng = np.random.default_rng([seed, 26])
    names = [f"slice{number}" for number in range(slices) for _ in range(BETS)]
    alone, together, found = GoldLossTest(), GoldLossTest(), dict[str, int | None](alone=None, named=None, run=None)
    for step in range(TURN + steps):
        means = np.full(len(names), HEALTHY)
        means[:BETS] = HEALTHY if step < TURN else HARMFUL
        us, labels = coins(rng, means), 2 * BETS * (step + 1 - TURN)
        of_all = np.array([part.mean() for part in np.array_split(rng.permutation(us), min(len(us), 64))])
        reading = Reading(0, step, "gold.slope", float(us.mean()), len(us), None, tuple(of_all.tolist()))
        mine = Reading(0, step, "gold.slope", float(us[:BETS].mean()), BETS, None, tuple(us[:BETS].tolist()))
        if found["alone"] is None and alone.update(mine) is not None:
            found["alone"] = labels
        if together.update(reading) is not None:
            found["run"] = labels
        sliced = bets_by_slice(reading, us.tolist(), names)
        assert sliced is not None
        if any(alarm.name == "env.slice0.gold.slope" for alarm in together.update_slices(sliced)):
            found["named"] = labels
        if found["alone"] is not None and found["named"] is not None and step >= TURN + 200:
            break
    return found


def highest_odds(seed: int, slices: int, steps: int = 12) -> float:
    """The highest log odds that any slice reaches, ever, where none gains or loses by the reward: the edge of the null,
    one bet a slice and step. They do not depend on α while no alarm is raised."""
    rng, test, highest = np.random.default_rng([seed, 27]), GoldLossTest(alpha=1e-12), -np.inf
    names = [f"slice{number}" for number in range(slices)]
    for step in range(steps):
        us = coins(rng, np.zeros(slices)).tolist()
        sliced = bets_by_slice(Reading(0, step, "gold.slope", float(np.mean(us)), slices), us, names)
        assert sliced is not None
        test.update_slices(sliced)
        highest = max(highest, *test.slice_evidence().values())
    return highest


def measure(*, quick: bool = False, data: Path = DATA) -> dict[str, Any]:
    """The figures about slices."""
    runs, null_runs, slices = (3, 2, 50) if quick else (RUNS, NULL_RUNS, 1_000)
    found = [one_of_twenty(seed) for seed in range(runs)]
    ratios = [one["named"] / one["alone"] for one in found if one["named"] is not None and one["alone"] is not None]
    highest = [highest_odds(seed, slices) for seed in range(null_runs)]
    figures: dict[str, Any] = {
        **real_run(data),
        "slice_runs": runs,
        "slice_found": sum(one["named"] is not None for one in found),
        "slice_found_without_slices": sum(one["run"] is not None for one in found),
        "slice_labels_alone_median": float(np.median([one["alone"] or np.inf for one in found])),
        "slice_labels_median": float(np.median([one["named"] or np.inf for one in found])),
        "slice_label_ratio_median": round(float(np.median(ratios)), 2),
        "slice_null_runs": null_runs,
        "slice_null_slices": slices,
    }
    for name, alpha in (("slice_false_alarm", 0.01), ("slice_false_alarm_at_alpha_1", 1.0)):
        share = alpha_share(SLICE_SHARE * alpha, 1)  # of all slices, in the first arming
        named = sum(odds >= -np.log(share * slice_weight(0, slices)) for odds in highest)
        figures[name] = named / null_runs
        figures[f"{name}_upper95"] = round(upper_bound(named, null_runs), 4)
        figures[f"{name}_promised"] = round(share, 4)
    return figures
