"""`tiltmeter report`: a run in files, to send or to keep: the report, the picture, a folder for the web."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import Html, Json, Markdown, Run, file_stem, open_run, write_report
from tiltmeter.cli.terminal.run_screen import write_stdout
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.report.answers import ROLLOUTS, collect_answers
from tiltmeter.view.report.bundle import write_bundle
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.picture.layout import draw_run
from tiltmeter.view.screens.picture.png import render_png
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import RunReader

Svg = Annotated[
    Path | None,
    typer.Option("--svg", help="Write the picture here, sharp at any size; - prints it.", metavar="FILE"),
]
Png = Annotated[
    Path | None, typer.Option("--png", help="Write the picture here, for chats and slides.", metavar="FILE")
]
Target = Annotated[
    Path | None,
    typer.Option("--to", help="Make this folder for any web server: index.html, tables as Parquet.", metavar="FOLDER"),
]
AllRollouts = Annotated[
    bool, typer.Option("--all-rollouts", help="With --to: also every rollout, as rollouts.parquet.")
]
Replace = Annotated[bool, typer.Option("--replace", help="With --to: in the place of an older such folder.")]
Redact = Annotated[
    bool, typer.Option("--redact-text", help="Replace prompts and completions by their length and a hash.")
]
Most = Annotated[int, typer.Option("--rollouts", help="Completions shown for each alarm.", metavar="N", min=0, max=100)]


def report(
    run: Run,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
    svg: Svg = None,
    png: Png = None,
    to: Target = None,
    all_rollouts: AllRollouts = False,
    replace: Replace = False,
    redact_text: Redact = False,
    rollouts: Most = ROLLOUTS,
) -> None:
    """Write a report on a run: the page's screens in one file, Markdown, JSON, the picture, or a folder for the web.

    Example: tiltmeter report runs/tonight --html tonight.html

    Without an option it writes NAME-report.html, which makes no request and can be mailed or kept. Nothing is sent
    anywhere. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    if sum((json, str(md) == "-", str(svg) == "-")) > 1:
        raise typer.BadParameter("one of --json, --md - and --svg - can be printed: name a file after the others")
    if to is None and (all_rollouts or replace):
        raise typer.BadParameter("--all-rollouts and --replace are about the folder of --to: name it")
    reported = json or md is not None or html is not None or to is not None
    drawn = svg is not None or png is not None
    directory = open_run(run, steps=0 if drawn and not reported else None)  # a picture needs no rollouts
    reader = RunReader(directory)
    verdict = reader.refresh()
    stem = file_stem(reader.name)
    name = f"{stem}-report"
    if md is not None:
        write_report(render_markdown(reader, redact=redact_text), md, f"{name}.md", "--md")
    if html is not None or not (reported or drawn):
        text = render_html(reader, rollouts=rollouts, redact=redact_text)
        write_report(text, html or Path(), f"{name}.html", "--html")
    if json:
        report_data = collect_answers(reader, rollouts=rollouts, redact=redact_text)
        text = json_module.dumps(plain(report_data), allow_nan=False) + "\n"
        write_stdout(text)
    if svg is not None:
        write_report(render_svg(draw_run(read_curves(reader))) + "\n", svg, f"{stem}-picture.svg", "--svg")
    if png is not None:
        write_report(render_png(draw_run(read_curves(reader)), 2.0), png, f"{stem}-picture.png", "--png")
    if to is not None:
        files = write_bundle(
            directory, to, redact=redact_text, all_rollouts=all_rollouts, replace=replace, rollouts=rollouts
        )
        size = sum(path.stat().st_size for path in files)
        sys.stderr.write(f"{log_line(str(to))} ({len(files)} files, {size / 1000:.0f} kB)\n")
    raise typer.Exit(verdict.exit_code)
