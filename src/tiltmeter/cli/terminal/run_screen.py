"""The terminal screens of a run: the message in five lines; and in full, with readings and example completions."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np
from msgspec import to_builtins
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.terminal import finding_lines
from tiltmeter.data.records import Floats, Ints, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line, terminal, visible
from tiltmeter.verdict.message import LONGEST, RunMessage, message
from tiltmeter.verdict.run_facts import RunFacts, series
from tiltmeter.verdict.states import STATES, State
from tiltmeter.verdict.verdict import Verdict, dated_alarms
from tiltmeter.view.screens import wording
from tiltmeter.view.screens.claims.run_claims import claim_lines, run_claims
from tiltmeter.view.screens.excerpts import excerpt
from tiltmeter.view.screens.readings import change_in_noise
from tiltmeter.view.screens.slices import describe_tasks, slice_cells, slices_of_events
from tiltmeter.view.screens.wording import format_number

#: Shown first; the rest follow, what moved most before what stood still.
FIRST = (
    *("reward.mean", "reward.dead_share", "gold.mean", "gold.answers", "gold.level", "gold.slope", "gold.gap"),
    *("policy.kl.k3", "length.mean", "policy.entropy"),
)
SLICE_COLUMNS = ("slice", "rollouts", "reward", "gold", "odds", "")
PER_SUBJECT = 2  # further rows about one subject: seven views of the KL would hide a stock phrase
LITTLE = 0.3  # gold of an answer that is worth little
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 22  # of a chart: the table must fit 80 columns with its numbers whole


def screen(
    run: RunDirectory,
    verdict: Verdict,
    run_facts: RunFacts,
    events: Sequence[Event],
    rows: int = 12,
    picture: Sequence[Text] = (),
) -> RenderableType:
    """The whole screen as one Rich renderable; `picture`: the lines of the run's picture."""
    colour = STATES[verdict.state].colour.terminal
    live = "live" if run_facts.attempt is not None and run_facts.attempt not in run_facts.ended else "ended"
    head = Text.assemble(
        (f" {STATES[verdict.state].icon} {verdict.state} ", f"{colour} reverse"),
        "  ",
        terminal(display_name(run), 30),
        f" · attempt {run_facts.attempt if run_facts.attempt is not None else '-'} · "
        f"step {run_facts.last_step} · {live} ",
    )
    labels = visible(run_facts.labels_text) if run_facts.judges else f"{run_facts.labels:,} gold labels"
    foot = Text(f" {run_facts.rows:,} completions · {labels} ", style="dim")
    body: list[RenderableType] = [Text(visible(verdict.sentence), style=colour)]
    body += [Text(line) for line in wording.describe_agreement_and_level(verdict)]
    body += [Text(log_line(line)) for line in advice_lines(run, verdict, run_facts)]
    body += [Text(visible(line), style="dim") for line in asides(verdict, run_facts, events)]
    body += slice_lines(run_facts, events)
    body += [Text(), *picture] if picture else []
    body += [Text(), readings_table(events, run_facts, rows)]
    evidence = exemplars(run, run_facts)
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


def message_of(
    run: RunDirectory, verdict: Verdict, run_facts: RunFacts, events: Sequence[Event], place: str = "", look: str = ""
) -> RunMessage:
    """The five lines about a run. `place`: how the reader names it; `look`: where else to look."""
    example = _example(run, run_facts) if verdict.state in ("ACT", "HOLLOW") else ""
    unseen = sum(len(names) for _, names in wording.absent_by_column(run_facts))
    measuring = verdict.state == "STALE" and monitor_running(run) is True
    named = place or str(run.path)
    return message(verdict, run_facts, place=named, unseen=unseen, example=example, look=look, measuring=measuring)


def message_screen(name: str, state: State, five_lines: RunMessage) -> RenderableType:
    """The five lines, the state in its colour."""
    head, *rest = five_lines.lines()
    text = Text.assemble(
        (f"{STATES[state].icon} {state}", STATES[state].colour.terminal), "  ", terminal(name, 40), ": "
    )
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for word, line in rest:
        grid.add_row(word, terminal(line, LONGEST))
    return Group(text.append_text(terminal(head[1], LONGEST)), grid)


