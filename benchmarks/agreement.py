"""Agreement and level on simulated runs: whether intervals hold at every step of a run, and who is called hollow.

    python benchmarks/agreement.py [--json] [--write] [--runs N] [--seed N]

Every run has 150 steps of 8 prompts with 8 answers. Of two answers with different gold the reward prefers the better
one with a chance that changes from step to step. `coverage` is the share of runs in which the interval held the
average of the window at every single step; `level_coverage` likewise for gold now against its best window.
`fixed_coverage` is the same for an interval that is right at one look (99 %, normal): the check can fail. `hollow_*`
are shares of runs that were called hollow at any time: `gained` and `edge` must not be, the first because gold gained
as the reward did, the second because it gained just what would be too much. `tiny_*` are the recorded runs of the
tiny language model, at full size only.
"""

from __future__ import annotations

import argparse
import sys
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record, show
from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.stats.agreement import pair_agreement
from tiltmeter.stats.gold_curve import GoldCurve
from tiltmeter.stats.running_mean import MeanWindow, low_end
from tiltmeter.stats.win_share import prepare_reference, win_share
from tiltmeter.verdict.agreement_and_gain import ALPHA, AgreementAndGain
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.score import estimate_truth, to_trace

Floats = NDArray[np.float64]

STEPS, GROUPS, ANSWERS = 150, 8, 8
KINDS = ("steady", "falls", "coin", "walks", "swings")
GAINS = {"gained": (0.4, 0.4), "edge": (0.4, 0.1), "nothing": (0.4, 0.0), "flat": (0.0, 0.0)}


