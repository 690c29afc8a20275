"""Pairs of answers drawn by chance from a watched run and labelled, never one that the monitor asked about.

What gold said of an answer feeds the alarm. A reward model that was trained on it would know the alarm's questions, so
those answers are left out of the draw, and nothing in here opens a file of the monitor's labels.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.facts import from_text
from tiltmeter.gold import LATER, GoldSource, Request
from tiltmeter.gold.files import checked, recorded
from tiltmeter.gold.sampler import Row as Place
from tiltmeter.journal import Event
from tiltmeter.records import RolloutBatch
from tiltmeter.rows import Row
from tiltmeter.steps import stored
from tiltmeter.store import RunDirectory
from tiltmeter.train.method import Progress
from tiltmeter.train.sampling import keep, kept
from tiltmeter.verdict import Look

PATIENCE = 1800.0  # seconds that the monitor is given to measure the end of a run
AT_ONCE = 8  # pairs that are labelled together
COLUMNS = ("group", "prompt", "completion", "facts", "length", "truncated")


def audited(run: RunDirectory) -> set[Place]:
    """Attempt, step and row of every answer that the monitor asked about, answered or not."""
    found: set[Place] = set()
    for path in sorted((run.path / "gold" / "requests").glob("*-*.jsonl")):
        attempt, _, step = path.stem.partition("-")
        asked = recorded(run, int(attempt), int(step))
        found |= set() if asked is None else set(asked.rows)
    return found


def draw(directory: str | Path, count: int, seed: object, patience: float = PATIENCE) -> list[Row]:
    """Up to `count` pairs, each of another group, all groups of the run alike. Raises `AttachError` where the monitor
    is not through with the run after `patience` seconds: what it will still ask about is not known before."""
    run = RunDirectory(directory)
    steps = _steps(run, patience)
    taken = audited(run)
    groups = [(step, at) for step in steps for at in range(_groups(run, step))]
    random.Random(f"tiltmeter/{seed}").shuffle(groups)
    found: list[Row] = []
    rng = random.Random(f"tiltmeter/{seed}/rows")
    while groups and len(found) < count:
        part, groups = groups[: count - len(found)], groups[count - len(found) :]
        for step in steps:
            if chosen := [at for one, at in part if one is step]:
                batch = stored(run, step.attempt, step.step, step.data["ranks"], COLUMNS)
                found += _pairs(batch, chosen, taken, rng)
    return found


def _steps(run: RunDirectory, patience: float) -> list[Event]:
    """The steps that make up the run as it now is, each with all that will ever be asked about it on disk."""
    view, until = Look(run), time.monotonic() + patience
    while True:
        view.now()
        done = [event for event in view.events if event.kind == "step_done"]
        late = [one for one in done if "requests" in one.data and recorded(run, one.attempt, one.step) is None]
        if done and not late and view.ages is not None and not view.ages.behind:
            break
        if time.monotonic() > until:
            raise AttachError(
                f"{run.path}: the monitor has not measured every step, so nobody knows yet which answers it will ask "
                f"about: run `tiltmeter watch {run.path}`, then this again"
            )
        time.sleep(0.5)
    spans = view.story.spans()
    return [event for event in done if event.step < spans.get(event.attempt, -1)]


def _groups(run: RunDirectory, step: Event) -> int:
    return len(stored(run, step.attempt, step.step, step.data["ranks"], ("group",)).starts) - 1


def _pairs(
    batch: RolloutBatch, chosen: Sequence[int], taken: set[Place], rng: random.Random
) -> Iterator[dict[str, Any]]:
    if batch.prompt is None or batch.completion is None:
        return
    for at in chosen:
        rows = range(int(batch.starts[at]), int(batch.starts[at + 1]))
        free = [row for row in rows if (batch.attempt, batch.step, row) not in taken and batch.completion[row]]
        rng.shuffle(free)
        other = next((row for row in free[1:] if batch.completion[row] != batch.completion[free[0]]), None)
        if other is None or batch.prompt[free[0]] is None:
            continue
        both = (free[0], other)
        yield {
            "attempt": batch.attempt,
            "step": batch.step,
            "rows": list(both),
            "prompt": batch.prompt[free[0]],
            "completions": [batch.completion[row] for row in both],
            "facts": [_known(batch, row) for row in both],
        }


def _known(batch: RolloutBatch, row: int) -> dict[str, Any]:
    known = {} if batch.facts is None else from_text(batch.facts[row])
    given = (name for name in ("length", "truncated") if batch.column(name) is not None)
    return known | {name: getattr(batch, name)[row].item() for name in given}


def labelled(folder: Path, source: GoldSource, tell: Progress) -> list[Row]:
    """The drawn pairs with an answer chosen in each; those without a label, or with two equal ones, are left out.

    What was answered is kept line by line in `labels.jsonl`, and nobody is asked twice.
    """
    pairs, path = kept(folder / "drawn.jsonl"), folder / "labels.jsonl"
    for first in range(len(kept(path)), len(pairs), AT_ONCE):
        part = pairs[first : first + AT_ONCE]
        keep(path, [{**_place(pair), "labels": told} for pair, told in zip(part, _asked(source, part), strict=True)])
        tell("labelling", min(first + AT_ONCE, len(pairs)), len(pairs))
    found = []
    for pair, row in zip(pairs, kept(path), strict=True):
        one, other = row["labels"]
        if one is not None and other is not None and one != other:
            texts = pair["completions"] if one > other else pair["completions"][::-1]
            found.append({"prompt": pair["prompt"], "chosen": texts[0], "rejected": texts[1], **_place(pair)})
    return found


def _place(pair: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pair[name] for name in ("attempt", "step", "rows")}


def _asked(source: GoldSource, pairs: Sequence[Row]) -> list[list[float | None]]:
    requests = [
        Request(f"{pair['attempt']}-{pair['step']}-{row}", pair["attempt"], pair["step"], row, "refresh",
                pair["prompt"], text, facts)
        for pair in pairs
        for row, text, facts in zip(pair["rows"], pair["completions"], pair["facts"], strict=True)
    ]  # fmt: skip
    told = [checked(None if answer is LATER else answer).value for answer in source.label(requests)]
    return [told[at : at + 2] for at in range(0, len(told), 2)]
