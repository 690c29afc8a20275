"""`tiltmeter publish`: a run as static files for any web server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import Run, file_stem, open_run
from tiltmeter.cli.run.report import Redact
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.report.bundle import write_bundle
from tiltmeter.view.screens.run_reader import run_name

Target = Annotated[
    Path | None, typer.Option("--to", help="The folder to make; NAME-bundle if not given.", metavar="FOLDER")
]
AllRollouts = Annotated[bool, typer.Option("--all-rollouts", help="Also every rollout, as rollouts.parquet.")]
Replace = Annotated[bool, typer.Option("--replace", help="Put it in the place of an older bundle.")]


def publish(
    run: Run,
    to: Target = None,
    all_rollouts: AllRollouts = False,
    redact_text: Redact = False,
    replace: Replace = False,
) -> None:
    """Write a run as a folder for any web server: the report as index.html, its tables as Parquet.

    Example: tiltmeter publish runs/tonight --to public/tonight --redact-text

    Nothing is sent anywhere. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    directory = open_run(run)
    target = to or Path(f"{file_stem(run_name(directory.path.resolve()))}-bundle")
    files = write_bundle(directory, target, redact=redact_text, all_rollouts=all_rollouts, replace=replace)
    size = sum(path.stat().st_size for path in files)
    sys.stderr.write(f"{log_line(str(target))} ({len(files)} files, {size / 1000:.0f} kB)\n")
    raise typer.Exit(judge_run(directory)[0].exit_code)
