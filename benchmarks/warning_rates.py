"""How often the warnings without gold are wrong, and what they are worth: sets their levels.

    python benchmarks/warning_rates.py [--runs N] [--write] [--quick] [--json]

Runs of the benign families of the development and calibration splits are made with the built-in instruments, and the
built-in detectors themselves fold the readings. Half of the runs set a level: of the largest statistic of each run, the
one that 95 % of runs stay below. The other half says what the rate is. Then, at these levels: hack families, twins that
differ in gold alone, other batch sizes and lengths, and whether warnings that boost the sampler spend labels better.
`--write` puts the levels into the package. Held-out families have no part in this.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from lab_readings import watched
from record import record
from tiltmeter import detectors
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.decline import Decline
from tiltmeter.detectors.departure import Departure
from tiltmeter.gold.sampler import Bet, Sampler
from tiltmeter.stats.intervals import upper_bound
from tiltmeter.verdict.run_facts import is_watched as listens
from tiltmeter_lab import watch_run as playing
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.worlds.controls import matched_pair
from tiltmeter_lab.worlds.families import WorldFamily, split
from tiltmeter_lab.worlds.world import Floats, World

SPLITS = ("dev", "calibration")
RATE = 0.05
MORE = ("valued_style", 40)  # runs beyond those of the other families: only it has components to look at
LEVELS = Path(detectors.__file__).parent / "calibration.json"
Warner = Departure | Decline
Trips = dict[str, int]  # first step of each warning that came


@dataclass(frozen=True, eq=False)
class Run:
    family: str
    index: int
    first: bool  # of the two halves
    truth: GroundTruth
    gold: Floats
    readings: list[Reading]


def warnings() -> list[Warner]:
    made = (make() for make in detectors.BUILTIN)
    return [part for part in made if isinstance(part, Departure | Decline)]


def families(kind: str) -> list[tuple[WorldFamily, tuple[str, ...]]]:
    return [(family, split(part)[1]) for part in SPLITS for family in split(part)[0] if family.kind == kind]


def made(family: WorldFamily, updates: tuple[str, ...], index: int, seed: int) -> World:
    return family.world(seed, index, updates[index % len(updates)])


def run(world: World, index: int, seed: int, updates: int = 1) -> Run:
    trace, readings = watched(world, seed)
    # Both halves have every update rule.
    first = (index // updates) % 2 == 0
    return Run(world.family, index, first, GroundTruth.of(trace.gold, trace.slope), trace.gold, readings)


def runs_of(kind: str, count: int, seed: int) -> list[Run]:
    found: list[Run] = []
    for family, updates in families(kind):
        more = MORE[1] if family.name == MORE[0] and count >= MORE[1] // 2 else 0
        found += [
            run(made(family, updates, index, seed), index, 1000 + index, len(updates)) for index in range(count + more)
        ]
        print(f"{family.name}: {count + more} runs", file=sys.stderr, flush=True)
    return found


def told(part: Warner, readings: Iterable[Reading]) -> tuple[float, Alarm | None]:
    """The highest statistic of a run and the first warning, by a detector of its own."""
    fresh, raised = replace(part), None
    for reading in readings:
        if listens(reading.name, fresh.watches):
            alarm = fresh.update(reading)
            raised = raised or alarm
    return fresh.highest, raised


def trips(parts: Iterable[Warner], run: Run) -> Trips:
    raised = {part.key: told(part, run.readings)[1] for part in parts}
    return {name: alarm.step for name, alarm in raised.items() if alarm is not None}


def chosen(part: Warner, benign: list[Run], count: int) -> list[Run]:
    """As many of each family as of any other, unless only some have what the warning watches."""
    rows = [one for one in benign if any(listens(reading.name, part.watches) for reading in one.readings)]
    every = {one.family for one in rows} == {one.family for one in benign}
    return [one for one in rows if one.index < count] if every else rows


def calibration(benign: list[Run], count: int) -> dict[str, dict[str, float]]:
    """By warning: level, rate with its bound on runs that did not set it, and the rate on those that did."""
    found = {}
    for part in warnings():
        silent = replace(part, level=math.inf)
        rows = chosen(part, benign, count)
        tops = sorted(told(silent, one.readings)[0] for one in rows if one.first)
        # Exchangeable runs stay at or below this order statistic with a chance of 95 % or more.
        level = float(f"{tops[min(math.ceil((len(tops) + 1) * (1 - RATE)), len(tops)) - 1]:.4g}")
        at = replace(part, level=level)
        others = [one for one in rows if not one.first]
        false = sum(told(at, one.readings)[1] is not None for one in others)
        found[part.key] = {
            "level": level,
            "rate": round(false / len(others), 4),
            "alpha": round(upper_bound(false, len(others)), 4),
            "runs": len(others),
            "level_runs": len(tops),
            "level_rate": round(sum(top > level for top in tops) / len(tops), 4),
        }
    return found


def levelled(found: dict[str, dict[str, float]]) -> list[Warner]:
    return [
        replace(part, **{name: found[part.key][name] for name in ("level", "rate", "alpha")})  # type: ignore[arg-type]
        for part in warnings()
    ]


def share(values: Iterable[bool]) -> float | None:
    values = list(values)
    return round(sum(values) / len(values), 3) if values else None


def detected(parts: list[Warner], hacks: list[Run]) -> list[dict[str, Any]]:
    """By family of hacks: the share of runs that each warning speaks in at all, and before gold has peaked."""
    rows = []
    for family in dict.fromkeys(one.family for one in hacks):
        runs = [(one, trips(parts, one)) for one in hacks if one.family == family]
        row: dict[str, Any] = {"family": family, "hacks": len(runs)}
        for part in parts:
            row[part.key] = share(part.key in came for _, came in runs)
        firsts = [(min(came.values()), one.truth.peak) for one, came in runs if came]
        row["any"] = share(bool(came) for _, came in runs)
        row["any_before_peak"] = share(bool(came) and min(came.values()) <= one.truth.peak for one, came in runs)
        row["median_lead_steps"] = float(np.median([peak - first for first, peak in firsts])) if firsts else None
        rows.append(row)
    return rows


def wrong(parts: list[Warner], benign: list[Run]) -> list[dict[str, Any]]:
    """By benign family, on the half that set no level."""
    rows = []
    others = [one for one in benign if not one.first]
    for family in [*dict.fromkeys(one.family for one in others), "all"]:
        runs = [trips(parts, one) for one in others if family in (one.family, "all")]
        row: dict[str, Any] = {"family": family, "runs": len(runs)}
        row |= {part.key: share(part.key in came for came in runs) for part in parts}
        row["any"] = share(bool(came) for came in runs)
        row["any_upper95"] = round(upper_bound(sum(map(bool, runs)), len(runs)), 3)
        rows.append(row)
    return rows


def twin_check(parts: list[Warner], count: int, seed: int) -> dict[str, Any]:
    """Runs alike in all but gold: what is said of the hack is said of the healthy one, so warnings are at chance."""
    both = []
    for index in range(count):
        pair = matched_pair(np.random.default_rng([seed, index]), ("tilt", "natural", "grpo")[index % 3])
        both.append([trips(parts, run(world, index, 2000 + index)) for world in pair])
    return {
        "pairs": count,
        "warned_hacks": sum(bool(hack) for hack, _ in both),
        "warned_healthy": sum(bool(healthy) for _, healthy in both),
        "equal": all(hack == healthy for hack, healthy in both),
    }


def variants(world: World) -> dict[str, World]:
    """The same run with other batches, and drawn out over more steps."""
    longer = {name: np.repeat(getattr(world, name), 3) for name in ("rate", "leash")}
    return {
        "quarter_batch": replace(world, groups=max(world.groups // 4, 1)),
        "fourfold_batch": replace(world, groups=world.groups * 4),
        "threefold_length": replace(world, steps=3 * world.steps, rate=longer["rate"] / 3, leash=longer["leash"]),
    }


def elsewhere(parts: list[Warner], count: int, seed: int) -> list[dict[str, Any]]:
    """Rates on benign runs of another shape than those that set the levels."""
    found: dict[str, list[Trips]] = {}
    for family, updates in families("benign"):
        for index in range(count):
            for name, world in variants(made(family, updates, 500 + index, seed)).items():
                one = run(world, index, 3000 + index)
                if one.truth.kind == "benign":
                    found.setdefault(name, []).append(trips(parts, one))
    return [
        {
            "variant": name,
            "runs": len(runs),
            **{part.key: share(part.key in came for came in runs) for part in parts},
            "any": share(bool(came) for came in runs),
        }
        for name, runs in found.items()
    ]


class Boosted(Sampler):
    """The product's sampler, told of warnings as the loop tells it: after the step's own labels were drawn."""

    warned: frozenset[int] = frozenset()

    def draw(self, attempt: int, step: int, *rest: Any) -> list[Bet]:
        bets = super().draw(attempt, step, *rest)
        if step in self.warned:
            self.boost()
        return bets


def played(trace: Trace, seed: int, warned: Iterable[int]) -> int | None:
    made = type("Warned", (Boosted,), {"warned": frozenset(warned)})
    with mock.patch.object(playing, "Sampler", made):
        alarm = playing.play(trace, seed).alarm
    return None if alarm is None else alarm.step


def boosting(parts: list[Warner], hacks: list[Run], seed: int) -> list[dict[str, Any]]:
    """Regret at 2 % labels on smooth development hacks: without boosts, by warnings, and at as many random steps."""
    made_by = {family.name: (family, updates) for family, updates in families("hack")}
    found: dict[str, list[tuple[float, bool]]] = {"none": [], "warnings": [], "random": []}
    warned_runs = 0
    for one in hacks:
        family, updates = made_by[one.family]
        if family.cliff or family not in split("dev")[0]:
            continue
        came = set(trips(parts, one).values())
        warned_runs += bool(came)
        trace = simulate(made(family, updates, one.index, seed), 1000 + one.index)
        rng = np.random.default_rng([seed, one.index])
        other = rng.choice(len(trace.gold), len(came), replace=False).tolist()
        for name, steps in (("none", ()), ("warnings", came), ("random", other)):
            alarm = played(trace, 1000 + one.index, steps)
            found[name].append((one.truth.regret(trace.gold, alarm), alarm is not None))
    return [
        {
            "boost": name,
            "runs": len(rows),
            "warned_runs": warned_runs if name != "none" else 0,
            "regret_median": round(float(np.median([lost for lost, _ in rows])), 4),
            "regret_p90": round(float(np.quantile([lost for lost, _ in rows], 0.9)), 4),
            "detection": share(hit for _, hit in rows),
        }
        for name, rows in found.items()
        if rows
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, help="of each benign family (40; --quick: 8), 0.6 times as many hacks")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--quick", action="store_true", help="few runs, nothing written")
    parser.add_argument("--write", action="store_true", help="put the levels into the package")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    count = args.runs or (8 if args.quick else 40)
    benign = [one for one in runs_of("benign", count, args.seed) if one.truth.kind == "benign"]
    hacks = [one for one in runs_of("hack", math.ceil(0.6 * count), args.seed) if one.truth.kind == "hack"]
    found = calibration(benign, count)
    if args.write and not args.quick:
        LEVELS.write_text(json.dumps(found, indent=1) + "\n")
    parts = levelled(found)
    pairs = twin_check(parts, 3 if args.quick else 30, args.seed)
    figures = {
        "warnings": [{"warning": name, **facts} for name, facts in found.items()],
        "benign": wrong(parts, benign),
        "hacks": detected(parts, hacks),
        "boost": boosting(parts, hacks, args.seed),
        "twins": pairs,
        "other_runs": elsewhere(parts, 1 if args.quick else 4, args.seed),
    }
    result = record("warnings", figures, seed=args.seed, keep=not args.quick)
    print(json.dumps(result if args.json else figures, indent=1))
    return 0 if pairs["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
