"""Draw random pairs of answers from a monitored run and label them, never answers that the monitor audited.

Gold labels of the monitor feed its alarm. A reward model trained on them would be fitted to the alarm's own sample, so
audited answers are excluded, and nothing in here opens a file of the monitor's labels.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError
from tiltmeter.gold import LATER, CompletionToLabel, GoldSource
from tiltmeter.gold.label_files import read_request, to_label
from tiltmeter.gold.sampler import Row as Place
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.run_path import entries
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import RunWatcher
from tiltmeter_workbench.common.table_files import Row
from tiltmeter_workbench.train.method_interface import Progress
from tiltmeter_workbench.train.methods.sampling import append_jsonl, read_jsonl

MONITOR_TIMEOUT = 1800.0  # seconds to wait until the monitor has measured the end of a run
LABEL_BATCH = 8  # pairs that are labelled together
COLUMNS = ("group", "prompt", "completion", "facts", "length", "truncated")


def audited_rows(run: RunDirectory) -> set[Place]:
    """Attempt, step and row of every answer for which the monitor requested a label, labelled or not."""
    rows: set[Place] = set()
    for name in sorted(entry.name for entry in entries(run.path / "gold" / "requests")):
        if not re.fullmatch(r"\d+-\d+(\.\w+)?\.jsonl", name):
            continue
        key, _, purpose = name.removesuffix(".jsonl").partition(".")
        attempt, _, step = key.partition("-")
        requests = read_request(run, int(attempt), int(step), purpose)
        rows |= set() if requests is None else set(requests.rows)
    return rows


def draw_pairs(directory: str | Path, count: int, seed: object, timeout: float = MONITOR_TIMEOUT) -> list[Row]:
    """Up to `count` pairs, each of another group, drawn uniformly over the run's groups. Raises `AttachError` where the
    monitor has not measured the whole run after `timeout` seconds: its label requests are not final before."""
    run = RunDirectory(directory)
    steps = _measured_steps(run, timeout)
    excluded = audited_rows(run)
    groups = [(step, at) for step in steps for at in range(_group_count(run, step))]
    random.Random(f"tiltmeter/{seed}").shuffle(groups)
    pairs: list[Row] = []
    rng = random.Random(f"tiltmeter/{seed}/rows")
    while groups and len(pairs) < count:
        part, groups = groups[: count - len(pairs)], groups[count - len(pairs) :]
        for step in steps:
            if chosen := [at for one, at in part if one is step]:
                batch = read_step(run, step.attempt, step.step, step.data["ranks"], COLUMNS)
                pairs += _pairs_from_groups(batch, chosen, excluded, rng)
    return pairs


def _measured_steps(run: RunDirectory, timeout: float) -> list[Event]:
    """The steps of the run's current history, each with all of its label requests on disk."""
    view, deadline = RunWatcher(run), time.monotonic() + timeout
    while True:
        view.update()
        done = [event for event in view.events if event.kind == "step_done"]
        late = [one for one in done if "requests" in one.data and read_request(run, one.attempt, one.step) is None]
        if done and not late and view.ages is not None and not view.ages.behind:
            break
        if time.monotonic() > deadline:
            raise AttachError(
                f"{run.path}: the monitor has not measured every step, so nobody knows yet which answers it will ask "
                f"about: run `tiltmeter watch {run.path}`, then this again"
            )
        time.sleep(0.5)
    spans = view.run_facts.spans()
    return [event for event in done if event.step < spans.get(event.attempt, -1)]


def _group_count(run: RunDirectory, step: Event) -> int:
    return len(read_step(run, step.attempt, step.step, step.data["ranks"], ("group",)).starts) - 1


def _pairs_from_groups(
    batch: RolloutBatch, chosen: Sequence[int], excluded: set[Place], rng: random.Random
) -> Iterator[dict[str, Any]]:
    if batch.prompt is None or batch.completion is None:
        return
    for at in chosen:
        rows = range(int(batch.starts[at]), int(batch.starts[at + 1]))
        candidates = [row for row in rows if (batch.attempt, batch.step, row) not in excluded and batch.completion[row]]
        rng.shuffle(candidates)
        other = next((row for row in candidates[1:] if batch.completion[row] != batch.completion[candidates[0]]), None)
        if other is None or batch.prompt[candidates[0]] is None:
            continue
        both = (candidates[0], other)
        yield {
            "attempt": batch.attempt,
            "step": batch.step,
            "rows": list(both),
            "prompt": batch.prompt[candidates[0]],
            "completions": [batch.completion[row] for row in both],
            "facts": [_facts_of(batch, row) for row in both],
        }


def _facts_of(batch: RolloutBatch, row: int) -> dict[str, Any]:
    facts = {} if batch.facts is None else from_text(batch.facts[row])
    columns = (name for name in ("length", "truncated") if batch.column(name) is not None)
    return facts | {name: getattr(batch, name)[row].item() for name in columns}


def label_pairs(folder: Path, source: GoldSource, progress: Progress) -> list[Row]:
    """The drawn pairs as chosen and rejected answers; pairs without a label, or with equal labels, are left out.

    Labels are appended to `labels.jsonl`, so that none is requested twice.
    """
    pairs, path = read_jsonl(folder / "drawn.jsonl"), folder / "labels.jsonl"
    for first in range(len(read_jsonl(path)), len(pairs), LABEL_BATCH):
        part = pairs[first : first + LABEL_BATCH]
        append_jsonl(
            path,
            [
                {**_position(pair), "labels": labels}
                for pair, labels in zip(part, _request_labels(source, part), strict=True)
            ],
        )
        progress("labelling", min(first + LABEL_BATCH, len(pairs)), len(pairs))
    rows = []
    for pair, row in zip(pairs, read_jsonl(path), strict=True):
        one, other = row["labels"]
        if one is not None and other is not None and one != other:
            texts = pair["completions"] if one > other else pair["completions"][::-1]
            rows.append({"prompt": pair["prompt"], "chosen": texts[0], "rejected": texts[1], **_position(pair)})
    return rows


def _position(pair: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pair[name] for name in ("attempt", "step", "rows")}


def _request_labels(source: GoldSource, pairs: Sequence[Row]) -> list[list[float | None]]:
    requests = [
        CompletionToLabel(f"{pair['attempt']}-{pair['step']}-{row}", pair["attempt"], pair["step"], row, "refresh",
                pair["prompt"], text, facts)
        for pair in pairs
        for row, text, facts in zip(pair["rows"], pair["completions"], pair["facts"], strict=True)
    ]  # fmt: skip
    values = [to_label(None if answer is LATER else answer).value for answer in source.label(requests)]
    return [values[at : at + 2] for at in range(0, len(values), 2)]
