"""From events to a state and a sentence: the one place where a run is called healthy, and the last branch it takes.

Green needs positive evidence on eight counts. Whatever is missing, unreadable or unknown is BLIND or STALE with the
reason; an open alarm outranks both. Page, report, terminal and exit code all ask here, and nothing else decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tiltmeter.journal import Event, Tail
from tiltmeter.records import Alarm
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story

State = Literal["ACT", "STALE", "BLIND", "WATCH", "OK"]
ICONS: dict[State, str] = {"ACT": "▲", "STALE": "⊘", "BLIND": "○", "WATCH": "◐", "OK": "✓"}

#: The eight counts, in the order in which a failure is reported.
CHECKS = ("monitor", "fresh", "gold", "gold_recent", "detectors", "ranks", "kept", "scored")

RECENT_STEPS = 40  # two blocks of the alarm's bet: older gold says nothing about the run as it is
MISSING_SHARE = 0.1  # of labels that never came: each counts in favour of the run, so many of them hide its harm
EVALUATIONS = 2  # a level cannot have fallen before there are two
LOST_SHARE = 0.01
INFRA_SHARE = 0.05
PATIENCE_SECONDS = 60.0
UNKNOWN_PACE_SECONDS = 600.0  # before two steps have shown how long one takes: a model is loaded, a step is long


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
    behind: int = 0  # steps that are stored and not measured, or 1 for an attempt nobody has looked at
    over: bool = False  # every rank has closed: what is not measured now is late, not on its way


def judge(story: Story, ages: Ages, *, impatient: bool = False) -> Verdict:
    """The state function. `impatient`: a step that waits at all is too much, for an answer that will be the last."""
    checks = examine(story, ages, impatient=impatient)
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
        state, sentence = "OK", f"no alarm on {_rests_on(story)}"
    else:
        state, sentence = "BLIND", "not examined"
    return Verdict(state, sentence, checks, alarms, warnings)


def examine(story: Story, ages: Ages, *, impatient: bool = False) -> dict[str, Check]:
    """The eight counts of a run that may be called healthy."""
    patience = max(3.0 * story.pace, PATIENCE_SECONDS) if story.pace else UNKNOWN_PACE_SECONDS
    live = story.attempt is None or story.attempt not in story.ended
    needed = [part for part in story.detectors if part["tier"] == "alarm"]
    least = max((int(part["least"]) for part in needed), default=0)
    off = [name for name in story.off if any(name.split(":")[0] == part["name"] for part in needed)]
    off += [name for name in story.off if any(name in part["watches"] for part in needed)]
    lost, seen = story.lost
    rows, infra = sum(item[1] for item in story.recent), sum(item[2] for item in story.recent)
    waiting = ages.waiting is not None and (ages.over or impatient or ages.waiting > patience)
    spans = story.spans()
    labelled = story.last_bet is not None and _recent(story, story.last_bet, RECENT_STEPS, spans)
    declared = [at for at in story.evaluations if at[1] < spans.get(at[0], -1)]
    evaluated = len(declared) >= EVALUATIONS
    # As old as twice the usual distance is not old: a benchmark may be run every hundred steps.
    gap = max(RECENT_STEPS, 2 * (declared[-1][1] - declared[-2][1])) if evaluated else 0
    recent = labelled or (evaluated and _recent(story, declared[-1], gap, spans))
    newest = max([at[1] for at in (story.last_bet, *declared[-1:]) if at is not None], default=-1)
    lacking = story.asked > 0 and story.unanswered > MISSING_SHARE * story.asked
    enough = story.bets >= max(least, 1) and story.gold_differs
    gaps = [step for attempt, step in story.missing if attempt == story.attempt and step > story.last_step - 3]
    return {
        "monitor": Check(
            not waiting and bool(story.steps),
            f"{ages.behind} stored steps are not measured yet; to measure them: tiltmeter watch RUN"
            if ages.behind
            else "no step has been measured yet"
            if not story.steps
            else "every stored step is measured",
        ),
        "fresh": Check(
            not live or ages.data <= patience,
            "the run has ended" if not live else f"the trainer was last heard of {_span(ages.data)} ago",
        ),
        "gold": Check(not lacking and (enough or evaluated), _about_gold(story, max(least, 1), lacking, evaluated)),
        "gold_recent": Check(
            recent,
            f"newest gold is of step {newest}, the run is at {story.last_step}"
            if newest >= 0
            else "no prompt group with gold that tells so far",
        ),
        "detectors": Check(
            bool(needed) and not off,
            f"switched off: {', '.join(off)}"
            if off
            else "the alarm is on"
            if needed
            else "no alarm detector is set up",
        ),
        "ranks": Check(
            not gaps,
            f"ranks missing at step {gaps[-1]}; if only one process observes, pass ranks=1"
            if gaps
            else "all ranks are there",
        ),
        "kept": Check(
            seen > 0 and lost < LOST_SHARE * seen,
            f"{lost} of {seen} batches were thinned, dropped or not measured"
            if seen
            else "the trainer's counters are missing",
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
        self.ages: Ages | None = None  # at the last look, and when that was
        self.looked = 0.0
        self._tail = Tail(run.path / "events")

    def now(self, *, impatient: bool = False) -> Verdict:
        for event in self._tail.poll():
            self.story.add(event)
            self.events.append(event)
        self.story.skipped = self._tail.skipped
        self.ages, self.looked = ages(self.run, self.story), time.time()
        return judge(self.story, self.ages, impatient=impatient)


def look(run: RunDirectory) -> tuple[Verdict, Story, list[Event]]:
    """The verdict on a run directory as it is now, for one look from outside, with the story and events behind it."""
    view = Look(run)
    return view.now(), view.story, view.events


def ages(run: RunDirectory, story: Story) -> Ages:
    """How old the newest rollouts are and how long the oldest unmeasured ones have waited, by their files' times."""
    now, attempts = time.time(), run.attempts()
    if not attempts:
        return Ages(max(0.0, now - (run.path / "run.json").stat().st_mtime), None)
    last = attempts[-1]
    started = float(run.attempt(last).get("started", now))
    stamps = {file.step: file.path.stat().st_mtime for file in run.files(last, [])}
    waiting = [stamp for step, stamp in stamps.items() if step > story.done.get(last, -1)]
    newest = max(stamps.values(), default=started)
    if not waiting and story.recent and story.done.get(last) is not None:
        newest = min(newest, story.recent[-1][0] or newest)  # a copy of a run is no younger than the run
    if last not in story.attempts:
        waiting.append(started)  # nobody has looked at this attempt
    oldest = max(0.0, now - min(waiting)) if waiting else None
    return Ages(max(0.0, now - newest), oldest, len(waiting), run.ended(last))


