"""Which columns `gold="auto"` takes, of datasets of which it is known whether they say what is right.

    python benchmarks/trusted_columns.py

Every dataset goes through the product: `find_gold` sees its rows, the monitor measures its completions, four prompts a
step, and labels them, and the run is judged. A column is taken where attach takes it and its trial in the run ends with
it. `columns_wrong_taken` counts those that must not be taken; labels are compared with the truth of each completion.
`known_*` are the 23 datasets of `trusted_columns_known.py`; the others are in a module written by somebody else.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from record import record, show
from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.gold import CompletionToLabel
from tiltmeter.gold.find_gold import FoundGold, TrainingSetup, find_gold
from tiltmeter.gold.task_checks import ANSWERS, TaskChecks
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run
from trusted_columns_known import known_datasets

STEP_PROMPTS = 4
SEALED = "sealed_columns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--runs", type=int, default=3, help="draws of the completions of the known datasets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="the smallest size")
    options = parser.parse_args()
    figures = measure_columns(options.runs, options.seed, options.small)
    show(record("trusted_columns", figures, seed=options.seed, keep=not options.small), as_json=options.json)


def measure_columns(runs: int, seed: int, small: bool) -> dict[str, Any]:
    """The figures of the known datasets and, where its module is there, of the sealed ones."""
    known = [one for run in range(1 if small else runs) for one in known_datasets(seed + run)]
    figures = {f"known_{name}": value for name, value in measure_datasets(known[:6] if small else known).items()}
    if importlib.util.find_spec(SEALED) is not None:
        sealed = importlib.import_module(SEALED).DATASETS
        figures |= measure_datasets(sealed[:4] if small else sealed)
    return figures


def measure_datasets(datasets: Iterable[Any]) -> dict[str, Any]:
    """What was taken of these, by dataset and together."""
    rows = [measure_dataset(one) for one in datasets]
    good = [row for row in rows if row["good"]]
    accuracies = [row["accuracy"] for row in rows if row["taken"] and row["accuracy"] is not None]
    return {
        "columns": len(rows),
        "columns_wrong_taken": sum(row["taken"] and not row["good"] for row in rows),
        "columns_wrong_offered": sum(bool(row["gold"]) and not row["good"] for row in rows),
        "columns_good_taken_share": round(sum(row["taken"] for row in good) / len(good), 3) if good else None,
        "columns_label_accuracy": round(float(np.mean(accuracies)), 3) if accuracies else None,
        "columns_label_accuracy_least": round(min(accuracies), 3) if accuracies else None,
        "columns_rows": rows,
    }


def measure_dataset(dataset: Any) -> dict[str, Any]:
    """Whether the column of one dataset is taken, why not, and how often its labels are right."""
    columns = list(dict.fromkeys(name for row in dataset.rows for name in row))
    found = find_gold(TrainingSetup({str(dataset.rewards): len}, rows=dataset.rows, columns=columns))
    row = {"name": dataset.name, "good": bool(dataset.good), "gold": found.name, "taken": False, "accuracy": None}
    if not found.name:
        return row | {"why": _refusal(found)}
    rollouts = [(_row_of(one[0], dataset.rows), *one[1:]) for one in dataset.rollouts]
    state, sentence = judge_rollouts(found.name, rollouts)
    taken = state == "taken" or not found.name.startswith(ANSWERS)
    return row | {"taken": taken, "accuracy": label_accuracy(found.name, rollouts), "why": "" if taken else sentence}


def _refusal(found: FoundGold) -> str:
    return next((line for line in found.lines if line.startswith("Found ")), found.lines[0])


def _row_of(row: Any, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return rows[int(row)] if isinstance(row, (int, np.integer)) else row


def judge_rollouts(gold: str, rollouts: Sequence[tuple[Mapping[str, Any], str, float, bool]]) -> tuple[str, str]:
    """How the trial of the column ends in a run with these completions, and the verdict's sentence."""
    prompts = list(dict.fromkeys(str(row.get("prompt")) for row, *_ in rollouts))
    with tempfile.TemporaryDirectory(prefix="columns-") as folder:
        with open_run(Path(folder) / "run", monitor=False, options=Options(on_full="wait")) as run:
            for step, start in enumerate(range(0, len(prompts), STEP_PROMPTS)):
                part = prompts[start : start + STEP_PROMPTS]
                chosen = [one for prompt in part for one in rollouts if str(one[0].get("prompt")) == prompt]
                run.observe(
                    step=step,
                    group=[part.index(str(row.get("prompt"))) for row, *_ in chosen],
                    reward=[float(reward) for _, _, reward, _ in chosen],
                    prompt=[str(row.get("prompt")) for row, *_ in chosen],
                    completion=[text for _, text, *_ in chosen],
                    facts=[_facts(row) for row, *_ in chosen],
                )
        directory = RunDirectory(Path(folder) / "run")
        loop = MonitorLoop(directory, Config.standard(gold=gold, gold_share=1.0))
        loop.poll()
        loop.close()
        verdict, run_facts, _ = judge_run(directory)
        return "" if run_facts.trial is None else run_facts.trial.state, verdict.sentence


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "prompt"}


def label_accuracy(gold: str, rollouts: Sequence[tuple[Mapping[str, Any], str, float, bool]]) -> float | None:
    """The share of completions whose label is the truth; a missing label is not."""
    source = TaskChecks(gold)
    requests = [
        CompletionToLabel(f"0-0-{at}", 0, 0, at, "level", str(row.get("prompt")), text, _facts(row))
        for at, (row, text, *_) in enumerate(rollouts)
    ]
    try:
        labels = source.label(requests)
    finally:
        source.close()
    hits = [label == float(one[3]) for label, one in zip(labels, rollouts, strict=True)]
    return round(sum(hits) / len(hits), 3) if hits else None


if __name__ == "__main__":
    main()
