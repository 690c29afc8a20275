"""`tiltmeter report`: a run in one file, to send or to paste; `phrases`: what a policy says too often."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tiltmeter.cli.options import Html, Json, Markdown, Run, file_stem, open_run, write_report
from tiltmeter.cli.terminal.run_screen import write_stdout
from tiltmeter.data.phrase import Phrase
from tiltmeter.errors import StoreError
from tiltmeter.instruments.phrases import phrases_overused_in
from tiltmeter.safety.safe_text import terminal
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.report.answers import ROLLOUTS, collect_answers
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.phrases import BASELINE_NAMES, TOO_LITTLE, baseline_of, has_enough_text, newest_completions
from tiltmeter.view.screens.run_reader import RunReader

Redact = Annotated[
    bool, typer.Option("--redact-text", help="Replace prompts and completions by their length and a hash.")
]
Most = Annotated[int, typer.Option("--rollouts", help="Completions shown for each alarm.", metavar="N", min=0, max=100)]
Step = Annotated[int | None, typer.Option(help="The step to look at; the newest if not given.", metavar="N")]
MostPhrases = Annotated[int, typer.Option(help="How many phrases, strongest first.", metavar="N", min=1)]


def report(
    run: Run,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
    redact_text: Redact = False,
    rollouts: Most = ROLLOUTS,
) -> None:
    """Write a report on a run: the page's screens in one file, or Markdown, or JSON.

    Example: tiltmeter report runs/tonight --html tonight.html

    Without an option it writes NAME-report.html, which makes no request and can be mailed or kept. Exit code: 0
    healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    if json and str(md) == "-":
        raise typer.BadParameter("one of --json and --md - can be printed: name a file after --md")
    reader = RunReader(open_run(run))
    verdict = reader.refresh()
    name = f"{file_stem(reader.name)}-report"
    if md is not None:
        write_report(render_markdown(reader, redact=redact_text), md, f"{name}.md", "--md")
    if html is not None or (md is None and not json):
        text = render_html(reader, rollouts=rollouts, redact=redact_text)
        write_report(text, html or Path(), f"{name}.html", "--html")
    if json:
        report_data = collect_answers(reader, rollouts=rollouts, redact=redact_text)
        text = json_module.dumps(plain(report_data), allow_nan=False) + "\n"
        write_stdout(text)
    raise typer.Exit(verdict.exit_code)


def phrases(run: Run, step: Step = None, most: MostPhrases = 20, json: Json = False) -> None:
    """List the phrases that completions over-use against the reference policy, or against the run's first steps.

    Example: tiltmeter phrases runs/tonight --step 400

    A phrase counts once per completion and is listed at a false discovery rate of 1 %. Usual innocent cause: other
    prompts. Exit code: 0 compared, 2 there is too little to compare.
    """
    directory = open_run(run)
    now = newest_completions(directory, step)
    if now is None:
        raise StoreError(f"{run} has no completions with text{'' if step is None else f' at step {step}'}")
    start = baseline_of(directory)
    if start is None or not has_enough_text(now, start):
        raise StoreError(f"{run} has {TOO_LITTLE}")
    rows = phrases_overused_in(now, start, most)
    if json:
        facts = {"step": now.step, "compared_with": start.source, "phrases": [asdict(phrase) for phrase in rows]}
        typer.echo(json_module.dumps(facts, indent=1))
        return
    console = Console(highlight=False, markup=False)
    count = f"{len(rows) or 'no'} over-used phrase{'' if len(rows) == 1 else 's'}"
    console.print(f"Step {now.step} against {BASELINE_NAMES[start.source]}: {count}")
    if rows:
        console.print(_phrase_table(rows))


def _phrase_table(rows: list[Phrase]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("phrase")
    for title in ("now", "before"):
        grid.add_column(title, justify="right")
    grid.add_column("for example")
    for phrase in rows:
        shares = (f"{phrase.share:.0%}", f"{phrase.share_before:.0%}")
        grid.add_row(terminal(phrase.text, 60), *shares, terminal(phrase.excerpt.strip(), 120))
    return grid
