"""What an agent may ask: the verdict, findings, readings, rollouts and the report of a run. Nothing here writes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tiltmeter.monitor.process import monitor_running
from tiltmeter.verdict.message import message
from tiltmeter.view.agent.fence import fence
from tiltmeter.view.agent.run_choice import RunChoice
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.run_reader import RunReader, run_name
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.server import rollouts as rollout_screen

MOST_RUNS = 200
MOST_JUDGED = 12  # runs of a list that are read at once
MOST_POINTS = 60
PART = 12_000  # characters of one rollout's texts in one answer
REPORT = 60_000  # characters
#: What the summary of a run has for an agent: its words and numbers, and nothing that is drawn.
VERDICT_FIELDS = (
    *("attempt", "step", "live", "behind", "onset", "onset_low", "onset_high", "last_good", "advice", "symptom"),
    *("agreement_and_level", "checks", "asides", "gold", "rows", "steps", "mode", "health", "slices"),
)
FINDING_FIELDS = ("findings", "alarms", "warnings", "proposals", "proves")


class RunTools:
    """The tools, over the runs that the server was started for. Each returns fenced text."""

    def __init__(self, runs: RunChoice) -> None:
        self.runs = runs

    def list_runs(self) -> str:
        """The runs that can be asked about: id, name and path, and the state of each if they are few."""
        paths = self.runs.paths()
        rows = [{"run": name, "name": run_name(path), "path": str(path)} for name, path in paths.items()][:MOST_RUNS]
        head = f"Runs: {len(paths)}."
        if len(paths) <= MOST_JUDGED:
            rows = [{**row, **self._state(row["run"])} for row in rows]
        else:
            head += " Their states are not in this list: ask verdict for each."
        return fence(f"{head} Left out: {len(paths) - len(rows)}.", rows)

    def verdict(self, run: str = "") -> str:
        """Whether a run is healthy: its state, since when, why, what to do, and the nine checks behind it.

        States: ACT (an alarm), HOLLOW (reward gained, gold did not), STALE, BLIND (cannot judge), WATCH, OK.
        """
        reader = self.runs.reader(run)
        state = reader.verdict
        measuring = state.state == "STALE" and monitor_running(reader.run) is True
        lines = message(state, reader.run_facts, place=str(reader.run.path), measuring=measuring)
        words = {word or "State": text for word, text in lines.lines()}
        facts = plain(summary(reader))
        data = {"run": reader.id, "name": reader.name, "lines": words, "sentence": state.sentence}
        head = f"State: {state.state}. Exit code: {state.exit_code}. Step: {reader.run_facts.last_step}."
        return fence(head, {**data, **{name: facts[name] for name in VERDICT_FIELDS}})

    def findings(self, run: str = "") -> str:
        """What is wrong with a run: findings with cause and fix, open alarms and warnings, proposed changes, and the
        completions that show it."""
        reader = self.runs.reader(run)
        facts = plain(summary(reader))
        counts = ", ".join(f"{name} {len(facts[name])}" for name in FINDING_FIELDS[:4])
        return fence(
            f"State: {reader.verdict.state}. Counts: {counts}.", {name: facts[name] for name in FINDING_FIELDS}
        )

    def readings(self, run: str = "", names: list[str] | None = None, points: int = 20) -> str:
        """Readings along a run. Without names: every name with its first and last value. With names: up to `points`
        values of each, evenly spaced over the steps."""
        reader = self.runs.reader(run)
        every_name = reader.columns.names()
        reader.columns.gather(names or every_name)
        chosen = [name for name in (names or every_name) if name in every_name]
        count = max(2, min(points, MOST_POINTS)) if names else 2
        data = {name: _points(reader, name, count) for name in chosen}
        missing = len(names or every_name) - len(chosen)
        return fence(f"Readings: {len(chosen)}. Unknown names: {missing}. A pair is step and value.", data)

    def search_rollouts(self, run: str = "", query: str = "", most: int = 10) -> str:
        """Rollouts that match a query line, newest first, with the first characters of each.

        As: step:100.. gold<0.3 "let us verify" text~/exit\\(\\d\\)/i sort:gap. Conditions: step:A..B, attempt:N,
        reward, gold and length with > >= < <=, labelled, truncated, flagged and disagree with :yes or :no, sort:step,
        reward, gold, length or gap. Texts are searched exactly; an i after one ignores case.
        """
        index = self.runs.index(run)
        index.reader.refresh(force=True)
        index.update()
        limit = max(1, min(most, rollout_screen.MOST_ROWS))
        page = rollout_screen.rollouts(index, {"find": query}, limit=limit)
        while page.to_search and (page.searched or 0) + (page.unsearchable or 0) < page.to_search:
            page = rollout_screen.rollouts(index, {"find": query}, limit=limit)
        unread = f" Texts that could not be searched: {page.unsearchable}." if page.unsearchable else ""
        return fence(f"Matches: {page.total} of {page.rollouts} rollouts.{unread}", plain(page.rows))

    def rollout(self, id: str, run: str = "", start: int = 0) -> str:
        """One rollout in full: prompt, completion, turns, acts, rewards, gold, the others of its group and the answer
        at the start of the run. Long texts come in parts: `start` is the character to go on from."""
        index = self.runs.index(run)
        index.reader.refresh(force=True)
        group = plain(rollout_screen.group(index, id))
        longest, start = 0, max(0, start)
        for name in ("prompt", "completion"):
            text = group["rollout"].get(name) or ""
            longest = max(longest, len(text))
            group["rollout"][name] = text[start : start + PART]
        rest = max(0, longest - start - PART)
        head = f"Characters {start} to {start + PART} of the texts; after them: {rest}."
        return fence(head, {name: group[name] for name in ("rollout", "rows", "base", "base_why")}, longest=PART)

    def report(self, run: str = "", redact: bool = False) -> str:
        """The report of a run as Markdown, to keep or to send on. `redact`: texts of prompts and completions are
        replaced by their length and a hash."""
        reader = self.runs.reader(run)
        text = render_markdown(reader, redact=redact)
        return fence(f"State: {reader.verdict.state}. Redacted: {redact}.", {"markdown": text}, longest=REPORT)

    def _state(self, run: str) -> dict[str, Any]:
        """The state of a run of the list; why not, for one that cannot be read."""
        try:
            reader = self.runs.reader(run)
        except Exception as error:  # noqa: BLE001  # one unreadable run must not hide the others
            return {"state": "unreadable", "why": f"{type(error).__name__}: {error}"}
        return {"state": reader.verdict.state, "sentence": reader.verdict.sentence, "step": reader.run_facts.last_step}


def _points(reader: RunReader, name: str, count: int) -> list[list[Any]]:
    series = reader.columns.lineage_series(name)
    places = np.unique(np.linspace(0, len(series.steps) - 1, min(count, len(series.steps))).astype(int))
    values = [(int(series.steps[place]), float(series.values[place])) for place in places]
    return [[step, float(f"{value:.6g}") if math.isfinite(value) else None] for step, value in values]
