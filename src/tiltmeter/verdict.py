"""From events to a state and a sentence: the one place where a run is called healthy, and the last branch it takes.

Green needs positive evidence on eight counts. Whatever is missing, unreadable or unknown is BLIND or STALE with the
reason; an open alarm outranks both. Page, report, terminal and exit code all ask here, and nothing else decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tiltmeter.durable import entries
from tiltmeter.journal import Event, Tail
from tiltmeter.records import Alarm
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story

State = Literal["ACT", "STALE", "BLIND", "WATCH", "OK"]
ICONS: dict[State, str] = {"ACT": "▲", "STALE": "⊘", "BLIND": "○", "WATCH": "◐", "OK": "✓"}

#: The eight counts, in the order in which a failure is reported.
CHECKS = ("monitor", "fresh", "gold", "gold_recent", "detectors", "ranks", "kept", "scored")

RECENT_STEPS = 40  # two blocks of the alarm's bet: older gold says nothing about the run as it is
LOST_SHARE = 0.01
INFRA_SHARE = 0.05
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Check:
    """One of the eight counts, and why it holds or not."""

    ok: bool
    why: str


@dataclass(frozen=True)
class Verdict:
    """What a person is told about the run, everywhere in the same words."""

    state: State
    sentence: str
    checks: Mapping[str, Check]
    alarms: tuple[Alarm, ...] = ()
    warnings: tuple[Alarm, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 an alarm, 2 could not judge."""
        if self.alarms:
            return 1
        return 0 if self.state in ("OK", "WATCH") else 2


@dataclass(frozen=True)
class Ages:
    """Seconds since the trainer was last heard of, and since the oldest step that waits for the monitor was written."""

    data: float
    waiting: float | None  # None: nothing waits
    behind: int = 0  # steps


def judge(story: Story, ages: Ages) -> Verdict:
    """The state function."""
    checks = examine(story, ages)
    alarms, warnings = story.open("alarm"), story.open("warning")
    return decide(checks, alarms, warnings, story)


def decide(checks: Mapping[str, Check], alarms: Iterable[Alarm], warnings: Iterable[Alarm], story: Story) -> Verdict:
    """First matching row wins; OK is the last, and nothing falls through to it."""
    alarms, warnings = tuple(alarms), tuple(warnings)
    failed = [name for name in CHECKS if name not in checks or not checks[name].ok]
    why = checks[failed[0]].why if failed and failed[0] in checks else "not examined"
    state: State
    if alarms:
        state, sentence = "ACT", f"Alarm: {alarms[0].summary}"
    elif "monitor" in failed or "fresh" in failed:
        state, sentence = "STALE", why
    elif failed:
        state, sentence = "BLIND", why
    elif warnings:
        state, sentence = "WATCH", f"Warning: {warnings[0].summary}"
    elif not failed and len(checks) == len(CHECKS):
        newest = story.last_label[1] if story.last_label else -1
        state, sentence = "OK", f"no alarm on {story.labels} gold labels, newest at step {newest}"
    else:
        state, sentence = "BLIND", "not examined"
    return Verdict(state, sentence, checks, alarms, warnings)