def _recent(story: Story, at: tuple[int, int], steps: int, spans: Mapping[int, float]) -> bool:
    """Whether what is known of a step still tells about the run as it is."""
    return at[1] < spans.get(at[0], -1) and story.last_step - at[1] <= steps


def _rests_on(story: Story) -> str:
    """What a healthy verdict rests on."""
    told = []
    if story.labels or not story.evaluations:
        newest = story.last_label[1] if story.last_label else -1
        told.append(f"{story.about_labels}, newest at step {newest}")
    if story.evaluations:
        told.append(f"{len(story.evaluations)} evaluations, newest at step {story.evaluations[-1][1]}")
    return " and ".join(told)


def _about_gold(story: Story, least: int, lacking: bool, evaluated: bool) -> str:
    enough = story.bets >= least
    if enough and not story.gold_differs and not evaluated:
        return "gold is the reward itself: such an alarm can never fire; use hidden tests, a stricter check or a judge"
    if lacking:
        return (
            f"{story.unanswered} of {story.asked} labels never came ({story.unanswered / story.asked:.0%}), and each "
            "counts in favour of the run; mend the gold source: its errors are under Faults in --json"
        )
    if enough and story.gold_differs:
        return f"{story.bets} {'audited pairs' if story.judges else 'prompt groups'} with gold"
    if evaluated:
        return f"{len(story.evaluations)} declared evaluations"
    if story.gold is not None:
        return (
            f"no gold to judge by yet: {story.bets} audited pairs, the alarm needs {least}; {story.gold['name']} is "
            "asked about prompts whose rewards differ, if completion= is passed to observe()"
        )
    why = f"; {story.bad_gold} labels were outside [0, 1] and not used" if story.bad_gold else ""
    source = (
        "audit again with --gold checks.py:score, a judge's file or a file of labels, or --map gold=COLUMN"
        if story.imported
        else 'name a source, as gold="checks.py:score", or pass gold= to observe() for every completion of some '
        "prompts, with no gold_chance below 1"
    )
    return (
        f"no gold to judge by: {story.bets} prompt groups with gold that tells, the alarm needs {least}{why}; {source}"
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