def message_lines(
    run: RunDirectory, verdict: Verdict, run_facts: RunFacts, events: Sequence[Event], place: str = "", look: str = ""
) -> Iterable[str]:
    """The same for logs and pipes."""
    head, *rest = message_of(run, verdict, run_facts, events, place, look).lines()
    yield _ascii_marks(log_line(f"{verdict.state}  {display_name(run)}: {head[1]}", LONGEST + 60))
    yield from (_ascii_marks(log_line(f"{word:<7}{line}", LONGEST + 7)) for word, line in rest)


def _ascii_marks(line: str) -> str:
    return line.replace("…", "...").replace("×", "x")


def _example(run: RunDirectory, run_facts: RunFacts) -> str:
    """A completion of the newest step that is paid much and worth little; empty where there is none with a label."""
    try:
        batch = newest_batch(run, run_facts)
    except StoreError:
        return ""
    if batch is None or batch.completion is None or batch.reward is None or batch.gold is None:
        return ""
    labelled_rows = np.flatnonzero(np.isfinite(batch.reward) & np.isfinite(batch.gold))
    if not len(labelled_rows):
        return ""
    row = labelled_rows[np.lexsort((-batch.reward[labelled_rows], batch.gold[labelled_rows]))[0]]
    words = " ".join(str(batch.completion[row] or "").split())
    if not words or batch.gold[row] > LITTLE:
        return ""
    paid, worth = format_number(float(batch.reward[row])), format_number(float(batch.gold[row]))
    return f'For example "{excerpt(words, limit=60)}", paid {paid}, gold {worth}'


def display_name(run: RunDirectory) -> str:
    """What to call a run: inside a trainer's output directory, that directory's name."""
    path = run.path.resolve()
    return f"{path.parent.name}/{path.name}" if path.name == "tiltmeter" else path.name


def advice_lines(run: RunDirectory, verdict: Verdict, run_facts: RunFacts) -> list[str]:
    """What was found, what was done about it, and whether to go on."""
    lines = [*finding_lines.diagnosis_lines(run_facts), *finding_lines.action_lines(run_facts, str(run.path))]
    lines += claim_lines(run_claims(run, run_facts))
    return [*lines, *wording.describe_advice(verdict.advice)]


def asides(verdict: Verdict, run_facts: RunFacts, events: Sequence[Event]) -> list[str]:
    """Further notes: open warnings, other failed counts, losses, parts that are off, segments."""
    readings = series(events, run_facts.spans())

    def line(name: str) -> tuple[Ints, Floats]:
        points = readings.get(name, [])
        return np.array([step for step, _ in points], np.int64), np.array([value for _, value in points])

    return wording.other_remarks(verdict, run_facts, line)


def slice_lines(run_facts: RunFacts, events: Sequence[Event]) -> list[RenderableType]:
    """Slices side by side, and the tasks that became solvable overnight; nothing where there are none."""
    tables = slices_of_events(run_facts, events)
    lines: list[RenderableType] = []
    if tables.slices:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("slice", no_wrap=True, max_width=28)
        for title in SLICE_COLUMNS[1:-1]:
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("")
        for name, *cells in slice_cells(tables):
            table.add_row(short(name), *map(visible, cells))
        lines += [Text(), table]
    if tables.solved:
        lines += [Text(), Text("Tasks that became solvable overnight:", style="dim")]
        lines += [terminal(line) for line in describe_tasks(tables)]
    return lines