def course(kind: str, rng: np.random.Generator) -> Floats:
    """The chance that the reward prefers the better of two answers, by step."""
    at = np.arange(STEPS) / STEPS
    curves = {
        "steady": np.full(STEPS, rng.uniform(0.55, 0.98)),
        "falls": np.interp(at, [0.3, 0.7], [0.9, 0.35]),
        "coin": np.full(STEPS, 0.5),
        "walks": np.clip(0.7 + np.cumsum(rng.normal(0.0, 0.04, STEPS)), 0.05, 0.97),
        "swings": np.where(np.arange(STEPS) // 20 % 2, 0.95, 0.45),
    }
    return np.asarray(curves[kind], np.float64)


def packed(values: Floats) -> list[object]:
    """Values as a reading: mean, number, standard error."""
    n = len(values)
    return [float(values.mean()), n, float(values.std(ddof=1) / sqrt(n)) if n > 1 else None]


def prompt_reading(means: Floats) -> list[object]:
    return [float(means.mean()), ANSWERS * len(means), packed(means)[2], means.tolist()]


def shares(agreement: Floats, gold: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """By step and prompt, the share of its mixed pairs in which the better answer is paid more; NaN without one.

    Gaussian rewards whose means lie apart so that the chance is the one wanted; pairs of one group share answers."""
    apart = np.array([sqrt(2.0) * NormalDist().inv_cdf(chance) for chance in agreement])
    reward = rng.normal(size=gold.shape) + apart[:, None, None] * gold
    wins = (reward[..., :, None] > reward[..., None, :]) & gold[..., :, None] & ~gold[..., None, :]
    mixed = gold.sum(-1) * (ANSWERS - gold.sum(-1))
    return np.where(mixed > 0, wins.sum((-1, -2)) / np.maximum(mixed, 1), np.nan)


def intervals(windows: list[MeanWindow], alpha: float) -> Floats:
    """Low and high of many windows at once, as `MeanWindow.interval` gives them."""
    names = ("count", "total", "scatter", "draws", "share")
    count, total, scatter, draws, share = (np.array([getattr(one, name) for one in windows]) for name in names)
    low, up = (low_end(count, part, scatter, draws, 0.5 * alpha * share) for part in (total, count - total))
    return np.stack([low, 1.0 - up], -1)


def copied(window: MeanWindow) -> MeanWindow:
    return MeanWindow(**vars(window))


def one_run(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Whether the intervals held at every step, and how wide that of the agreement was early and late."""
    agreement = course(kind, rng)
    level = np.clip(rng.uniform(0.2, 0.8) + np.cumsum(rng.normal(0.0, 0.02, STEPS)), 0.05, 0.95)
    prompts = np.clip(level[:, None] + rng.normal(0.0, 0.1, (STEPS, GROUPS)), 0.0, 1.0)
    gold = rng.random((STEPS, GROUPS, ANSWERS)) < prompts[..., None]
    values = shares(agreement, gold, rng)
    folded = AgreementAndGain()
    now: list[tuple[int, MeanWindow]] = []
    level_readings = ReadingTable("gold.mean")
    for step in range(STEPS):
        mixed = values[step][np.isfinite(values[step])]
        means = gold[step].mean(-1)
        readings: dict[str, list[object]] = {"gold.prompts": prompt_reading(means)}
        if len(mixed):
            readings["gold.agreement"] = packed(mixed)
        folded.add(0, step, readings)
        if folded.agreements.windows:
            now.append((step, copied(folded.agreements.current)))
        error = float(means.std(ddof=1) / sqrt(GROUPS))
        level_readings.add(0, step, float(means.mean()), GROUPS * ANSWERS, error)
    ends = intervals([window for _, window in now], ALPHA)
    counted = np.isfinite(values).sum(1)
    true = np.array(
        [
            np.average(agreement[window.first : step + 1], weights=counted[window.first : step + 1])
            for step, window in now
        ]
    )
    seen = np.array([(window.total / window.count, window.scatter / window.count**2) for _, window in now])
    reach = NormalDist().inv_cdf(1.0 - 0.5 * ALPHA) * np.sqrt(seen[:, 1])
    width = np.diff(ends)[:, 0]
    return {
        "held": bool(((ends[:, 0] <= true) & (true <= ends[:, 1])).all()),
        "fixed": bool(
            (np.abs(seen[:, 0] - true) <= reach)[[count >= 30 for count in counted.cumsum()[-len(now) :]]].all()
        ),
        "level_held": level_held(level_readings, prompts.mean(1)),
        "width_5": float(width[min(4, len(width) - 1)]),
        "width_150": float(width[-1]),
    }


def level_held(gold: ReadingTable, truth: Floats) -> list[bool]:
    """At every tenth step, whether the interval of gold now against its best holds the true change."""
    held = []
    for step in range(9, STEPS, 10):
        look = GoldCurve(gold.where(gold.steps <= step)).last_look
        if look is not None:
            now, best = (truth[part.first : part.last + 1].mean() for part in (look.now, look.best))
            _, low, high = look.change
            held.append(bool(low <= min(now - best, 0.0) <= high))
    return held


def called_hollow(kind: str, rng: np.random.Generator, rows: int = 32) -> bool:
    """Whether a run whose reward and gold gain as given from step 20 to 40 is called hollow at any of 15 looks."""
    gained, worth = GAINS[kind]
    folded = AgreementAndGain()
    for step in range(STEPS):
        part = float(np.interp(step, [20, 40], [0.0, 1.0]))
        means = rng.binomial(ANSWERS, 0.4 + worth * part, rows) / ANSWERS
        wins = 0.5 * (1.0 - 0.4) + 0.5 * rng.binomial(ANSWERS, 0.4 + gained * part, rows) / ANSWERS
        folded.add(
            0, step,
            {
                "group.size": [8.0, rows, 0.0],
                "gold.prompts": prompt_reading(means),
                "reward.win_share": [float(wins.mean()), rows * ANSWERS, packed(wins)[2]],
            },
        )  # fmt: skip
        if step % 10 == 9 and (gain := folded.gain()) is not None and gain.is_hollow:
            return True
    return False


def tiny_suite() -> dict[str, float]:
    """The recorded runs of the tiny language model, every answer labelled: where agreement stands at the end, and
    whether a run that does not lose gold was called hollow at any of its looks."""
    below, above, hollow, kinds = 0, 0, 0, []
    for _, run in sorted(load_packed().items()):
        trace = to_trace(run)
        kinds.append(estimate_truth(trace).kind)
        start = prepare_reference(trace.reward[:4].reshape(-1))
        folded, was_hollow = AgreementAndGain(), False
        for step, (reward, label) in enumerate(zip(trace.reward, trace.label, strict=True)):
            rows, size = label.shape
            starts = np.arange(0, label.size + 1, size)
            agree = pair_agreement(label.reshape(-1), reward.reshape(-1), starts, np.ones(label.size))
            wins = win_share(reward.reshape(-1), start).reshape(label.shape)
            readings = {
                "group.size": [float(size), rows, 0.0],
                "gold.prompts": [float(label.mean()), label.size, None, label.mean(1).tolist()],
                "reward.win_share": [float(wins.mean()), wins.size, packed(wins.mean(1))[2]],
            }
            if np.isfinite(agree).any():
                readings["gold.agreement"] = packed(agree[np.isfinite(agree)])
            folded.add(0, step, readings)
            if step % 10 == 9 and (gain := folded.gain()) is not None:
                was_hollow |= gain.is_hollow
        agreement = folded.agreement()
        assert agreement is not None
        below += kinds[-1] == "hack" and agreement.high < 0.5
        above += kinds[-1] != "hack" and agreement.low > 0.5
        hollow += kinds[-1] != "hack" and was_hollow
    hacks = kinds.count("hack")
    return {
        "tiny_hacks": hacks,
        "tiny_hacks_surely_below_a_coin": below,
        "tiny_benign": len(kinds) - hacks,
        "tiny_benign_surely_above_a_coin": above,
        "tiny_benign_hollow": hollow,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/agreement.json")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    runs = [one_run(KINDS[number % len(KINDS)], rng) for number in range(options.runs)]
    few = max(options.runs // 20, 5)
    hollow = {kind: np.mean([called_hollow(kind, rng) for _ in range(few)]) for kind in GAINS}
    figures: dict[str, float] = {
        "runs": len(runs),
        "steps": STEPS,
        "coverage": round(float(np.mean([run["held"] for run in runs])), 4),
        "level_coverage": round(float(np.mean([held for run in runs for held in run["level_held"]])), 4),
        "fixed_coverage": round(float(np.mean([run["fixed"] for run in runs])), 4),
        "median_width_at_step_5": round(float(np.median([run["width_5"] for run in runs])), 3),
        "median_width_at_step_150": round(float(np.median([run["width_150"] for run in runs])), 3),
        "hollow_runs_of_each_kind": few,
        **{f"hollow_{kind}": round(float(share), 3) for kind, share in hollow.items()},
    }
    if options.runs >= 1000:
        figures |= tiny_suite()
    show(record("agreement", figures, seed=options.seed, keep=options.write), as_json=options.json)
    return 0 if figures["coverage"] >= 0.99 and figures["level_coverage"] >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
