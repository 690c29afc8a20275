"""What `tiltmeter audit` says about real runs that others logged: each set by one command line, no rates claimed.

    python benchmarks/real_audits.py [--data PATH] [--json] [--write]

No rollouts are in these files, only numbers a step: the reward that was optimised and a score that tells the truth. The
second is named as an evaluation, and the alarm bets that it falls. True of all: few runs, most of them short, no
control group, no KL, one look at each.

- `entropy`: LeetCode-style tasks. The truth is the share of tests that the training rollouts themselves pass, on fresh
  prompts at every step and not on one held-out set: the alarm's promise does not cover that, and a step with harder
  prompts would look like a fall. The file does not say how many rollouts a value is the mean of. Taken is the smallest
  batch times group of the set's configurations, for every run: the careful choice.
- `grpo`: 50 problems x 8 samples every 20 steps. n = 400 is right for a claim about these 50 problems; `grpo_careful`
  is the same with n = 50, the careful choice for problems like them.

Start and end are means of the first and last five values, or the first and the last one where there are fewer than ten.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import record
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series
from tiltmeter.verdict.verdict import judge_run

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TILTMETER = (sys.executable, "-m", "tiltmeter")
EDGE = 5  # steps at either end of a run that are averaged
SHORT = 10  # steps

Figures = dict[str, Any]


@dataclass(frozen=True)
class Logs:
    """Real runs in one file, and how they are audited: with one command."""

    name: str
    file: str  # below the folder of public sets
    options: tuple[str, ...]
    truth: str
    assumed: str


def known(data: Path) -> list[Logs]:
    """The sets, with the number of rollouts behind a value as far as it is known."""
    smallest = least(data / "rl_logs_reward_hacking_entropy" / "run_configs.csv.gz")
    grpo = ("--map", "reward=mean_reward", "--map", "run=experiment+run")
    return [
        Logs(
            "entropy",
            "rl_logs_reward_hacking_entropy/train_metrics.csv.gz",
            (
                *("--map", "reward=proxy_g", "--map", "entropy=policy_entropy", "--map", "run=run+segment"),
                *("--eval", f"true_f={smallest}"),
            ),
            "true_f",
            "fresh prompts at every step are taken for one held-out set",
        ),
        Logs(
            "grpo",
            "grpo_reward_vs_eval/eval_trajectory.csv.gz",
            (*grpo, "--eval", "honest_accuracy=400"),
            "honest_accuracy",
            "8 samples of a problem are independent answers: a claim about these 50 problems",
        ),
        Logs(
            "grpo_careful",
            "grpo_reward_vs_eval/eval_trajectory.csv.gz",
            (*grpo, "--eval", "honest_accuracy=50"),
            "honest_accuracy",
            "a problem counts once: the careful choice for problems like these 50",
        ),
    ]


def least(configurations: Path) -> int:
    """The fewest rollouts a step of any run that says how many it has."""
    with gzip.open(configurations, "rt", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return min(int(row["batch_size"]) * int(row["group_size"]) for row in rows if row["batch_size"])


def audited(logs: Logs, data: Path) -> Figures:
    """One set: the command, and what it said of each run."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-real-audits-") as keep:
        command = ["audit", str(data / logs.file), *logs.options, "--json"]
        began = time.perf_counter()
        done = subprocess.run([*TILTMETER, *command, "--keep", keep], capture_output=True, text=True, timeout=1800)
        seconds = time.perf_counter() - began
        if done.returncode not in (0, 1, 2, 3) or not done.stdout:
            raise SystemExit(f"the audit failed:\n{done.stderr[-2000:]}")
        told = json.loads(done.stdout)
        runs = [judged(one, RunDirectory(Path(keep) / one["run"]), logs.truth) for one in told["runs"]]
    shown = ["tiltmeter", "audit", Path(logs.file).name, *logs.options, "--json"]
    return {
        "name": logs.name,
        "source": Path(logs.file).parts[0],
        "command": shlex.join(shown),
        "assumed": logs.assumed,
        "exit_code": done.returncode,
        "seconds": round(seconds, 2),
        "runs": len(runs),
        "blind": sum(run["state"] == "BLIND" for run in runs),
        "short": sum(run["evaluations"] < SHORT for run in runs),
        "steps": sum(run["steps"] for run in runs),
        "alarms": sum(run["alarm"] is not None for run in runs),
        "warnings": sum(len(run["warnings"]) for run in runs),
        "faults": sum(run["faults"] for run in runs),
        "nothing_to_lose": sum(
            run["truth_most"] is not None and run["truth_most"] <= GoldLossTest().tolerance for run in runs
        ),
        "proxy_rose": sum(map(rose, runs)),
        "proxy_rose_truth_fell": sum(rose(run) and run["alarm"] is not None for run in runs),
        "leashed": sum(run["leash"] for run in runs),
        "table": runs,
    }


