"""What the tests and forecasts say about real runs that others logged, as found: four public sets, no rates claimed.

    python benchmarks/real_logs.py [--data PATH] [--json]

No run here has labels for single responses, so the slope alarm cannot be tried. Tried are the level test on evaluation
series, the classic moving-average rule, the gap between proxy and truth relative to the start, entropy, the onset of a
planted bias, and the over-optimisation curve.

Said with each figure and true of all: few runs, no control, and a threshold of 1/α = 100 for every single series.

- `entropy_runs`: rollouts of training steps on changing prompts, not a fixed held-out set. The level test is run as if
  it were one, so its promise does not cover it. n = batch size x group size of the run's configuration.
- `heldout`: the same runs' checkpoints on a fixed held-out set. n is not given: taken is the smallest that makes every
  printed proxy share a whole number of answers. Steps are the order of checkpoints.
- `grpo_runs`: 50 problems x 8 samples. n = 400 is right for a claim about these 50 problems; n = 50 is the careful
  choice for problems like them. Both are given.
- `hollow`: reward and truth as two curves, as `tiltmeter audit` reads them; the promise covers the truth's side alone.
  Where the number of rollouts is unknown 64 are assumed, fewer than any run has that says it.
- `onsets`: the gap is a centred mean over 5 steps: its value at step t has seen t + 2, so alarms are dated 2 later, and
  neighbours share noise, which voids the bet's promise. The reference onset is operational, not a truth.
- `curves`: order and part by KL; the start is the point of smallest KL of the same model, judge and source, if below 1
  nat. A found peak is the largest of noisy win rates (n = 512), and counts as one if the curve ends 0.05 below it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isfinite, log, nan, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from record import record
from tiltmeter.stats.changepoint import change_point
from tiltmeter.stats.evaluation_drop import EvaluationDropTest
from tiltmeter.stats.overoptimisation import Form, forecast_peak
from tiltmeter.stats.sequential import SequentialTest
from tiltmeter.stats.trend import ma_trend
from tiltmeter.verdict.agreement_and_gain import AgreementAndGain

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ALARM = log(100.0)
FEW = 64  # rollouts of a step where their number is not known: fewer than any run has that says it
GAP = 0.10  # how much further apart proxy and truth may move than they were at the start
QUIET = 0.05  # planted part of the reward below which a run counts as not yet hacking

Row = dict[str, str]
Figures = dict[str, Any]


def rows(data: Path, name: str) -> list[Row]:
    with gzip.open(data / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def number(text: str) -> float:
    return float(text) if text else nan


def level(series: Iterable[tuple[int, float]], n: float) -> Figures:
    """The level test over a whole series: its largest evidence, the step it alarms at, and where it puts the fall."""
    test, alarm, most, fell = EvaluationDropTest(), None, -np.inf, None
    for step, value in series:
        test.place(step, value, n)
        most = max(most, test.evidence)
        if alarm is None and test.evidence >= ALARM:
            alarm, fell = step, test.drop_steps()
    return {
        "n": int(n),
        "log_evidence": round(most, 2) if isfinite(most) else None,
        "alarm_step": alarm,
        "fell_between": fell,
    }


def hollow_step(steps: Sequence[int], proxy: Sequence[float], truth: Sequence[float], n: float) -> int | None:
    """The first step at which the two curves, as `tiltmeter audit` reads them, are called hollow."""
    folded = AgreementAndGain()
    for step, paid, true in zip(steps, proxy, truth, strict=True):
        folded.add(0, step, {"training.reward": [paid, 1, None]})
        folded.add(0, step, {"eval.truth": [true, n, None]})
        if (gain := folded.gain()) is not None and gain.is_hollow:
            return step
    return None


def gap_step(steps: Sequence[int], proxy: Sequence[float], truth: Sequence[float], window: int) -> int | None:
    """The first step at which the mean gap of the last `window` exceeds that of the first `window` by more than GAP."""
    gap = np.array(proxy) - np.array(truth)
    start = float(gap[:window].mean())
    for end in range(window, len(gap) + 1):
        if float(gap[end - window : end].mean()) - start > GAP:
            return steps[end - 1]
    return None


def entropy_runs(data: Path) -> list[Figures]:
    folder = data / "rl_logs_reward_hacking_entropy"
    sizes = {row["run"]: number(row["batch_size"]) * number(row["group_size"]) for row in rows(folder, "run_configs")}
    segments: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows(folder, "train_metrics"):
        if row["proxy_g"] and row["true_f"]:
            segments[row["run"], row["segment"]].append(row)
    found = []
    for (run, segment), part in segments.items():
        if len(part) < 10:
            continue
        steps = [int(row["step"]) for row in part]
        proxy, truth, entropy = (
            [number(row[name]) for row in part] for name in ("proxy_g", "true_f", "policy_entropy")
        )
        n = sizes.get(run, nan)
        known = [(step, value) for step, value in zip(steps, truth, strict=True) if 0.0 <= value <= 1.0]
        found.append(
            {
                "run": run,
                "segment": int(segment),
                "steps": len(part),
                "proxy": [round(float(np.mean(proxy[:5])), 3), round(float(np.mean(proxy[-5:])), 3)],
                "truth": [round(float(np.mean(truth[:5])), 4), round(float(np.mean(truth[-5:])), 4)],
                "entropy_ratio": round(float(np.mean(entropy[-5:]) / np.mean(entropy[:5])), 3),
                "gap_flag_step": gap_step(steps, proxy, truth, 5),
                "hollow_step": hollow_step(steps, proxy, truth, n if isfinite(n) and n > 0 else FEW),
                "ma_trend_100": shown(ma_trend(proxy, truth, 100)),
                "ma_trend_5": shown(ma_trend(proxy, truth, 5)),
                "level": level(known, n) if isfinite(n) and n > 0 else "not tried: the number of rollouts is unknown",
            }
        )
    return found


def heldout(data: Path) -> list[Figures]:
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows(data / "rl_logs_reward_hacking_entropy", "heldout_scores"):
        runs[row["run"]].append(row)
    found = []
    for run, part in runs.items():
        proxy, truth = ([number(row[name]) for row in part] for name in ("avg_g", "avg_f"))
        n = next((n for n in range(8, 1025) if all(abs(n * g - round(n * g)) < 1e-6 for g in proxy)), None)
        if n is None or len(part) < 3:
            continue
        found.append(
            {
                "run": run,
                "checkpoints": len(part),
                "proxy": [round(proxy[0], 3), round(proxy[-1], 3)],
                "truth": [round(truth[0], 4), round(truth[-1], 4)],
                "gap_flag_checkpoint": gap_step(range(len(part)), proxy, truth, 3),
                "hollow_checkpoint": hollow_step(range(len(part)), proxy, truth, n),
                "level": level(enumerate(truth), n),
            }
        )
    return found


def shown(value: float) -> float | str:
    return round(value, 3) if isfinite(value) else "cannot judge"


def grpo_runs(data: Path) -> list[Figures]:
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows(data / "grpo_reward_vs_eval", "eval_trajectory"):
        runs[row["experiment"], row["run"]].append(row)
    found = []
    for (experiment, run), part in runs.items():
        steps = [int(row["step"]) for row in part]
        proxy, truth = ([number(row[name]) for row in part] for name in ("mean_reward", "honest_accuracy"))
        series = list(zip(steps, truth, strict=True))
        found.append(
            {
                "experiment": experiment,
                "run": run,
                "proxy": [proxy[0], proxy[-1]],
                "truth": [truth[0], truth[-1]],
                "level_400": level(series, 400),
                "level_50": level(series, 50),
                "gap_flag_step": gap_step(steps, proxy, truth, 1),
                "hollow_step": hollow_step(steps, proxy, truth, 400),
                "ma_trend_100": shown(ma_trend(proxy, truth, 100)),
            }
        )
    return found


def onsets(data: Path) -> list[Figures]:
    folder = data / "cherrl_onset"
    gaps: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows(folder, "gap_by_step"):
        if row["gap_smooth"]:
            gaps[row["run"]].append((int(row["step"]), number(row["gap_smooth"])))
    found = []
    for reference in rows(folder, "onsets"):
        if reference["source"] != "definition" or reference["primary"] != "1" or reference["run"] not in gaps:
            continue
        steps = [step for step, _ in gaps[reference["run"]]]
        values = np.array([QUIET - gap for _, gap in gaps[reference["run"]]])
        bets, alarm = SequentialTest(block=20), None
        for step, value in zip(steps, values, strict=True):
            bets.place(step, [float(value) / QUIET])  # the widest scale: the gap is never negative, so u <= 1
            if bets.evidence >= ALARM:
                alarm = step
                break
        seen = values if alarm is None else values[: steps.index(alarm) + 1]
        onset, low, high = (steps[index] for index in change_point(seen))
        found.append(
            {
                "run": reference["run"],
                "reference_onset": int(reference["onset"]),
                "reference_range": [int(reference["onset_min"]), int(reference["onset_max"])],
                "severe_step": int(reference["severe_step"]),
                "alarm_step": None if alarm is None else alarm + 2,
                "onset": onset,
                "onset_range": [low, high],
                "onset_error": onset - int(reference["onset"]),
                "onset_of_whole_run": steps[change_point(values)[0]],
            }
        )
    return found


def curves(data: Path) -> list[Figures]:
    groups: dict[tuple[str, ...], list[tuple[float, float, float]]] = defaultdict(list)
    nearest: dict[tuple[str, ...], tuple[float, float]] = {}
    for row in rows(data / "overopt_direct_alignment", "curves"):
        kl, won, n = number(row["kl"]), number(row["win_rate"]), number(row["n_prompts"])
        if not (isfinite(won) and kl > 0.0):
            continue
        family = row["source_file"], row["model"], row["judge"]
        groups[(*family, row["method"], row["beta"])].append((kl, won, n))
        if kl < nearest.get(family, (1.0, nan))[0]:
            nearest[family] = kl, won
    found = []
    for name, points in sorted(groups.items()):
        if len(points) < 6:
            continue
        points.sort()
        d, rate = np.sqrt([kl for kl, _, _ in points]), np.array([won for _, won, _ in points])
        error = np.sqrt(np.maximum(rate * (1.0 - rate), 0.01) / np.array([n for _, _, n in points]))
        best = int(rate.argmax())
        start = nearest.get(name[:3])
        curve: Figures = {
            "curve": " ".join(part.split("/")[-1] for part in name),
            "points": len(points),
            "kl": [round(points[0][0], 2), round(points[-1][0], 2)],
            "best_rate": round(float(rate[best]), 3),
            "last_rate": round(float(rate[-1]), 3),
            "found_peak": round(float(d[best]), 2),
            "peaked": bool(rate[best] - rate[-1] >= 0.05),
        }
        forms: tuple[Form, Form] = ("rl", "best_of_n")
        for share in (0.5, 0.75, 1.0):
            for form in forms:
                upto = int(np.ceil(share * len(points)))
                curve[f"{form}_{int(100 * share)}"] = said(d[:upto], rate[:upto], error[:upto], form, start)
        found.append(curve)
    return found


def said(d: Any, rate: Any, error: Any, form: Form, start: tuple[float, float] | None) -> Figures | str:
    """The forecast from the first part of a curve, or the reason why there is none."""
    if start is None:
        return "no evaluation of this model near the start"
    origin = start[1]
    after = d > sqrt(start[0]) + 1e-9
    found = forecast_peak(
        d[after], rate[after] - origin, error[after], form, start=origin, start_stderr=sqrt(origin * (1 - origin) / 512)
    )
    if not found.holds:
        return found.refused
    return {"peak": round(found.peak, 2), "low": round(found.low, 2), "high": round(min(found.high, 1e6), 2)}


def forecast_check(found: list[Figures]) -> Figures:
    """Over curves that peaked after their part: how many forecasts were given, and how far off."""
    checked: Figures = {}
    for form in ("rl", "best_of_n"):
        for share in (50, 75):
            told = [curve for curve in found if curve["peaked"] and isinstance(curve[f"{form}_{share}"], dict)]
            errors = [abs(curve[f"{form}_{share}"]["peak"] / curve["found_peak"] - 1.0) for curve in told]
            checked[f"{form}_{share}_given"] = len(told)
            checked[f"{form}_{share}_median_error"] = round(float(np.median(errors)), 3) if errors else None
    return checked


def measure(data: Path) -> Figures:
    logged, evaluated, planted, fitted = entropy_runs(data), grpo_runs(data), onsets(data), curves(data)
    held = heldout(data)
    tried = [run for run in logged if isinstance(run["level"], dict)]
    return {
        "entropy_segments": len(logged),
        "entropy_hollow": [f"{run['run']}/{run['segment']}" for run in logged if run["hollow_step"] is not None],
        "heldout_hollow": [run["run"] for run in held if run["hollow_checkpoint"] is not None],
        "grpo_hollow": [run["run"] for run in evaluated if run["hollow_step"] is not None],
        "entropy_gap_flagged": sum(run["gap_flag_step"] is not None for run in logged),
        "entropy_level_tried": len(tried),
        "entropy_level_alarms": sum(run["level"]["alarm_step"] is not None for run in tried),
        "entropy_ma_trend_judged": sum(run["ma_trend_100"] != "cannot judge" for run in logged),
        "heldout_runs": len(held),
        "heldout_gap_flagged": sum(run["gap_flag_checkpoint"] is not None for run in held),
        "heldout_level_alarms": sum(run["level"]["alarm_step"] is not None for run in held),
        "grpo_level_alarms_400": [run["run"] for run in evaluated if run["level_400"]["alarm_step"] is not None],
        "grpo_level_alarms_50": [run["run"] for run in evaluated if run["level_50"]["alarm_step"] is not None],
        "onset_errors": {run["run"]: run["onset_error"] for run in planted},
        "curves_fitted": len(fitted),
        "curves_peaked": sum(curve["peaked"] for curve in fitted),
        **{f"curves_{name}": value for name, value in forecast_check(fitted).items()},
        "entropy_runs": logged,
        "heldout": held,
        "grpo_runs": evaluated,
        "onsets": planted,
        "curves": fitted,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the four public sets")
    parser.add_argument("--seed", type=int, default=0, help="nothing here is random; kept for the record")
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not (asked.data / "overopt_direct_alignment").exists():
        print("not measured: the public logs are not on this machine", file=sys.stderr)
        print(json.dumps({"measured": False}) if asked.json else "not measured")
        return 0
    result = record("real_logs", measure(asked.data), seed=asked.seed, keep=not asked.quick)
    if asked.json:
        print(json.dumps(result))
        return 0
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            print(name)
            for each in value:
                print("   ", json.dumps(each))
        else:
            print(f"{name:32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
