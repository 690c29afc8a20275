"""`tiltmeter report`: a run in one file, to send or to paste."""

from __future__ import annotations

import json as json_module
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.show import Run
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.report.answers import ROLLOUTS, collect_answers
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.run_reader import RunReader

Html = Annotated[bool, typer.Option("--html", help="One HTML file that needs no network; the default.")]
Markdown = Annotated[bool, typer.Option("--md", help="Markdown on standard output, to paste into an issue.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write.", metavar="FILE")]
Redact = Annotated[
    bool, typer.Option("--redact-text", help="Replace prompts and completions by their length and a hash.")
]
Most = Annotated[int, typer.Option("--rollouts", help="Completions shown for each alarm.", metavar="N", min=0, max=100)]


def report(
    run: Run,
    html: Html = False,
    md: Markdown = False,
    json: Json = False,
    out: Out = None,
    redact_text: Redact = False,
    rollouts: Most = ROLLOUTS,
) -> None:
    """Write a report on a run: the page's screens in one file, or Markdown, or JSON.

    Example: tiltmeter report runs/tonight --html --out tonight.html

    The file makes no request and can be mailed or kept. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    directory = RunDirectory(run)
    directory.identity()
    if html + md + json > 1:
        raise typer.BadParameter("choose one of --html, --md and --json")
    reader = RunReader(directory)
    verdict = reader.refresh()
    if md:
        text = render_markdown(reader, redact=redact_text)
    elif json:
        report_data = collect_answers(reader, rollouts=rollouts, redact=redact_text)
        text = json_module.dumps(plain(report_data), allow_nan=False) + "\n"
    else:
        text = render_html(reader, rollouts=rollouts, redact=redact_text)
        out = out or Path(f"{re.sub(r'[^A-Za-z0-9._-]+', '_', reader.name).strip('.') or 'run'}-report.html")
    if out is None:
        sys.stdout.write(text.encode("utf-8", "backslashreplace").decode())
    else:
        try:
            out.write_text(text, "utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{error.strerror}: {out}", param_hint="--out") from error
        sys.stderr.write(f"{out} ({len(text.encode()) / 1000:.0f} kB)\n")
    raise typer.Exit(verdict.exit_code)
