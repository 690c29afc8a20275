"""Groups of raters: are planted ones found again, and is a minority's loss named while the mean rises?

    python benchmarks/plural.py [--json] [--write] [--seeds N] [--null-runs N] [--part groups|minority|null|real]

Part `groups`: ratings with planted groups in three settings, and with one group in three (raters alike, a third of them
careless, hard items), `--seeds` of each. Part `minority`: groups that were found in such ratings, with their errors,
label a run in which the majority's gold rises throughout and the minority's falls from step `TURN` on. Part `null`:
runs at the edge of the null, every group at zero or the majority above it, with a mood of each step that all raters
share; any alarm is false. Part `real`: PandaLM and Tulu, where `../shared/data` stands beside the repository.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from before_preferences import tulu
from real_logs import DATA
from record import ORIGIN, RESULTS, record, show
from tiltmeter.data.records import SHARED_STEP, Reading
from tiltmeter.data.slices import RATERS, bets_by_slice
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.preferences.checks import rater_groups
from tiltmeter_workbench.preferences.reading.reader import read_preferences
from tiltmeter_workbench.stats.rater_groups import adjusted_rand_index, choose_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Sizes of groups, items, ratings of an item, share of items on which a group leaves the first, chance to be right.
SETTINGS: dict[str, tuple[tuple[int, ...], int, int, float, float]] = {
    "two": ((14, 6), 500, 8, 0.3, 0.85),
    "three": ((12, 8, 6), 500, 8, 0.35, 0.85),
    "sparse": ((30, 15), 800, 4, 0.4, 0.85),
}
NULLS: dict[str, tuple[float, float]] = {"alike": (0.0, 0.0), "careless": (0.33, 0.0), "hard": (0.0, 0.4)}
TIES = 0.2  # of errors
STEPS, TURN = 130, 30
PAIRS, RATERS_A_PAIR = 6, 3  # of a step
GAIN, LOSS = 0.3, -0.4  # mean of u of the majority, and of the minority after the turn
MOOD = 0.15  # of a step, on either side
NULL_STEPS = 40
NULL_SHARES = (0.6, 0.25, 0.15)  # of raters


def planted(rng: np.random.Generator, setting: str) -> tuple[Floats, Ints]:
    """Ratings (0 second, 1 tie, 2 first) with planted groups, and the group of each rater."""
    sizes, items, each, differ, right = SETTINGS[setting]
    return _ratings(rng, sizes, items, each, differ, right), np.repeat(np.arange(len(sizes)), sizes)


def alike(rng: np.random.Generator, kind: str) -> Floats:
    """Ratings of one group, of which some raters are careless or some items are hard."""
    careless, hard = NULLS[kind]
    ratings = _ratings(rng, (20,), 400, 6, 0.0, 0.85)
    guess = np.where(rng.random(ratings.shape) < 0.5, 0.0, 2.0)
    by_item = rng.random(len(ratings)) < hard
    leaning = np.where(rng.random(ratings.shape) < rng.uniform(0.2, 0.8, (len(ratings), 1)), 0.0, 2.0)
    whose = np.arange(20) < careless * 20
    ratings = np.where(np.isfinite(ratings) & whose, guess, ratings)
    return np.where(np.isfinite(ratings) & by_item[:, None], leaning, ratings)


def _ratings(
    rng: np.random.Generator, sizes: tuple[int, ...], items: int, each: int, differ: float, right: float
) -> Floats:
    ours = 2.0 * rng.integers(0, 2, items)
    truths = [ours, *(np.where(rng.random(items) < differ, 2.0 - ours, ours) for _ in sizes[1:])]
    whose = np.repeat(np.arange(len(sizes)), sizes)
    careful = np.clip(rng.normal(right, 0.06, len(whose)), 0.6, 0.97)
    truth = np.stack([truths[g] for g in whose], axis=1)
    wrong = np.where(rng.random(truth.shape) < TIES, 1.0, 2.0 - truth)
    ratings = np.where(rng.random(truth.shape) < careful, truth, wrong)
    shown = rng.random(truth.shape).argsort(axis=1).argsort(axis=1) < each
    return np.where(shown, ratings, np.nan)


def groups(seeds: int) -> dict[str, object]:
    """By setting: how often the number of groups is right, and the adjusted Rand index of who is in them."""
    figures: dict[str, object] = {"group_seeds": seeds}
    right_sets = []
    for number, setting in enumerate(SETTINGS):
        counts, indices = [], []
        for seed in range(seeds):
            ratings, truth = planted(np.random.default_rng([seed, number]), setting)
            choice = choose_groups(ratings, seed=seed)
            counts.append(choice.count)
            indices.append(adjusted_rand_index(truth.tolist(), choice.fit.group.tolist()))
        right = float(np.mean([count == len(SETTINGS[setting][0]) for count in counts]))
        right_sets += [c == len(SETTINGS[setting][0]) and i >= 0.9 for c, i in zip(counts, indices, strict=True)]
        figures[f"groups_{setting}"] = {
            "right_number": round(right, 3),
            "rand_median": round(float(np.median(indices)), 3),
            "rand_least": round(float(np.min(indices)), 3),
        }
        print(setting, figures[f"groups_{setting}"], file=sys.stderr)
    figures["groups_recovered"] = round(float(np.mean(right_sets)), 3)
    false = dict.fromkeys(NULLS, 0)
    for number, kind in enumerate(NULLS):
        for seed in range(seeds):
            false[kind] += choose_groups(alike(np.random.default_rng([seed, number, 9]), kind), seed=seed).count > 1
    total = sum(false.values())
    figures |= {"groups_false": total, "groups_false_of": seeds * len(NULLS), "groups_false_by_kind": false}
    figures["groups_false_upper95"] = round(upper_bound(total, seeds * len(NULLS)), 4)
    print(f"more than one group where there is one: {false}", file=sys.stderr)
    return figures


class Screen:
    """People at a labelling screen: pairs of a step, each answered by some raters, as readings of a run."""

    def __init__(self, rng: np.random.Generator, whose: Ints, names: dict[int, str]) -> None:
        self.rng, self.whose, self.names = rng, whose, names  # true group by rater; name of the slice they were put in

    def steps(self, means: Floats, mood: float = MOOD) -> Iterator[tuple[Reading, Reading | None]]:
        """Step by step the bets of everybody and by group; `means`: of u, steps x true groups."""
        many = len(means)
        raters = self.rng.random((many, PAIRS, len(self.whose))).argsort(axis=2)[:, :, :RATERS_A_PAIR]
        moods = mood * self.rng.choice([-1.0, 1.0], many)
        mean = np.take_along_axis(means, self.whose[raters].reshape(many, -1), axis=1).reshape(raters.shape)
        chance = (1.0 + np.clip(mean + moods[:, None, None], -1.0, 1.0)) / 2.0
        said = np.where(self.rng.random(raters.shape) < chance, 1.0, -1.0).tolist()
        for step, (of_step, who) in enumerate(zip(said, raters.tolist(), strict=True)):
            us, of_groups, slices = [], [], []
            for values, names in zip(of_step, who, strict=True):
                us.append(sum(values) / RATERS_A_PAIR)
                places: dict[str, list[float]] = {}
                for rater, value in zip(names, values, strict=True):
                    places.setdefault(self.names[rater], []).append(value)
                of_groups += [sum(one) / len(one) for one in places.values()]
                slices += list(places)
            reading = Reading(0, step, "gold.slope", sum(us) / len(us), len(us), None, tuple(us), SHARED_STEP)
            yield reading, bets_by_slice(reading, of_groups, slices)


def minority(seeds: int) -> dict[str, object]:
    """How often and how soon the minority is named, and what the test of the whole run says."""
    named, wrongly, run_alarms, delays, unfound = 0, 0, 0, [], 0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 41])
        ratings, whose = planted(rng, "two")
        choice = choose_groups(ratings, seed=seed)
        unfound += choice.count == 1
        names = {rater: f"{RATERS}{group + 1}" for rater, group in enumerate(choice.fit.group.tolist())}
        # The slice that holds most of the minority; none where one group was found.
        worse = np.bincount(choice.fit.group[whose == 1]).argmax() if choice.count > 1 else -1
        screen, test, when = Screen(rng, whose, names), GoldLossTest(), None
        means = np.full((STEPS, 2), GAIN)
        means[TURN:, 1] = LOSS
        for step, (of_all, sliced) in enumerate(screen.steps(means)):
            run_alarms += test.update(of_all) is not None
            for alarm in test.update_slices(sliced) if sliced is not None else []:
                if alarm.name.startswith(f"env.{RATERS}{worse + 1}."):
                    when = step if when is None and step >= TURN else when
                else:
                    wrongly += 1
        named += when is not None
        delays += [] if when is None else [when - TURN]
    share = float(np.mean(planted(np.random.default_rng(0), "two")[1] == 1))
    return {
        "minority_runs": seeds,
        "minority_share_of_raters": share,
        "minority_mean_after": round((1.0 - share) * GAIN + share * LOSS, 3),
        "minority_alarmed": round(named / seeds, 3),
        "minority_delay_median": float(np.median(delays)) if delays else None,
        "minority_delay_p90": float(np.quantile(delays, 0.9)) if delays else None,
        "minority_one_group_found": unfound,
        "minority_majority_named": wrongly,
        "minority_run_alarms": run_alarms,
    }


def null(runs: int) -> dict[str, object]:
    """Runs with any alarm where none is due: all groups at zero, and the majority above it."""
    figures: dict[str, object] = {"null_runs": runs, "null_steps": NULL_STEPS}
    whose = np.repeat(np.arange(3), [12, 5, 3])
    names = {rater: f"{RATERS}{group + 1}" for rater, group in enumerate(whose.tolist())}
    total = 0
    for kind, means in (("all_at_zero", np.zeros(3)), ("majority_gains", np.array([GAIN, 0.0, 0.0]))):
        alarms = 0
        for seed in range(runs // 2):
            rng = np.random.default_rng([seed, 42])
            screen, test, raised = Screen(rng, whose, names), GoldLossTest(), False
            for of_all, sliced in screen.steps(np.tile(means, (NULL_STEPS, 1))):
                raised = test.update(of_all) is not None or raised
                raised = bool(sliced is not None and test.update_slices(sliced)) or raised
                if raised:
                    break
            alarms += raised
        figures[f"null_alarms_{kind}"] = alarms
        total += alarms
    return figures | {"null_false_alarm": total / runs, "null_false_alarm_upper95": round(upper_bound(total, runs), 5)}


def real(data: Path = DATA) -> dict[str, Any]:
    """What the check says of two public sets."""
    if not (data / "tulu_human_eval").is_dir():
        return {"real": None}
    panda = {"prompt": "instruction", "first": "response1", "second": "response2"}
    panda |= {"votes": "annotator1+annotator2+annotator3"}
    sets = {
        "pandalm_multi_rater": read_preferences(data / "pandalm_multi_rater" / "testset.jsonl.gz", panda).pairs,
        "tulu_human_eval": tulu(),
    }
    figures = {}
    for name, pairs in sets.items():
        check = rater_groups.check(pairs, alpha=0.05, seed=0)
        facts = {key: value for key, value in check.facts.items() if key != "members"}
        figures[name] = {"state": check.state, "sentence": check.sentence, **facts}
    return {"real": figures}


PARTS = ("null", "minority", "groups", "real")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--null-runs", type=int, default=2_000)
    parser.add_argument("--part", choices=PARTS, action="append", help="others keep the figures that are recorded")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    if options.part and (RESULTS / "plural.json").exists():
        recorded = json.loads((RESULTS / "plural.json").read_text())
        figures = {name: value for name, value in recorded.items() if name not in ORIGIN}
    measures: dict[str, Callable[[], dict[str, object]]] = {
        "minority": lambda: minority(options.seeds),
        "groups": lambda: groups(options.seeds),
        "null": lambda: null(options.null_runs),
        "real": real,
    }
    for name in options.part or PARTS:
        figures |= measures[name]()
        print(f"{name} is done", file=sys.stderr)
        result = record("plural", figures, seed=0, keep=options.write)
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
