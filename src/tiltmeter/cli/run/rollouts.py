"""`tiltmeter rollouts`: find rollouts by the query line of the page, or the phrases that they over-use."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.cli.options import Json, Run, open_run
from tiltmeter.cli.run.phrases import list_phrases
from tiltmeter.cli.terminal.run_screen import write_stdout
from tiltmeter.safety.safe_text import visible
from tiltmeter.view.payloads.encode import encode
from tiltmeter.view.payloads.rollouts import RolloutPage, RolloutRow
from tiltmeter.view.screens.run_reader import RunReader

Query = Annotated[str, typer.Argument(help='As "let us verify" or "gold<0.3 text~/exit\\(\\d\\)/i sort:gap".')]
Phrases = Annotated[
    bool, typer.Option("--phrases", help="Instead the phrases that completions over-use, against the run's start.")
]
Step = Annotated[
    int | None, typer.Option("--step", help="With --phrases: the step to look at; else the newest.", metavar="N")
]
Most = Annotated[
    int, typer.Option("--most", help="Rollouts, at most 100, or phrases that are printed.", min=1, metavar="N")
]


def rollouts(
    run: Run, query: Query = "", phrases: Phrases = False, step: Step = None, most: Most = 20, json: Json = False
) -> None:
    """Find rollouts by what they say and what they were paid, as on the page; or list the phrases they over-use.

    Example: tiltmeter rollouts runs/tonight 'step:100.. gold<0.3 "let us verify" sort:gap'

    Conditions: step:A..B, attempt:N, reward, gold and length with > >= < <=, labelled, truncated, flagged and disagree
    with :yes or :no, tag:NAME, sort:step, reward, gold, length or gap with .up or .down. Texts: "words" in prompt or
    completion, text:"words", prompt:"words", text~/expression/ (RE2); i after it ignores case. Every text of the run is
    searched.

    --phrases compares with the reference policy, or with the run's first steps. A phrase counts once per completion and
    is listed at a false discovery rate of 1 %. Usual innocent cause: other prompts.

    Exit code: 0 something was found, 1 nothing was, 2 nothing was, and some texts could not be searched; with --phrases
    0 compared, 2 there is too little to compare.
    """
    if phrases:
        if query:
            raise typer.BadParameter("--phrases takes no query", param_hint="QUERY")
        list_phrases(run, step, most, json)
    elif step is not None:
        raise typer.BadParameter(f"it is for --phrases: write step:{step} into the query", param_hint="--step")
    elif most > 100:
        raise typer.BadParameter("at most 100 rollouts are printed", param_hint="--most")
    else:
        _find_rollouts(run, query, most, json)


def _find_rollouts(run: Path, query: str, most: int, json: bool) -> None:
    from tiltmeter.view.server.rollouts import RolloutIndex  # it needs DuckDB of an extra, which --phrases does not
    from tiltmeter.view.server.rollouts import rollouts as find_rollouts

    with closing(RolloutIndex(RunReader(open_run(run)))) as index:
        index.update()
        try:
            page = find_rollouts(index, {"find": query}, limit=most)
            while page.to_search and (page.searched or 0) + (page.unsearchable or 0) < page.to_search:
                if sys.stderr.isatty():
                    sys.stderr.write(f"\rsearched {page.searched} of {page.to_search}")
                page = find_rollouts(index, {"find": query}, limit=most)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="QUERY") from error
    if json:
        write_stdout(encode(page).decode("ascii") + "\n")
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        for row in page.rows:
            console.print(_line(row))
        console.print(Text(_totals(page), "dim"))
    raise typer.Exit(0 if page.total else 2 if page.unsearchable else 1)


def _line(row: RolloutRow) -> Text:
    """A rollout on one line, with what was found in reverse."""
    paid = row.flag or ("-" if row.reward is None else f"{row.reward:.3g}")
    gold = "?" if row.gold is None else f"{row.gold:.3g}"
    line = Text(f"{row.id}  reward {paid}  gold {gold}  ", "bold")
    text = row.text
    if row.hit is None:
        return line.append(_on_one_line(text[:120]), "")
    units = text.encode("utf-16-le", "surrogatepass")  # places count as JavaScript does
    before, hit, after = (
        _on_one_line(units[2 * start : stop and 2 * stop].decode("utf-16-le", "surrogatepass"))
        for start, stop in ((0, row.hit.start or None), (row.hit.start, row.hit.stop), (row.hit.stop, None))
    )
    line.append(before if row.hit.start else "", "")
    return line.append(hit, "reverse").append(after, "")


def _on_one_line(text: str) -> str:
    return visible(text).replace("\n", " ").replace("\t", " ")


def _totals(page: RolloutPage) -> str:
    parts = [f"{len(page.rows)} of {page.total} rollouts" if page.total else "no rollout matches"]
    if page.to_search:
        parts.append(f"the texts of {page.searched} of {page.to_search} were searched")
        parts += [] if page.total else ["capitals count unless an i stands after a text"]
    if page.unsearchable:
        parts.append(f"{page.unsearchable} have no text that can be read")
    return ", ".join(parts)
