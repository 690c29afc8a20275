"""The data of a report: the server's answers, by the URL that the page would request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from tiltmeter.version import __version__
from tiltmeter.view.payloads.overview import Summary
from tiltmeter.view.payloads.people import ReportAnswers
from tiltmeter.view.report.redact import redact_texts
from tiltmeter.view.screens.actions import actions
from tiltmeter.view.screens.alarms import alarm, alarms
from tiltmeter.view.screens.phrases import phrases
from tiltmeter.view.screens.pinned_prompts import pinned
from tiltmeter.view.screens.plots import plots
from tiltmeter.view.screens.reading_room.notes import list_notes
from tiltmeter.view.screens.rollout_plots import geometry
from tiltmeter.view.screens.rollouts import group
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.screens.verifier import verifier
from tiltmeter.view.without_secrets import without_secrets

SUMMARY, ALARMS, ACTIONS = "/api/summary", "/api/alarms", "/api/actions"
ROLLOUTS = 10  # completions for each alarm, with their groups


def collect_answers(reader: RunReader, *, rollouts: int = ROLLOUTS, redact: bool = False) -> ReportAnswers:
    """The report's data: version, time and step, and every answer by URL. `redact`: text of prompts and completions is
    replaced by its length and a hash, so that equal texts can still be recognized. Secrets are replaced in any case."""
    reader.refresh(force=True)
    overview = summary(reader)
    answers = dict(_iter_answers(reader, overview, rollouts))
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(overview.now))
    about = f"Report of tiltmeter {__version__}, {when} UTC, up to step {overview.step}"
    if redact:
        answers, about = redact_texts(answers), f"{about}; texts are redacted"
    return without_secrets(ReportAnswers(about=about, answers=answers))


def _iter_answers(reader: RunReader, overview: Summary, rollouts: int) -> Iterator[tuple[str, Any]]:
    yield SUMMARY, overview
    yield "/api/plots", plots(reader)
    yield "/api/geometry", geometry(reader)
    yield "/api/phrases", phrases(reader)
    yield "/api/pinned", pinned(reader)
    yield ACTIONS, actions(reader)
    yield "/api/notes", list_notes(reader)
    yield "/api/verifier", verifier(reader)
    alarm_list = alarms(reader)
    yield ALARMS, alarm_list
    rollout_ids = [row.id for row in overview.proves]
    for row in alarm_list.rows:
        detail = alarm(reader, row.id)
        if detail is None:
            continue  # gone since it was listed
        yield _address("/api/alarm", {"id": row.id}), detail
        rollout_ids += [exemplar.id for exemplar in detail.exemplars[:rollouts]]
    for name in dict.fromkeys(
        rollout_ids[: max(rollouts, len(overview.proves))] if not alarm_list.rows else rollout_ids
    ):
        yield _address("/api/group", {"id": name}), group(reader, name)


def _address(path: str, params: Mapping[str, str]) -> str:
    """The URL as the page builds it."""
    return f"{path}?{urlencode(params)}"