def readings_table(events: Sequence[Event], run_facts: RunFacts, rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("reading", no_wrap=True, max_width=28)
    table.add_column("start → now", no_wrap=True, min_width=_WIDTH)
    for title in ("first", "now"):
        table.add_column(title, justify="right", no_wrap=True, min_width=8)
    readings = series(events, run_facts.spans())
    onset = min((alarm.onset for alarm in dated_alarms(run_facts)), default=None)
    order = choose_readings(readings, rows)
    for name in order:
        points = readings[name]
        table.add_row(short(name), sparkline(points, onset), format_number(points[0][1]), format_number(points[-1][1]))
    if len(readings) > len(order):
        table.add_row(Text(f"… {len(readings) - len(order)} more: --plain", style="dim"), "", "", "")
    return table


def choose_readings(readings: Mapping[str, Sequence[tuple[int, float]]], rows: int) -> list[str]:
    """The readings worth a row: the usual ones, then what moved most, one per instrument and few per subject."""
    order = [name for name in FIRST if name in readings]
    used = {name.rpartition(".")[0] for name in order if name.count(".") > 1}
    movement = {name: change_in_noise(np.array([value for _, value in points])) for name, points in readings.items()}
    by_movement = sorted((name for name in readings if movement[name]), key=lambda name: -movement[name])
    rows_by_subject: Counter[str] = Counter()
    for most in range(1, PER_SUBJECT + 1):  # every subject once before any has a second row
        for name in by_movement:
            subject, instrument = name.split(".")[0], name.rpartition(".")[0] if name.count(".") > 1 else name
            if name not in order and instrument not in used and rows_by_subject[subject] < most:
                order.append(name)
                rows_by_subject[subject] += 1
                used.add(instrument)
    return order[:rows]


def short(name: str, limit: int = 28) -> Text:
    """A name that fits its column; the middle goes, because both ends are needed to look it up."""
    text = visible(name)
    return Text(text if len(text) <= limit else f"{text[: limit - 13]}…{text[-12:]}")


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


def exemplars(run: RunDirectory, run_facts: RunFacts, n: int = 3) -> RenderableType | None:
    """Of the quarter of the newest step that the reward pays most, the completions that gold values least; then the
    one it pays least, and the one that is least like the others."""
    try:
        batch = newest_batch(run, run_facts)
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
        cell = terminal(excerpt(text, limit=150)) if text is not None else Text("not stored", style="dim")
        table.add_row(format_number(float(batch.reward[row])), format_number(float(gold[row])), cell)
    shown_rows = set(map(int, order))
    for title, row in (("paid least", lowest(batch)), ("oddest", oddest(batch))):
        if row is not None and row not in shown_rows:
            shown_rows.add(row)
            cell = Text.assemble((f"{title}: ", "dim"), terminal(excerpt(batch.completion[row] or "", limit=130)))
            table.add_row(format_number(float(batch.reward[row])), format_number(float(gold[row])), cell)
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


def newest_batch(run: RunDirectory, run_facts: RunFacts) -> RolloutBatch | None:
    """The newest measured step of the current attempt, first rank, only the columns this screen shows."""
    if run_facts.attempt is None:
        return None
    files = run.find(run_facts.attempt, run_facts.last_step)
    if not files:
        return None
    batch, _, _ = run.read(files[0], ("reward", "gold", "completion", "logprob", "length"))
    return batch


def plain(run: RunDirectory, verdict: Verdict, run_facts: RunFacts, events: Sequence[Event]) -> Iterable[str]:
    """The same for logs and pipes: ASCII, no colour, no boxes."""
    yield f"{verdict.state}  {visible(display_name(run))}  attempt {run_facts.attempt}  step {run_facts.last_step}"
    yield visible(verdict.sentence)
    yield from map(visible, wording.describe_agreement_and_level(verdict))
    yield from map(log_line, advice_lines(run, verdict, run_facts))
    yield from map(visible, asides(verdict, run_facts, events))
    tables = slices_of_events(run_facts, events)
    for cells in [SLICE_COLUMNS, *slice_cells(tables)] if tables.slices else ():
        yield visible(f"{cells[0]:<40} {cells[1]:>12} {cells[2]:>9} {cells[3]:>9} {cells[4]:>9}  {cells[5]}").rstrip()
    yield from (log_line(f"became solvable overnight: {line}") for line in describe_tasks(tables))
    readings = series(events, run_facts.spans())
    subjects = list(dict.fromkeys(name.split(".")[0] for name in readings))
    for name in sorted(
        readings, key=lambda name: subjects.index(name.split(".")[0])
    ):  # what is about one thing together
        points = readings[name]
        yield f"{visible(name):<40} {format_number(points[0][1]):>12} -> {format_number(points[-1][1]):>12}"


def as_json(
    run: RunDirectory, verdict: Verdict, run_facts: RunFacts, events: Sequence[Event], place: str = "", look: str = ""
) -> str:
    """The same for machines."""
    readings = series(events, run_facts.spans())
    return json.dumps(
        {
            "run": display_name(run),
            "state": verdict.state,
            "sentence": verdict.sentence,
            "message": asdict(message_of(run, verdict, run_facts, events, place, look)),
            "exit_code": verdict.exit_code,
            "attempt": run_facts.attempt,
            "step": run_facts.last_step,
            "live": run_facts.attempt is not None and run_facts.attempt not in run_facts.ended,
            "steps": run_facts.steps,
            "completions": run_facts.rows,
            "labels": run_facts.labels,
            "gold": None if run_facts.gold is None else dict(run_facts.gold),
            "asked": run_facts.labels_requested,
            "unanswered": run_facts.unanswered,
            "rejected": run_facts.rejected,
            "evaluations": len(run_facts.evaluations),
            "traps": {"asked": sum(at[2] for at in run_facts.traps), "paid": sum(at[3] for at in run_facts.traps)},
            "checks": {name: asdict(check) for name, check in verdict.checks.items()},
            "alarms": [asdict(alarm) for alarm in verdict.alarms],
            "warnings": [asdict(alarm) for alarm in verdict.warnings],
            "readings": {n: {"first": p[0][1], "last": p[-1][1], "steps": len(p)} for n, p in readings.items()},
            "absent": dict(run_facts.absent),
            "advice": None if verdict.advice is None else asdict(verdict.advice),
            "agreement": None if verdict.agreement is None else asdict(verdict.agreement),
            "level": None if verdict.level is None else asdict(verdict.level),
            "findings": [asdict(finding) for finding in wording.ranked_findings(run_facts)],
            "behaviours": {str(number): to_builtins(one) for number, one in run_facts.behaviours.items()},
            "actions": [asdict(action) for action in run_facts.actions.values()],
            "outcomes": [dict(record) for record in run_facts.outcomes],
            "slices": to_builtins(slices_of_events(run_facts, events)),
            "experiments": {failure: dict(record) for failure, record in run_facts.experiments.items()},
            "off": run_facts.off,
            "faults": [asdict(fault) for fault in run_facts.faults[-20:]],
            "segments": run_facts.segments,
            "compared_with": run_facts.baseline or None,
            "batches": {"seen": run_facts.lost[1], "lost": run_facts.lost[0]},
        },
        indent=1,
        allow_nan=False,
    )


def emit(
    run: RunDirectory, verdict: Verdict, run_facts: RunFacts, events: Sequence[Event], *, json_: bool, plain_: bool,
    more: bool = False, place: str = "", look: str = "", picture: Sequence[Text] = (),
) -> None:  # fmt: skip
    """Print in the requested form: the message, or everything (`more`)."""
    console = Console(highlight=False, markup=False, soft_wrap=json_ or plain_, no_color=plain_ or None)
    with console.capture() as capture:
        if json_:
            console.out(as_json(run, verdict, run_facts, events, place, look))
        elif plain_:
            write = plain if more else partial(message_lines, place=place, look=look)
            for line in write(run, verdict, run_facts, events):
                console.out(line.encode("ascii", "backslashreplace").decode())
        elif more:
            console.print(screen(run, verdict, run_facts, events, picture=picture))
        else:
            five_lines = message_of(run, verdict, run_facts, events, place, look)
            console.print(message_screen(display_name(run), verdict.state, five_lines))
    write_stdout(capture.get())


def write_stdout(text: str) -> None:
    """Write to standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough. The exit code is the verdict's all the same, so nobody may write to the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
