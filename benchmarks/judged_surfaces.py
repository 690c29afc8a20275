"""Part `surfaces` of `judgement.py`: do two surfaces of a run show different numbers for one thing?

Runs of `calm.py`, with a checkpoint every ten steps, are shown on every surface: `show` in five lines and in full, the
page, lists of runs, reports, the notebook, tracker messages, MCP and the webhook. Every number of gold, reward, onset,
checkpoint and odds in their texts and payloads is compared with the verdict's, as far as its digits go: gold now is one
thing wherever it is shown. A number that the verdict does not have is compared with that of the first surface that
shows it. A message about an alarm may also say what was known when it was raised. What a surface leaves out is no
difference, and pictures are not read.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, isclose
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import calm
from tiltmeter.cli.terminal.run_screen import message_lines
from tiltmeter.data.records import Alarm
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import Verdict, judge_run
from tiltmeter.view.agent.run_choice import RunChoice
from tiltmeter.view.agent.tools import RunTools
from tiltmeter.view.payloads.encode import plain as to_plain
from tiltmeter.view.screens.fleet import fleet_row
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.trackers.messages import MessageBuilder
from tiltmeter.view.trackers.webhook import alert_json

NUMBER = r"([+-]?\d[\d,]*(?:\.\d+)?)"
#: What a number in a text is about: a pattern with one group for each of the names.
TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (rf"since about step {NUMBER}", ("onset",)),
    (rf"[Aa]bout step {NUMBER} \(between {NUMBER} and {NUMBER}\)", ("onset", "onset_low", "onset_high")),
    (rf"began between step {NUMBER} and {NUMBER}", ("onset_low", "onset_high")),
    (rf"began at step {NUMBER}", ("onset",)),
    (rf"[Cc]heckpoint (?:of|so far:|to keep:|so far is that of) step {NUMBER}", ("checkpoint",)),
    (rf"Checkpoint to keep\W+Step {NUMBER}, gold {NUMBER}", ("checkpoint", "checkpoint_gold")),
    (rf"step {NUMBER}, gold(?: of audited pairs)? {NUMBER} \[", ("checkpoint", "checkpoint_gold")),
    (rf"checkpoint of step {NUMBER} \(gold {NUMBER}\)", ("checkpoint", "checkpoint_gold")),
    (rf"checkpoint from before step {NUMBER}", ("onset_low",)),
    (rf"odds {NUMBER} to 1", ("odds",)),
    (rf"Level: gold(?: of audited pairs)? {NUMBER} \(steps", ("level_now",)),
    (rf"{NUMBER} at its best", ("level_best",)),
    (rf"its best[^:;\n]{{0,40}}: {NUMBER} \[", ("level_change",)),
    (rf"(?:fall|loss) of gold of {NUMBER} or more", ("fall",)),
    (rf"better of two answers in {NUMBER} ?%", ("agreement",)),
)
#: The same in payloads, by the path of keys to it.
FIELDS = {
    "onset": "onset",
    "onset_low": "onset_low",
    "onset_high": "onset_high",
    "last_good": "checkpoint",
    "last_good.step": "checkpoint",
    "last_good.gold": "checkpoint_gold",
    "level.now": "level_now",
    "advice.now.gold": "level_now",
    "level.best": "level_best",
    "level.change": "level_change",
    "agreement.share": "agreement",
    "reward": "reward",
}


MESSAGES = ("alerts", "webhook", "webhook payload")


class Shown(NamedTuple):
    """A number as a surface shows it; None: it says that there is none."""

    surface: str
    about: str
    value: float | None
    digits: int  # after the point; 9 in payloads


def in_text(surface: str, text: str) -> Iterator[Shown]:
    for pattern, names in TEXTS:
        for match in re.finditer(pattern, text):
            for name, word in zip(names, match.groups(), strict=True):
                number = word.replace(",", "")
                value = float(number) / (100 if name == "agreement" else 1)
                yield Shown(surface, name, value, len(number.partition(".")[2]) + 2 * (name == "agreement"))


def in_payload(surface: str, payload: Mapping[str, Any]) -> Iterator[Shown]:
    for path, name in FIELDS.items():
        value: Any = payload
        parts = path.split(".")
        if parts[0] not in payload:
            continue
        for part in parts:
            value = value.get(part) if isinstance(value, Mapping) else value if part == parts[0] else None
        if isinstance(value, int | float):
            yield Shown(surface, name, float(value), 9)
        elif path == "last_good" and value is None:
            yield Shown(surface, name, None, 9)


def of_alarms(raised: Iterable[Alarm]) -> dict[str, list[float]]:
    alarms = list(raised)
    return {
        "onset": [float(one.onset) for one in alarms],
        "onset_low": [float(one.onset_low) for one in alarms],
        "onset_high": [float(one.onset_high) for one in alarms],
        "odds": [exp(min(one.evidence, 50.0)) for one in alarms],
    }


def expected(verdict: Verdict) -> dict[str, list[float]]:
    """What the verdict has of each, for all alarms and warnings."""
    advice, level, agreement = verdict.advice, verdict.level, verdict.agreement
    best = None if advice is None else advice.best
    return {
        **of_alarms((*verdict.alarms, *verdict.warnings)),
        "checkpoint": [] if best is None else [float(best.step)],
        "checkpoint_gold": [] if best is None else [best.gold],
        "level_now": [] if level is None else [level.now],
        "level_best": [] if level is None else [level.best],
        "level_change": [] if level is None else [level.change],
        "agreement": [] if agreement is None else [agreement.share],
        "fall": [] if advice is None or advice.fall is None else [max(advice.fall, 0.01)],
    }


def shown_on(run: RunDirectory) -> Iterator[Shown]:
    """Every number of every surface."""
    for surface, text in calm.surfaces(run):
        yield from in_text(surface, text)
    verdict, run_facts, events = judge_run(run)
    yield from in_text("five lines", "\n".join(message_lines(run, verdict, run_facts, events)))
    reader = RunReader(run)
    reader.refresh()
    yield from in_payload("page payload", to_plain(summary(reader)))
    yield from in_payload("list of runs payload", to_plain(fleet_row(reader)))
    entry = Path(run.path) / "cache" / "list_entry.json"
    yield from in_payload("list entry", json.loads(entry.read_text()) if entry.exists() else {})
    for alert in MessageBuilder(reader).next_batch(last=True).alerts:
        posted = alert_json(alert)
        yield from in_text("webhook", str(posted["text"]))
        if alert.detector not in ("hollow", "stop"):  # those have no alarm, and the field says what was looked at
            yield from in_payload("webhook payload", {key: posted[key] for key in ("onset", "onset_low", "onset_high")})
    choice = RunChoice([run.path])
    tools = RunTools(choice)
    yield from in_text("MCP", f"{tools.verdict()}\n{tools.findings()}\n{tools.report()}")
    choice.close()


def agrees(shown: Shown, values: Sequence[float]) -> bool:
    if shown.value is None:
        return not values
    reach = max(0.5 * 10.0**-shown.digits, 0.01 * abs(shown.value) if shown.about == "odds" else 0.0) + 1e-9
    return any(abs(shown.value - value) <= reach or isclose(shown.value, value, rel_tol=1e-3) for value in values)


def differences(run: RunDirectory) -> tuple[int, list[Shown]]:
    """How many numbers were compared, and those that differ, each once for a surface."""
    verdict, _, events = judge_run(run)
    values, numbers = expected(verdict), list(dict.fromkeys(shown_on(run)))
    then = of_alarms(event.payload for event in events if event.kind == "alarm" and isinstance(event.payload, Alarm))
    different = []
    for one in numbers:
        known = values.setdefault(one.about, [] if one.value is None else [one.value])
        known = [*known, *then.get(one.about, [])] if one.surface in MESSAGES else known
        different += [] if agrees(one, known) else [one]
    return len(numbers), different


def with_checkpoints(trouble: calm.Trouble) -> calm.Trouble:
    def make(step: int, rng: np.random.Generator) -> calm.Columns:
        saved = {"scalars": {"checkpoint": float(step)}} if step % 10 == 9 else {}
        return {**trouble.make(step, rng), **saved}

    return replace(trouble, make=make)


def measure_surfaces(runs: int, seed: int, small: bool) -> dict[str, object]:
    """`runs` kinds, the healthy one first."""
    kinds = {"healthy": calm.Trouble(calm.healthy), **calm.TROUBLES}
    rows, count = list[dict[str, Any]](), 0
    for place in np.linspace(0, len(kinds) - 1, runs).round().astype(int) if runs > 1 else [1]:
        name, kind = list(kinds.items())[place]
        with tempfile.TemporaryDirectory(prefix="judged-", ignore_cleanup_errors=True) as folder:
            run = RunDirectory.create(Path(folder) / "run")
            calm.write(run, with_checkpoints(kind))
            if kind.measured:
                calm.measure(run, kind)
            compared, different = differences(run)
        found = [f"{one.surface}: {one.about} {one.value}" for one in different]
        rows.append({"name": name, "compared": compared, "differences": found})
        count += compared
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    total = sum(len(row["differences"]) for row in rows)
    return {
        "surface_differences": total,
        "surface_differences_of": len(rows),  # runs
        "surface_numbers_compared": count,
        "surfaces_rows": rows,
    }
