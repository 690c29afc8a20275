"""One screen about a run: the verdict, what moved, what cannot be seen, and completions that show it."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tiltmeter.advice import advice_on
from tiltmeter.cli import card
from tiltmeter.encode import log_line, terminal, visible
from tiltmeter.errors import StoreError
from tiltmeter.journal import Event
from tiltmeter.page import words
from tiltmeter.page.readings import moved
from tiltmeter.page.words import number
from tiltmeter.records import Floats, Ints, RolloutBatch
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story, series
from tiltmeter.verdict import ICONS, Verdict

COLOURS = {"ACT": "bold red", "STALE": "yellow", "BLIND": "magenta", "WATCH": "yellow", "OK": "bold green"}
#: Shown first; the rest follow, what moved most before what stood still.
FIRST = (
    *("reward.mean", "reward.dead_share", "gold.mean", "gold.level", "gold.slope", "gold.gap", "policy.kl.k3"),
    *("length.mean", "policy.entropy"),
)
PER_SUBJECT = 2  # further rows about one subject: seven views of the KL would hide a stock phrase
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 22  # of a chart: the table must fit 80 columns with its numbers whole


def screen(
    run: RunDirectory, verdict: Verdict, story: Story, events: Sequence[Event], rows: int = 12
) -> RenderableType:
    """The whole screen as one Rich renderable."""
    colour = COLOURS[verdict.state]
    live = "live" if story.attempt is not None and story.attempt not in story.ended else "ended"
    head = Text.assemble(
        (f" {ICONS[verdict.state]} {verdict.state} ", f"{colour} reverse"),
        "  ",
        terminal(called(run), 30),
        f" · attempt {story.attempt if story.attempt is not None else '-'} · step {story.last_step} · {live} ",
    )
    labels = visible(story.about_labels) if story.judges else f"{story.labels:,} gold labels"
    foot = Text(f" {story.rows:,} completions · {labels} ", style="dim")
    body: list[RenderableType] = [Text(visible(verdict.sentence), style=colour)]
    body += [Text(log_line(line)) for line in counsel(run, story, events)]
    body += [Text(visible(line), style="dim") for line in asides(verdict, story, events)]
    body += [Text(), readings_table(events, story, rows)]
    evidence = exemplars(run, story)
    if evidence is not None:
        body += [Text(), evidence]
    return Panel(
        Group(*body),
        title=head,
        title_align="left",
        subtitle=foot,
        subtitle_align="right",
        border_style=colour,
        padding=(1, 2),
    )


def called(run: RunDirectory) -> str:
    """What to call a run: inside a trainer's output directory, that directory's name."""
    path = run.path.resolve()
    return f"{path.parent.name}/{path.name}" if path.name == "tiltmeter" else path.name


def counsel(run: RunDirectory, story: Story, events: Sequence[Event]) -> list[str]:
    """What was found, what was done about it, and whether to go on."""
    lines = [*card.diagnosis(story), *card.actions(story, str(run.path))]
    return [*lines, *words.stop_advice(advice_on(story, events))]


def asides(verdict: Verdict, story: Story, events: Sequence[Event]) -> list[str]:
    """What else a reader must know: open warnings, other failed counts, losses, parts that are off, segments."""
    found = series(events, story.spans())

    def line(name: str) -> tuple[Ints, Floats]:
        points = found.get(name, [])
        return np.array([step for step, _ in points], np.int64), np.array([value for _, value in points])

    return words.asides(verdict, story, line)


def readings_table(events: Sequence[Event], story: Story, rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("reading", no_wrap=True, max_width=28)
    table.add_column("start → now", no_wrap=True, min_width=_WIDTH)
    for title in ("first", "now"):
        table.add_column(title, justify="right", no_wrap=True, min_width=8)
    found = series(events, story.spans())
    onset = min((alarm.onset for alarm in story.open("alarm")), default=None)
    order = chosen(found, rows)
    for name in order:
        points = found[name]
        table.add_row(short(name), sparkline(points, onset), number(points[0][1]), number(points[-1][1]))
    if len(found) > len(order):
        table.add_row(Text(f"… {len(found) - len(order)} more: --plain", style="dim"), "", "", "")
    return table


def chosen(found: Mapping[str, Sequence[tuple[int, float]]], rows: int) -> list[str]:
    """The readings worth a row: the usual ones, then what moved most, one per instrument and few per subject."""
    order = [name for name in FIRST if name in found]
    used = {name.rpartition(".")[0] for name in order if name.count(".") > 1}
    far_off = {name: moved(np.array([value for _, value in points])) for name, points in found.items()}
    far = sorted((name for name in found if far_off[name]), key=lambda name: -far_off[name])
    seen: Counter[str] = Counter()
    for most in range(1, PER_SUBJECT + 1):  # every subject once before any has a second row
        for name in far:
            subject, instrument = name.split(".")[0], name.rpartition(".")[0] if name.count(".") > 1 else name
            if name not in order and instrument not in used and seen[subject] < most:
                order.append(name)
                seen[subject] += 1
                used.add(instrument)
    return order[:rows]


def short(name: str, limit: int = 28) -> Text:
    """A name that fits its column; the middle goes, because both ends are needed to look it up."""
    shown = visible(name)
    return Text(shown if len(shown) <= limit else f"{shown[: limit - 13]}…{shown[-12:]}")


def sparkline(points: Sequence[tuple[int, float]], onset: int | None = None) -> Text:
    """The series in a line of bars; from the onset on in red."""
    blocks = np.array_split(np.array([value for _, value in points]), min(_WIDTH, len(points)))
    steps = np.array_split(np.array([step for step, _ in points]), min(_WIDTH, len(points)))
    means = np.array([block.mean() for block in blocks])
    low, span = means.min(), np.ptp(means)
    scale = (means - low) / span if span > 0 else np.zeros(len(means))
    line = Text()
    for value, block in zip(scale, steps, strict=True):
        line.append(_BARS[int(value * (len(_BARS) - 1))], "red" if onset is not None and block[0] >= onset else "cyan")
    return line


def exemplars(run: RunDirectory, story: Story, n: int = 3) -> RenderableType | None:
    """Of the quarter of the newest step that the reward pays most, the completions that gold values least; then the
    one it pays least, and the one that is least like the others."""
    try:
        batch = newest(run, story)
    except StoreError:
        return None
    if batch is None or batch.completion is None or batch.reward is None or not np.isfinite(batch.reward).any():
        return None
    scored = np.flatnonzero(np.isfinite(batch.reward))
    gold = np.full(len(batch), np.nan) if batch.gold is None else batch.gold
    worth = np.where(np.isfinite(gold), gold, 0.5)
    paid = scored[batch.reward[scored] >= np.quantile(batch.reward[scored], 0.75)]
    order = paid[np.lexsort((-batch.reward[paid], worth[paid]))][:n]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("reward", justify="right")
    table.add_column("gold", justify="right")
    labelled = bool(np.isfinite(gold).any())
    table.add_column(f"step {batch.step}: paid most, worth least" if labelled else f"step {batch.step}: paid most")
    for row in order:
        text = batch.completion[row]
        shown = terminal(text, 150) if text is not None else Text("not stored", style="dim")
        table.add_row(number(float(batch.reward[row])), number(float(gold[row])), shown)
    shown_rows = set(map(int, order))
    for title, row in (("paid least", lowest(batch)), ("oddest", oddest(batch))):
        if row is not None and row not in shown_rows:
            shown_rows.add(row)
            shown = Text.assemble((f"{title}: ", "dim"), terminal(batch.completion[row] or "", 130))
            table.add_row(number(float(batch.reward[row])), number(float(gold[row])), shown)
    return table


def lowest(batch: RolloutBatch) -> int | None:
    """The row that the reward pays least, if it pays any less than another."""
    assert batch.reward is not None
    if not np.isfinite(batch.reward).any() or np.nanmax(batch.reward) == np.nanmin(batch.reward):
        return None
    return int(np.nanargmin(batch.reward))


def oddest(batch: RolloutBatch) -> int | None:
    """The row that the policy itself found least likely per token; without that, the longest or shortest."""
    if batch.logprob is not None and (batch.logprob.lengths > 0).any():
        per_token = batch.logprob.sums() / np.maximum(batch.logprob.lengths, 1)
        per_token = np.where((batch.logprob.lengths > 0) & np.isfinite(per_token), per_token, np.inf)
        return int(np.argmin(per_token))
    if batch.length is None or not len(batch) or np.ptp(batch.length) == 0:
        return None
    return int(np.argmax(np.abs(batch.length - np.median(batch.length))))


def newest(run: RunDirectory, story: Story) -> RolloutBatch | None:
    """The newest measured step of the current attempt, first rank, only the columns this screen shows."""
    if story.attempt is None:
        return None
    files = run.find(story.attempt, story.last_step)
    if not files:
        return None
    batch, _, _ = run.read(files[0], ("reward", "gold", "completion", "logprob", "length"))
    return batch


def plain(run: RunDirectory, verdict: Verdict, story: Story, events: Sequence[Event]) -> Iterable[str]:
    """The same for logs and pipes: ASCII, no colour, no boxes."""
    yield f"{verdict.state}  {visible(called(run))}  attempt {story.attempt}  step {story.last_step}"
    yield visible(verdict.sentence)
    yield from map(log_line, counsel(run, story, events))
    yield from map(visible, asides(verdict, story, events))
    found = series(events, story.spans())
    subjects = list(dict.fromkeys(name.split(".")[0] for name in found))
    for name in sorted(found, key=lambda name: subjects.index(name.split(".")[0])):  # what is about one thing together
        points = found[name]
        yield f"{visible(name):<40} {number(points[0][1]):>12} -> {number(points[-1][1]):>12}"


def as_json(run: RunDirectory, verdict: Verdict, story: Story, events: Sequence[Event]) -> str:
    """The same for machines."""
    found = series(events, story.spans())
    return json.dumps(
        {
            "run": called(run),
            "state": verdict.state,
            "sentence": verdict.sentence,
            "exit_code": verdict.exit_code,
            "attempt": story.attempt,
            "step": story.last_step,
            "live": story.attempt is not None and story.attempt not in story.ended,
            "steps": story.steps,
            "completions": story.rows,
            "labels": story.labels,
            "gold": None if story.gold is None else dict(story.gold),
            "asked": story.asked,
            "unanswered": story.unanswered,
            "rejected": story.rejected,
            "evaluations": len(story.evaluations),
            "checks": {name: asdict(check) for name, check in verdict.checks.items()},
            "alarms": [asdict(alarm) for alarm in verdict.alarms],
            "warnings": [asdict(alarm) for alarm in verdict.warnings],
            "readings": {n: {"first": p[0][1], "last": p[-1][1], "steps": len(p)} for n, p in found.items()},
            "absent": dict(story.absent),
            "advice": None if (advice := advice_on(story, events)) is None else asdict(advice),
            "findings": [asdict(finding) for finding in words.findings(story)],
            "actions": [asdict(action) for action in story.actions.values()],
            "outcomes": [dict(told) for told in story.outcomes],
            "experiments": {failure: dict(told) for failure, told in story.experiments.items()},
            "off": story.off,
            "faults": [asdict(fault) for fault in story.faults[-20:]],
            "segments": story.segments,
            "compared_with": story.baseline or None,
            "batches": {"seen": story.lost[1], "lost": story.lost[0]},
        },
        indent=1,
        allow_nan=False,
    )


def emit(
    run: RunDirectory, verdict: Verdict, story: Story, events: Sequence[Event], *, json_: bool, plain_: bool
) -> None:
    """Print in the form asked for."""
    console = Console(highlight=False, markup=False, soft_wrap=json_ or plain_, no_color=plain_ or None)
    with console.capture() as capture:
        if json_:
            console.out(as_json(run, verdict, story, events))
        elif plain_:
            for line in plain(run, verdict, story, events):
                console.out(line.encode("ascii", "backslashreplace").decode())
        else:
            console.print(screen(run, verdict, story, events))
    printed(capture.get())


def printed(text: str) -> None:
    """Write to standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough. The exit code is the verdict's all the same, so nobody may write to the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