def examine(story: Story, ages: Ages) -> dict[str, Check]:
    """The eight counts of a run that may be called healthy."""
    patience = max(3.0 * story.pace, PATIENCE_SECONDS)
    live = story.attempt is None or story.attempt not in story.ended
    needed = [part for part in story.detectors if part["tier"] == "alarm"]
    least = max((int(part["least"]) for part in needed), default=0)
    off = [name for name in story.off if any(name.split(":")[0] == part["name"] for part in needed)]
    off += [name for name in story.off if any(name in part["watches"] for part in needed)]
    lost, seen = story.lost
    rows, infra = sum(item[1] for item in story.recent), sum(item[2] for item in story.recent)
    waiting = ages.waiting is not None and ages.waiting > patience
    spans = story.spans()
    attempt, newest = story.last_bet or (-1, -1)
    recent = newest < spans.get(attempt, -1) and story.last_step - newest <= RECENT_STEPS
    enough = story.bets >= max(least, 1)
    gaps = [step for attempt, step in story.missing if attempt == story.attempt and step > story.last_step - 3]
    return {
        "monitor": Check(
            not waiting and bool(story.steps),
            f"the monitor is {ages.behind} steps behind; start it with: tiltmeter watch RUN"
            if waiting or ages.behind
            else "no step has been measured yet"
            if not story.steps
            else "every stored step is measured",
        ),
        "fresh": Check(
            not live or ages.data <= patience,
            "the run has ended" if not live else f"the trainer was last heard of {_span(ages.data)} ago",
        ),
        "gold": Check(enough and story.gold_differs, _about_gold(story, max(least, 1), enough)),
        "gold_recent": Check(recent, f"newest gold is of step {newest}, the run is at {story.last_step}"),
        "detectors": Check(
            bool(needed) and not off,
            f"switched off: {', '.join(off)}"
            if off
            else "the alarm is on"
            if needed
            else "no alarm detector is set up",
        ),
        "ranks": Check(not gaps, f"ranks missing at step {gaps[-1]}" if gaps else "all ranks are there"),
        "kept": Check(
            seen > 0 and lost < LOST_SHARE * seen,
            f"{lost} of {seen} batches were thinned or dropped" if seen else "the trainer's counters are missing",
        ),
        "scored": Check(
            rows > 0 and infra < INFRA_SHARE * rows,
            f"{infra} of the last {rows} completions could not be scored (infrastructure)"
            if rows
            else "no completions",
        ),
    }


class Look:
    """A reader's view of a run directory, kept up to date: each `now` reads only what was added since."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.story = run, Story()
        self.events: list[Event] = []
        self._tail = Tail(run.path / "events")

    def now(self) -> Verdict:
        for event in self._tail.poll():
            self.story.add(event)
            self.events.append(event)
        self.story.skipped = self._tail.skipped
        return judge(self.story, ages(self.run, self.story))


def look(run: RunDirectory) -> tuple[Verdict, Story, list[Event]]:
    """The verdict on a run directory as it is now, for one look from outside, with the story and events behind it."""
    view = Look(run)
    return view.now(), view.story, view.events


def ages(run: RunDirectory, story: Story) -> Ages:
    """How old the newest rollouts are and how long the oldest unmeasured ones have waited, by their files' times."""
    now = time.time()
    newest, oldest_waiting, behind = 0.0, None, 0
    for attempt in run.attempts()[-1:]:
        done = story.done.get(attempt, -1)
        for entry in entries(run.path / "rollouts" / str(attempt)):
            if entry.name.endswith(".parquet") and not entry.name.startswith("."):
                stamp = entry.stat(follow_symlinks=False).st_mtime
                newest = max(newest, stamp)
                head = entry.name.split("-")[0]
                if ".conflict-" not in entry.name and head.isdecimal() and int(head) > done:
                    oldest_waiting = stamp if oldest_waiting is None else min(oldest_waiting, stamp)
                    behind += 1
    started = newest or max((float(f.get("started", 0.0)) for f in story.attempts.values()), default=0.0)
    waiting = None if oldest_waiting is None else max(0.0, now - oldest_waiting)
    return Ages(max(0.0, now - started), waiting, behind)


def _about_gold(story: Story, least: int, enough: bool) -> str:
    if enough and not story.gold_differs:
        return "gold is the reward itself: such an alarm can never fire; use hidden tests, a stricter check or a judge"
    if enough:
        return f"{story.bets} prompt groups with gold"
    why = f"; {story.bad_gold} labels were outside [0, 1] and not used" if story.bad_gold else ""
    return (
        f"no gold to judge by: {story.bets} prompt groups with gold that tells, the alarm needs {least}{why}; "
        "pass gold= for every completion of some prompts"
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
