"""`tiltmeter verify`: check every stored byte of a run against its checksums."""

from __future__ import annotations

import json as json_module

import typer
from rich.console import Console

from tiltmeter.cli.show import Json, Run
from tiltmeter.rundir.maintenance import verify as verify_run
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line


def verify(run: Run, json: Json = False) -> None:
    """Read every stored byte again and check it against its checksums and the hashes recorded when it was measured.

    Example: tiltmeter verify runs/tonight

    Exit code: 0 intact, 1 damage found, 2 not a run directory.
    """
    directory = RunDirectory(run)
    directory.identity()
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with Console(stderr=True).status("checking…") as status:
        problems = verify_run(directory, progress=lambda text: status.update(f"checking {text}"))
    if json:
        console.out(json_module.dumps({"run": run.name, "intact": not problems, "problems": problems}, indent=1))
    else:
        for problem in problems:
            console.out(log_line(problem))
        console.out("intact" if not problems else f"{len(problems)} problems")
    raise typer.Exit(1 if problems else 0)
