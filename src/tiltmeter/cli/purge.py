"""`tiltmeter purge`: delete stored rollouts."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tiltmeter.cli.show import Run
from tiltmeter.rundir.maintenance import purge as purge_run
from tiltmeter.rundir.store import RunDirectory


def purge(
    run: Run,
    before: Annotated[int | None, typer.Option(help="Only steps below this one.", metavar="STEP")] = None,
    days: Annotated[float | None, typer.Option(help="Only files written more than this many days ago.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete stored rollouts: prompts, completions, tokens and rewards. Readings, alarms and verdicts stay.

    Example: tiltmeter purge runs/tonight --days 30

    What is deleted cannot be replayed or shown again.
    """
    directory = RunDirectory(run)
    directory.identity()
    if not yes and not typer.confirm(f"Delete stored rollouts of {run.name}?"):
        raise typer.Exit(2)
    deleted = purge_run(directory, before=before, days=days)
    Console(highlight=False, markup=False).out(f"{deleted} files deleted")
