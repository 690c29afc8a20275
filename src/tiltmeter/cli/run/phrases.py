"""The over-used phrases of `tiltmeter rollouts --phrases`: what a policy says too often."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from tiltmeter.cli.options import open_run
from tiltmeter.data.phrase import Phrase
from tiltmeter.errors import StoreError
from tiltmeter.instruments.phrases import phrases_overused_in
from tiltmeter.safety.safe_text import terminal
from tiltmeter.view.screens.phrases import BASELINE_NAMES, TOO_LITTLE, baseline_of, has_enough_text, newest_completions


def list_phrases(run: Path, step: int | None, most: int, json: bool) -> None:
    """Print the phrases that a step, the newest if none is named, over-uses; raise `StoreError` if there is too little
    to compare."""
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
