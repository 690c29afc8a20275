"""Reads rollout summaries of the Tinker cookbook: numbers of every step of a trajectory, without its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import (
    StepFiles,
    bundle_steps,
    list_folder,
    list_folders,
    numbered_names,
    run_name,
    size_of,
)
from tiltmeter.audit.readers.jsonl import as_store_errors, first_row, logged_metrics, read_rows, require_rows
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.audit.readers.trajectories.scores import option_notes, plain_facts
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import as_number, as_object, as_objects, batch_of
from tiltmeter.data.turns import ASSISTANT, TOOL, Turn
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation, score_evaluation
from tiltmeter.safety.safe_text import log_line

_ITERATION = re.compile(r"iteration_(\d+)")
_TRAIN = "train_rollout_summaries.jsonl"
_EVAL = re.compile(r"(eval_.+|test)_rollout_summaries\.jsonl")


class TinkerReader:
    """Summaries of rollouts: rewards, lengths and logs of every step. What was said is in other files, as HTML.

    A step is a turn of the policy with its tokens and reward; what the environment logged of it is the tool's answer.
    """

    name = "tinker"
    title = "Tinker cookbook: iteration_N/*_rollout_summaries.jsonl and metrics.jsonl"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        homes = [one for one in list_folders(path) if any(map(_ITERATION.fullmatch, one.folders))]
        root = path if path.is_dir() else path.parent
        return collect_runs({str(one.folder): partial(_run, one.folder, root, options) for one in homes})

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        for file, step in zip(map(Path, piece.files), piece.steps, strict=True):
            with as_store_errors(file):
                records = require_rows(file, list(read_rows(file, growing=step == run.settings["newest"])))
                batch = batch_of(step, [_row(row, run.settings["gold"]) for row in records])
            yield replace(batch, prompt=None, completion=None)  # there is no text, which is not an empty one


def _run(home: Path, root: Path, options: ReadOptions) -> ExternalRun | None:
    listing = list_folder(home)
    trained: list[StepFiles] = []
    held_out: list[tuple[int, Path]] = []
    for step, name in numbered_names(home, listing.folders, _ITERATION):
        for file in (home / name / one for one in list_folder(home / name).files):
            if file.name == _TRAIN:
                trained.append(StepFiles(step, (file,), size_of(file)))
            elif _EVAL.fullmatch(file.name):
                held_out.append((step, file))
    if not trained and not held_out:
        return None
    first = first_row(trained[0].files[0] if trained else held_out[0][1])
    if first and not {"total_reward", "steps", "group_idx"} <= first.keys():
        raise StoreError(f"{home}: its summaries have no total_reward, steps and group_idx; a newer format is not read")
    gold = options.columns.get("gold", "")
    if gold and gold not in as_object(first.get("trajectory_metrics")):
        names = ", ".join(log_line(name, 60) for name in as_object(first.get("trajectory_metrics"))) or "none"
        raise StoreError(f"{home}: no metric {log_line(gold, 60)!r} for gold; there are {names}")
    evaluations, notes = _evaluations(held_out)
    logged, metric_notes = logged_metrics(home / "metrics.jsonl")
    described = (
        f"Tinker: summaries of {len(trained)} iterations, groups by group_idx; the reward is total_reward",
        "no text in these files: what was said is not read; a step is a turn, with its tokens, reward and logs",
        *([f"gold: {log_line(gold, 60)}, as given"] if gold else []),
    )
    return ExternalRun(
        run_name(home, root),
        TinkerReader.name,
        bundle_steps(trained),
        (*described, *notes[:50], *metric_notes, *option_notes(options, used=("gold",))),
        {"gold": gold, "newest": trained[-1].step if trained else -1},
        logged,
        tuple(evaluations),
    )


def _evaluations(files: list[tuple[int, Path]]) -> tuple[list[Evaluation], list[str]]:
    evaluations, notes = [], []
    for step, file in files:
        name = file.name.removesuffix("_rollout_summaries.jsonl")
        try:
            with as_store_errors(file):
                rows = list(read_rows(file, growing=True))
                one, why = score_evaluation(
                    step, name, ((row.get("group_idx"), row.get("total_reward")) for row in rows)
                )
        except StoreError as error:
            one, why = None, str(error)
        evaluations += [one] if one else []
        notes += [] if one else [f"{log_line(name, 60)} at iteration {step} is no evaluation: {log_line(why, 120)}"]
    return evaluations, notes


def _row(row: TableRow, gold: str) -> dict[str, Any]:
    steps = as_objects(row.get("steps"))
    turns: list[Turn] = []
    at, rewards = 0, []
    for step in steps:
        length = step.get("ac_len")
        count = length if isinstance(length, int) and 0 <= length < 2**40 else 0
        reward = as_number(step.get("reward"))
        rewards.append(float("nan") if reward is None else reward)
        turns.append(Turn(ASSISTANT, reward=reward, tokens=(at, at + count)))
        at += count
        if logs := as_object(step.get("logs")):
            turns.append(Turn(TOOL, json.dumps(logs, ensure_ascii=False), parent=len(turns) - 1))
    tags = [str(tag) for tag in row.get("tags") or () if isinstance(tag, (str, int))]
    metrics = as_object(row.get("trajectory_metrics"))
    return {
        "group": str(row.get("group_idx")),
        "turns": turns,
        "reward": row.get("total_reward"),
        "gold": as_number(metrics.get(gold)) if gold else None,
        "length": at,
        "step_reward": rewards,
        "env": "/".join(tags) or None,
        "version": as_number(row.get("sampling_client_step")),
        "stop": "done" if steps and steps[-1].get("episode_done") else "unknown",
        "facts": plain_facts(metrics) or None,
    }
