"""Ends a command whose judge is people while they have still to judge, and says what to do."""

from __future__ import annotations

import sys

import typer

from tiltmeter_workbench.compare.people import SAVED
from tiltmeter_workbench.compare.referees import Referee, people_of


def wait_for_people(referee: Referee | None) -> None:
    """Leave a page with what is still to be judged, and end with exit code 2; nothing where all is judged."""
    labels = people_of(referee)
    if labels is None or not labels.waiting:
        return
    page = labels.write_page()
    each = f"; {labels.raters} people, each with a file" if labels.raters > 1 else ""
    sys.stderr.write(
        f"{page}: {len(labels.waiting)} wait for people. Open it, judge, save into {labels.work} as {SAVED}{each}. "
        "Then the same command again: it asks for the rest, or reports.\n"
    )
    raise typer.Exit(2)
