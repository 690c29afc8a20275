"""The first screen of a run without its plots: what is the matter, since when, why, what was done, what to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tiltmeter.advice import Estimate
from tiltmeter.gold.people import PEOPLE
from tiltmeter.interventions.docket import OPEN
from tiltmeter.page.actions import action_rows, offered
from tiltmeter.page.alarms import alarm_rows
from tiltmeter.page.book import Book, Readings
from tiltmeter.page.gold import NAMES, advice, checkpoints, gold_name, last_good
from tiltmeter.page.history import History, newest
from tiltmeter.page.proof import proofs
from tiltmeter.page.samples import rollout_id
from tiltmeter.page.words import findings, remarks, short
from tiltmeter.records import Finding
from tiltmeter.story import Story
from tiltmeter.verdict import Verdict

FINDINGS = 4
ENTRIES = 40
WARNINGS = 8
PROPOSALS = 5
ASIDES = 12
MARKS = 60
CHECKPOINTS = 20  # marks: the plot of gold shows them all
TEXT = 300
POINTS = 20  # readings on either side of an onset that are pooled
#: The counts of a verdict that are about the monitor and not about the policy.
OURS = ("monitor", "fresh", "detectors", "ranks", "kept", "scored")


def summary(book: Book, since: float | None = None) -> dict[str, Any]:
    """Everything above the plots, as of the book's last refresh. `since`: entries from that time on."""
    with book.lock:
        verdict, story, history = book.verdict, book.story, book.folded("history", History)
        first = verdict.alarms[0] if verdict.alarms else None
        advised, offer = advice(book), offered(book, history)
        kept = last_good(book)
        entries = [entry for entry in history.entries if since is None or entry["time"] >= since]
        waiting = [row for row in history.actions.values() if row["state"] in OPEN and row["attempt"] == story.attempt]
        return {
            **headline(book, verdict),
            "behind": 0 if book.look.ages is None else book.look.ages.behind,
            "now": time.time(),
            "onset": None if first is None else first.onset,
            "onset_low": None if first is None else first.onset_low,
            "onset_high": None if first is None else first.onset_high,
            "last_good": _estimate(kept),
            "advice": None
            if advised is None
            else {"word": advised.word, "why": short(advised.why, TEXT), "now": _estimate(advised.now)},
            "symptom": symptom(book),
            "checks": [{"name": name, "ok": check.ok, "why": check.why} for name, check in verdict.checks.items()],
            "findings": [_finding(found, story) for found in findings(story)[:FINDINGS]],
            "alarms": alarm_rows(book, list(verdict.alarms)),
            "warnings": alarm_rows(book, list(verdict.warnings[:WARNINGS])),
            "proposals": action_rows(book, waiting[-PROPOSALS:]),
            "entries": newest(entries, ENTRIES),
            "entries_left_out": max(0, len(entries) - ENTRIES),
            "asides": _asides(book, verdict),
            "gold": _gold(story, history),
            "rows": story.rows,
            "steps": story.steps,
            "mode": "" if offer is None else offer.mode,
            "lanes": lanes(story),
            "marks": marks(book, kept),
            "proves": proofs(book),
            "health": health_line(verdict, story),
        }


def headline(book: Book, verdict: Verdict) -> dict[str, Any]:
    """What every list of runs says of one first."""
    story, age = book.story, book.age
    return {
        "run": book.id,
        "name": book.name,
        "state": verdict.state,
        "sentence": verdict.sentence,
        "live": story.attempt is None or story.attempt not in story.ended,
        "attempt": story.attempt if story.attempt is not None else 0,
        "step": story.last_step,
        "age_s": None if age is None else round(age, 1),
    }


def symptom(book: Book) -> str:
    """What reward and gold did since the onset, or since the start, in numbers: "proxy +0.21, gold -0.31 since step
    612". Where gold is known of audited pairs alone, the slope that the alarm is about stands beside it."""
    alarms = book.story.open("alarm")
    onset = alarms[0].onset if alarms else None
    gold = gold_name(book)
    label = NAMES.get(gold, gold)
    told = []
    for name, word in (("reward.mean", "proxy"), (gold, label)):
        sides = _sides(book.columns.line(name), onset) if name else None
        if sides is not None:
            told.append(f"{word} {_signed(sides[1] - sides[0])}")
    if alarms and alarms[0].name == "gold.slope" and gold == "gold.level":
        sides = _sides(book.columns.line("gold.slope"), onset)
        told += [f"slope of gold {_signed(sides[0])} → {_signed(sides[1])}"] if sides is not None else []
    if not told:
        return ""
    return f"{', '.join(told)} since {'the start' if onset is None else f'step {onset}'}"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < 10 else f"{value:+.3g}"


