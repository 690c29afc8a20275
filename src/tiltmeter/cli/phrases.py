"""`tiltmeter phrases`: the stock phrases a policy has taken to, each with a completion that contains it."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tiltmeter.cli.show import Json, Run
from tiltmeter.errors import StoreError
from tiltmeter.instruments.phrases import Phrase, phrases_overused_in
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import terminal
from tiltmeter.view.screens.phrases import BASELINE_NAMES, TOO_LITTLE, baseline_of, has_enough_text, newest_completions

Step = Annotated[int | None, typer.Option(help="The step to look at; the newest if not given.", metavar="N")]
Most = Annotated[int, typer.Option(help="How many phrases, strongest first.", metavar="N", min=1)]


def phrases(run: Run, step: Step = None, most: Most = 20, json: Json = False) -> None:
    """List the phrases that completions over-use against the reference policy, or against the run's first steps.

    Example: tiltmeter phrases runs/tonight --step 400

    A phrase counts once per completion and is listed at a false discovery rate of 1 %. Usual innocent cause: other
    prompts. Exit code: 0 compared, 2 there is too little to compare.
    """
    directory = RunDirectory(run)
    directory.identity()
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
        console.print(table(rows))


def table(rows: list[Phrase]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("phrase")
    for title in ("now", "before"):
        grid.add_column(title, justify="right")
    grid.add_column("for example")
    for phrase in rows:
        shares = (f"{phrase.share:.0%}", f"{phrase.share_before:.0%}")
        grid.add_row(terminal(phrase.text, 60), *shares, terminal(phrase.excerpt.strip(), 120))
    return grid
