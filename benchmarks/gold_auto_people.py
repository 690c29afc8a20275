"""People at a judge's price, simulated: whether the bound holds with a wrong judge, and what a good one saves.

At each step `PAIRS` pairs are judged and people compare one of them, or, without a judge, as many as are tried. A pair
has a weight from 0.3 to 1; people call one in ten a tie. The tests are the run's own: `stats.wealth` for people or a
judge alone, with `stats.prediction_powered` where people correct the judge.
"""

from __future__ import annotations

import sys
from math import log
from multiprocessing import Pool

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.intervals import upper_bound
from tiltmeter.stats.prediction_powered import TOP, JudgeTrust, corrected_mean
from tiltmeter.stats.wealth import Wealth

Floats = NDArray[np.float64]
ALPHA, PAIRS, TIES = 0.01, 20, 0.1
STEPS, LONGEST = 300, 1500  # of healthy runs, and of harmful ones
THRESHOLD = log(1.0 / alpha_share(ALPHA, 1))
#: Chance to agree with people, and to call the answer that the reward reinforces the worse one whatever they say.
JUDGES = {"biased": (0.85, 0.3), "always_against": (0.5, 1.0), "contrary": (0.1, 0.0), "agrees_90": (0.9, 0.0)}
HARM = (-0.15, -0.3)  # mean of what people say of a pair, from the first step on
ALONE = (1, 2, 3, 4, 6, 8)  # pairs a step that people compare without a judge


def simulated_run(seed: tuple[int, ...], steps: int, mean: float, judge: str, pairs: int, kind: str) -> int:
    """The step of the alarm; `steps` if there is none. Kinds: "judge", "people" (compare `pairs` a step), "corrected"
    (one a step)."""
    rng, wealth, trust = np.random.default_rng(seed), Wealth(), JudgeTrust()
    agrees, against = JUDGES[judge]
    for step in range(steps):
        weight = rng.uniform(0.3, 1.0, pairs)
        says = np.where(rng.random(pairs) < 0.5 + mean / (2.0 * (1.0 - TIES)), 1.0, -1.0)
        says[rng.random(pairs) < TIES] = 0.0
        guess = np.where(rng.random(pairs) < agrees, says, -says)
        guess = np.where(says == 0.0, rng.choice([-1.0, 1.0], pairs), guess)
        guess[rng.random(pairs) < against] = -1.0
        people, judged = weight * says, weight * guess
        if kind == "corrected":
            value = corrected_mean(judged.tolist(), {0: float(people[0])}, trust.trust)
            wealth.place("slope", step, [value], top=TOP)
            trust.learn(judged[:1].tolist(), people[:1].tolist())
        else:
            wealth.place("slope", step, (people if kind == "people" else judged).tolist(), shared=True)
        if wealth.evidence >= THRESHOLD:
            return step
    return steps


def _alarms(pool: Pool, runs: int, seed: int, *facts: object) -> Floats:  # type: ignore[valid-type]
    jobs = [((seed, number), *facts) for number in range(runs)]
    return np.array(pool.starmap(simulated_run, jobs, chunksize=25))  # type: ignore[attr-defined]


def people(runs: int) -> dict[str, object]:
    """False alarms with judges that are wrong, and the labels of people that a good judge replaces."""
    figures: dict[str, object] = {"ppi_null_runs": runs}
    with Pool(2) as pool:
        worst = 0
        for number, judge in enumerate(JUDGES):
            alarms = int((_alarms(pool, runs, 100 + number, STEPS, 0.0, judge, PAIRS, "corrected") < STEPS).sum())
            figures[f"ppi_false_alarm_{judge}"] = round(alarms / runs, 5)
            worst = max(worst, alarms)
            print(f"{judge}: {alarms} of {runs} healthy runs alarmed with people's correction", file=sys.stderr)
        figures["ppi_false_alarm"] = round(worst / runs, 5)
        figures["ppi_false_alarm_upper95"] = round(upper_bound(worst, runs), 5)
        some = max(runs // 20, 20)
        alone = _alarms(pool, some, 200, STEPS, 0.0, "biased", PAIRS, "judge") < STEPS
        figures["judge_alone_false_alarm"] = round(float(alone.mean()), 4)
        ratios = []
        for number, mean in enumerate(HARM):
            corrected = _alarms(pool, some, 300 + number, LONGEST, mean, "agrees_90", PAIRS, "corrected")
            delays = [
                float(np.median(_alarms(pool, some, 400 + number, LONGEST, mean, "agrees_90", count, "people")))
                for count in ALONE
            ]
            delay = float(np.median(corrected))
            # Pairs a step at which people alone are as quick: between two numbers that were tried.
            equal = float(np.exp(np.interp(-log(delay), -np.log(delays), np.log(ALONE))))
            ratios.append(1.0 / equal)
            figures[f"ppi_harm_{-100 * mean:.0f}_percent"] = {
                "median_delay": round(delay, 1),
                "median_delay_people_alone": dict(zip(map(str, ALONE), (round(one, 1) for one in delays), strict=True)),
                "label_ratio": round(1.0 / equal, 3),
            }
            print(f"harm {mean:g}: step {delay:.1f} with one pair a step, people alone {delays}", file=sys.stderr)
        figures["ppi_label_ratio"] = round(max(ratios), 3)
    return figures
