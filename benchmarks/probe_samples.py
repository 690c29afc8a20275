"""What samples that others scored say of the scores: agreement, best-of-n curves, and rounds of optimising a judge.

    python benchmarks/probe_samples.py [--json] [--write]

Data: 100 MATH problems with 8 samples each, scored by a reward model (`math_group_samples_rm`); 120 tasks with 24
samples each, scored by a judge, and rounds of revision against that judge or without it (`judge_goodhart`). Curves are
means over all subsets of n; intervals are Student's over prompts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from record import record, show
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.probe.attack_effects import PromptInterval, mean_over_prompts
from tiltmeter_workbench.probe.best_of_n import Samples, ranking
from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.probe.scorecard_text import tail_sentence

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SCORED = (
    ("a reward model on MATH", "math_group_samples_rm/samples.jsonl.gz", "idx", "rm_score"),
    ("a judge, best of 24", "judge_goodhart/best_of_n.jsonl.gz", "task_id", "judge_score"),
)


def shown(found: PromptInterval) -> str:
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def scored(name: str, path: str, group: str, score: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One data set in a line, and its curve."""
    rows = read_rows(DATA / path)
    samples = Samples.of([row[group] for row in rows], [row[score] for row in rows], [row["correct"] for row in rows])
    found = ranking(samples)
    line = {
        "data": name,
        "samples": found.samples,
        "groups": found.groups,
        "mixed groups": found.mixed,
        "right before wrong": shown(found.agreement),
        "gold peaks at n": found.peak,
        "loss from there to the largest n": shown(found.fall),
        "tail": tail_sentence(found.tail),
    }
    curve = [
        {"data": name, "n": p.n, "by the score": shown(p.chosen), "oracle": shown(p.oracle), "random": shown(p.random)}
        for p in found.curve
    ]
    return line, curve


def rounds(path: str, gold: str, keep: Any = None) -> list[dict[str, Any]]:
    """Judge score and gold by arm and round."""
    rows = [row for row in read_rows(DATA / path) if keep is None or keep(row)]
    made = []
    for arm in sorted({row["arm"] for row in rows}):
        for number in sorted({row["round"] for row in rows}):
            here = [row for row in rows if row["arm"] == arm and row["round"] == number]
            items = [ProbeItem(str(row["task_id"]), "") for row in here]
            judged, true = (
                np.array([np.nan if row[key] is None else float(row[key]) for row in here], np.float64)
                for key in ("judge_score", gold)
            )
            made.append(
                {"data": Path(path).name.split(".")[0], "arm": arm, "round": number, "tasks": len(here),
                 "judge": shown(mean_over_prompts(items, judged, 0.95)),
                 gold: shown(mean_over_prompts(items, true, 0.95))}
            )  # fmt: skip
    return made


def measure() -> dict[str, Any]:
    both = [scored(*each) for each in SCORED]
    return {
        "scores": [line for line, _ in both],
        "best_of_n": [point for _, curve in both for point in curve],
        "rounds_aligned": rounds("judge_goodhart/iterative_aligned.jsonl.gz", "correct"),
        "rounds_unanswerable": rounds(
            "judge_goodhart/iterative_opposed.jsonl.gz", "fabricated", lambda row: not row["answerable"]
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="nothing here is random; kept for the record")
    parser.add_argument("--quick", action="store_true", help="the same, nothing written: it takes seconds")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/probe_samples.json")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not (DATA / SCORED[0][1]).exists():
        print("not measured: the scored samples are not on this machine", file=sys.stderr)
        print(json.dumps({"measured": False}) if asked.json else "not measured")
        return 0
    result = record("probe_samples", measure(), seed=asked.seed, keep=asked.write and not asked.quick)
    show(result, as_json=asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