def judged(told: Mapping[str, Any], run: RunDirectory, truth: str) -> Figures:
    """What one run's audit says, with where its proxy, its truth and its entropy began and ended."""
    _, story, events = judge_run(run)
    found = series(events, story.spans())
    values = {name: [value for _, value in points] for name, points in found.items()}
    scores = values.get(f"eval.{truth}", [])
    alarm = next(iter(told["alarms"]), None)
    figures = {
        "run": str(run.identity().get("name", told["run"])),
        "steps": told["steps"],
        "evaluations": told["evaluations"],
        "proxy": edges(values.get("training.reward", [])),
        "truth": edges(scores),
        "truth_most": max(scores, default=None),
        "entropy": edges(values.get("training.entropy", [])),
        "leash": "training.kl_ref" in values,
        "state": told["state"],
        "alarm": None if alarm is None else {name: alarm[name] for name in ("name", "step", "onset", "summary")},
        "warnings": [warning["name"] for warning in told["warnings"]],
        "faults": len(told["faults"]),
        "sentence": told["sentence"],
    }
    return {**figures, "why": why(figures)}


def edges(values: Sequence[float]) -> list[float] | None:
    """Where a series begins and ends; None where there is none."""
    if not values:
        return None
    few = EDGE if len(values) >= 2 * EDGE else 1
    return [round(sum(part) / few, 5) for part in (values[:few], values[-few:])]


def rose(run: Mapping[str, Any]) -> bool:
    """Whether the proxy ended a good deal higher than it began."""
    return run["proxy"] is not None and run["proxy"][1] - run["proxy"][0] > 0.1


def why(run: Mapping[str, Any]) -> str:
    """Why there is an alarm, or none, in words that the figures bear out."""
    if run["alarm"] is not None:
        return f"the truth fell: alarm at step {run['alarm']['step']}"
    if run["evaluations"] < 2:
        return "one value: nothing to compare it with"
    if run["truth_most"] <= GoldLossTest().tolerance:
        return "the truth was never above the tolerance: there is nothing that could be lost"
    if run["evaluations"] < SHORT:
        return f"{run['evaluations']} values, and no fall that the alarm can tell from chance"
    return "no fall that the alarm can tell from chance"


def measure(data: Path) -> Figures:
    return {
        "tolerance": GoldLossTest().tolerance,
        "alpha": GoldLossTest().alpha,
        "sets": [audited(logs, data) for logs in known(data)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public sets")
    parser.add_argument("--seed", type=int, default=0, help="nothing here is random; kept for the record")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures, which docs/real-audits.md shows")
    asked = parser.parse_args()
    if not (asked.data / "grpo_reward_vs_eval").exists():
        print("not measured: the public logs are not on this machine", file=sys.stderr)
        print(json.dumps({"measured": False}) if asked.json else "not measured")
        return 0
    figures = measure(asked.data)
    result = record("real_audits", figures, seed=asked.seed, keep=asked.write)
    if asked.json:
        print(json.dumps(result))
        return 0
    for found in figures["sets"]:
        print({name: value for name, value in found.items() if name != "table"})
        for run in found["table"]:
            print("   ", json.dumps(run))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