def _sides(line: Readings, onset: int | None) -> tuple[float, float] | None:
    """Means of the values just before the onset, without one of the first, and of the newest; None: a side is empty."""
    cut = len(line.steps) // 2 if onset is None else int(np.searchsorted(line.steps, onset))
    before = slice(0, min(cut, POINTS)) if onset is None else slice(max(0, cut - POINTS), cut)
    after = slice(max(cut, len(line.steps) - POINTS), None)
    if not len(line.steps[before]) or not len(line.steps[after]):
        return None
    was, now = (float(np.average(line.values[part], weights=np.maximum(line.n[part], 1))) for part in (before, after))
    return was, now


def _finding(found: Finding, story: Story) -> dict[str, Any]:
    tried = story.experiments.get(found.failure, {}).get("sentence", "")
    return {
        "failure": found.failure,
        "confidence": found.confidence,
        "attempt": found.attempt,
        "step": found.step,
        **{key: short(getattr(found, key), TEXT) for key in ("summary", "cause", "fix")},
        "tried": short(str(tried), TEXT),
        "readings": list(found.readings)[:8],
        "exemplars": [rollout_id(*row) for row in found.exemplars[:12]],
    }


def _estimate(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _asides(book: Book, verdict: Verdict) -> list[str]:
    def line(name: str) -> tuple[Any, Any]:
        found = book.columns.line(name)
        return found.steps, found.values

    return [short(text, TEXT) for text in remarks(verdict, book.story, line)][:ASIDES]


def _gold(story: Story, history: History) -> dict[str, Any]:
    waiting = sum(history.waiting.values())
    source = "" if story.gold is None else str(story.gold["name"])
    return {
        "source": source or ("given with the rollouts" if story.labels else ""),
        "labels": story.labels,
        "asked": story.asked + waiting,
        "waiting": waiting,
        "rollouts": story.audited,
        "people": source == PEOPLE,
    }


def lanes(story: Story) -> list[dict[str, Any]]:
    """One lane per attempt that has steps, with where a later one left it."""
    spans, made = story.spans(), []
    for attempt in sorted(story.first):
        first, last = story.first[attempt], story.done[attempt]
        limit = spans.get(attempt, float(first))
        parent = story.attempts.get(attempt, {}).get("parent")
        left = int(max(limit, first)) if limit <= last else None
        made.append({"attempt": attempt, "parent": parent, "first": first, "last": last, "left": left})
    return made


def marks(book: Book, kept: Estimate | None = None) -> list[dict[str, Any]]:
    """What every plot over steps draws: alarms, changes and segments, and some checkpoints, `kept` among them."""
    found = _few(book.folded("history", History).marks, MARKS)
    saved = checkpoints(book)
    shown = {saved[at] for at in np.linspace(0, len(saved) - 1, min(CHECKPOINTS, len(saved))).astype(int)}
    shown |= {kept.step} if kept is not None else set()
    attempts = sorted(book.story.spans().items())
    return [
        *found,
        *(
            {
                "attempt": next((attempt for attempt, limit in attempts if step < limit), 0),
                "step": step,
                "kind": "checkpoint",
                "text": f"checkpoint {step}",
                "id": "",
            }
            for step in sorted(shown)
        ),
    ]


def _few(found: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many marks: warnings go first, the oldest of them before the others."""
    if len(found) <= most:
        return list(found)
    ranked = sorted(range(len(found)), key=lambda at: (found[at]["kind"] == "warning", -at))
    return [found[at] for at in sorted(ranked[:most])]


def health_line(verdict: Verdict, story: Story) -> dict[str, Any]:
    """The state of the monitor itself in one line."""
    failed = [verdict.checks[name].why for name in OURS if name in verdict.checks and not verdict.checks[name].ok]
    if failed:
        return {"text": short("; ".join(failed), TEXT), "ok": False}
    lost, seen = story.lost
    told = ["every stored step is measured", "all ranks are there", f"{lost} of {seen} batches lost"]
    told += [f"{len(story.off)} parts are off"] if story.off else []
    told += [f"{len(story.faults)} faults on record"] if story.faults else []
    return {"text": " · ".join(told), "ok": not story.off}
