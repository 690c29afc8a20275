"""`tiltmeter preferences`: what labels reward beside quality, before a model is trained on them."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.checks_view import CELL, INSIDE, PICTURE, example, interval, lists, rows_table
from tiltmeter.cli.progress import progress
from tiltmeter.encode import terminal
from tiltmeter.errors import AttachError
from tiltmeter.preferences import html as page
from tiltmeter.preferences import review as reviewing
from tiltmeter.preferences import subset
from tiltmeter.preferences.columns import KEYS
from tiltmeter.preferences.finding import Finding
from tiltmeter.preferences.joining import begins, joined
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.preferences.reading import Reading, read
from tiltmeter.preferences.report import Likelihood, Report, examined, labelled
from tiltmeter.preferences.telling import (
    as_json,
    as_markdown,
    axis,
    counted,
    fixes,
    headline,
    notes,
    tabled,
)
from tiltmeter.rows import write_rows

STYLES = {"found": "bold red", "clear": "green", "cannot tell": "yellow", "known": "cyan", "not asked": "dim"}
ENDS = ("low", "high")  # columns that a terminal has no room for

Data = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Comparisons: a file, a datasets folder, or several of them.", metavar="DATA", show_default=False
    ),
]
Map = Annotated[
    list[str] | None, typer.Option("--map", help="Your columns' names: prompt=question,votes=ann+bob.", metavar="NAMES")
]
Base = Annotated[Path | None, typer.Option(help="A base model, to judge typicality with.", metavar="FOLDER")]
Limit = Annotated[int | None, typer.Option(help="Look at this many comparisons, drawn at random.", metavar="N", min=1)]
Seed = Annotated[int, typer.Option(help="Of everything random.", metavar="N", min=0)]
Html = Annotated[Path | None, typer.Option(help="Write the report as one HTML file.", metavar="FILE")]
Markdown = Annotated[Path | None, typer.Option(help="Write the report as Markdown.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Balanced = Annotated[Path | None, typer.Option(help="Write a balanced subset, to train on.", metavar="FILE")]
Review = Annotated[Path | None, typer.Option(help="Write what people should look at again.", metavar="FILE")]
Guide = Annotated[bool, typer.Option("--guide", help="Print guidelines for whoever labels, and nothing else.")]


def preferences(
    data: Data = None,
    map_: Map = None,
    base: Base = None,
    limit: Limit = None,
    seed: Seed = 0,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
    balanced: Balanced = None,
    review: Review = None,
    guide: Guide = False,
) -> None:
    """Check preference data: who agrees, and what labels reward beside quality, with intervals.

    Example: tiltmeter preferences train.jsonl test.jsonl --html report.html --review again.jsonl

    Reads prompt / chosen / rejected, or two answers with one vote or more: JSONL, JSON, CSV, Parquet, a datasets
    folder. Exit code: 0 nothing found, 1 a bias or a defect found, 2 could not judge.
    """
    if guide:
        sys.stdout.write((files("tiltmeter") / "preferences" / "guide.md").read_text("utf-8"))
        return
    if not data:
        raise typer.BadParameter("give a file or a folder of comparisons, or --guide", param_hint="DATA")
    columns = named(map_ or [])
    if base is not None and not any(base.glob("*.safetensors")):
        raise typer.BadParameter(f"{base} has no model; give a folder that save_pretrained wrote", param_hint="--base")
    _apart(data, {"--html": html, "--md": md, "--balanced": balanced, "--review": review})
    found, source = _read(data, columns)
    pairs, told, given = _drawn(found, limit, seed)
    if balanced is not None and found.labels is None and not (any(pairs.first) or any(pairs.second)):
        raise typer.BadParameter(f"{source} has no texts to train on; leave it out", param_hint="--balanced")
    if found.labels is not None:
        if any((balanced, review, base, limit)):
            raise typer.BadParameter(f"{source} has labels and no two answers to compare; leave --balanced, --review, "
                                     "--base and --limit out")  # fmt: skip
        report = labelled(found.labels, seed=seed, source=source, told=told, left_out=found.left_out)
    else:
        with progress() as far:
            report = examined(
                pairs, seed=seed, likelihood=_likelihood(base), progress=far, source=source, told=told,
                left_out=found.left_out,
            )  # fmt: skip
    if balanced is not None:
        _balanced(balanced, pairs, given, seed)
    _written(report, pairs, review, html, md)
    if json:
        sys.stdout.write(json_module.dumps(as_json(report), allow_nan=False) + "\n")
    else:
        console = Console(highlight=False, markup=False)
        for part in screen(report):
            console.print(part)
    raise typer.Exit(report.exit_code)


def named(given: Sequence[str]) -> dict[str, str]:
    """What `--map` says; a piece without a name belongs to the one before it.

    >>> named(["prompt=question,votes=ann,bob"])
    {'prompt': 'question', 'votes': 'ann,bob'}
    """
    found: dict[str, str] = {}
    last = ""
    for piece in (piece.strip() for text in given for piece in text.split(",")):
        key, equals, column = piece.partition("=")
        if not equals and last:
            found[last] += f",{piece}"
            continue
        if not equals or not column:
            raise typer.BadParameter(f"{piece!r} is not of the form name=column", param_hint="--map")
        if key not in KEYS:
            raise typer.BadParameter(f"there is no {key!r}; the names are {', '.join(KEYS)}", param_hint="--map")
        found[key], last = column, key
    return found


def _apart(data: Sequence[Path], outputs: Mapping[str, Path | None]) -> None:
    """Refuse, before any work, to write where nothing can be written or over what is read."""
    taken = {path.resolve(): str(path) for path in data}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            raise AttachError(f"{path} cannot be written: {option} needs a file in a folder that is there")
        over = [name for place, name in taken.items() if place in (path.resolve(), *path.resolve().parents)]
        if over:
            raise typer.BadParameter(f"{path} would be written over or into {over[0]}; give another", param_hint=option)
        taken[path.resolve()] = option


def _read(data: Sequence[Path], columns: Mapping[str, str]) -> tuple[Reading, str]:
    """One file as it is; several as splits of one set, by their names."""
    readings = {str(path): read(path, columns or None) for path in data}
    if len(readings) == 1:
        return next(iter(readings.values())), data[0].name
    if single := [path for path in data if readings[str(path)].labels is not None]:
        raise AttachError(f"{single[0]} has labels and no two answers to compare: give it by itself")
    short = [path.name.partition(".")[0] for path in data]
    names = short if len(set(short)) == len(short) else [str(path) for path in data]
    parts = dict(zip(names, readings.values(), strict=True))
    told = [f"{name}: {line}" for name, reading in parts.items() for line in reading.told]
    whole = {name: reading.pairs for name, reading in parts.items()}
    left_out = sum(reading.left_out for reading in parts.values())
    starts = ", ".join(f"{name} from {start}" for name, start in begins(whole).items())
    told.append(f"rows are counted on from file to file: {starts}")
    given = [row for reading in parts.values() for row in reading.given]
    return Reading(joined(whole), tuple(told), left_out, None, given), ", ".join(names)


def _drawn(found: Reading, limit: int | None, seed: int) -> tuple[Comparisons, list[str], Sequence[Mapping[str, Any]]]:
    told = list(found.told)
    if limit is None or limit >= len(found.pairs):
        return found.pairs, told, found.given
    kept = np.sort(np.random.default_rng(seed).choice(len(found.pairs), limit, replace=False))
    told.append(f"{limit:,} of {len(found.pairs):,} comparisons, drawn at random; copies of the others are not seen")
    return found.pairs.at(kept), told, [found.given[item] for item in kept.tolist()]


def _likelihood(base: Path | None) -> Likelihood | None:
    if base is None:
        return None
    from tiltmeter.preferences.likelihood import model_likelihood

    return model_likelihood(base)


def _balanced(path: Path, pairs: Comparisons, given: Sequence[Mapping[str, Any]], seed: int) -> None:
    items, evened = subset.balanced(pairs, seed)
    write_rows(path, pairs_to_train_on(pairs, given, items.tolist()))
    apart = " Each row names its split: do not train on all of them." if len(pairs.splits) else ""
    sys.stderr.write(f"{path}: {len(items):,} of {len(pairs):,} comparisons. {_evened(evened)}.{apart}\n")


def _written(report: Report, pairs: Comparisons, review: Path | None, html: Path | None, md: Path | None) -> None:
    if review is not None:
        again = reviewing.queue(pairs, report.findings)
        write_rows(review, again)
        sys.stderr.write(f"{review}: {len(again):,} comparisons to look at again\n")
    for path, made in ((html, page.page), (md, as_markdown)):
        if path is not None:
            try:
                path.write_text(made(report), "utf-8")
            except OSError as error:
                raise AttachError(f"{path} cannot be written: {error.strerror}") from error
            sys.stderr.write(f"{path}\n")


def pairs_to_train_on(
    pairs: Comparisons, given: Sequence[Mapping[str, Any]], items: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows as TRL reads them, of the items in which one answer has most votes: messages stay messages, or a chat
    template would no longer be put on."""
    made = []
    for item in items:
        row = given[item]
        answers = (row["first"], row["second"])
        if pairs.winner[item] in (0.0, 1.0):
            chosen, rejected = answers if pairs.winner[item] == 1.0 else answers[::-1]
            prompt = {"prompt": row["prompt"]} if "prompt" in row else {}
            split = {"split": pairs.splits[item]} if len(pairs.splits) else {}
            made.append({**prompt, "chosen": chosen, "rejected": rejected, **split})
    return made


def _evened(evened: Mapping[str, Any]) -> str:
    """What a balanced subset evened out."""
    before, after = (evened[when]["longer_chosen"] for when in ("before", "after"))
    return f"The longer answer was chosen in {_percent(before)} of them, and is in {_percent(after)} of what is left"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100.0 * share:.0f} %"


def screen(report: Report) -> Iterator[RenderableType]:
    """The report for a person at a terminal."""
    yield Text.assemble((report.state.upper(), STYLES[report.state]), " ", terminal(headline(report), 600))
    yield terminal(f"{report.source}: {counted(report)}", 400)
    yield Text()
    yield _checks(report)
    for finding in report.ordered:
        if tabled(report, finding):
            yield Text(f"\n{terminal(finding.name, CELL).plain}", style="bold")
            yield Padding(rows_table(finding.rows, ENDS), INSIDE)
    for finding in report.found[:2]:
        for shown in finding.examples[:1]:
            texts = {"prompt": shown.prompt, "chosen": shown.chosen, "rejected": shown.rejected}
            yield from example(f"{finding.name}, row {shown.row}", shown.why, texts)
    yield from lists(
        {"What to do": fixes(report), "What was read": report.told, "Before you believe it": notes(report)}
    )


def _checks(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column()
    for finding in report.ordered:
        style = STYLES[finding.state]
        table.add_row(
            Text(terminal(finding.name, CELL).plain, style=style), Text(finding.state, style=style), picture(finding),
            terminal(finding.sentence, 500),
        )  # fmt: skip
    return table


def picture(finding: Finding) -> Text:
    """The finding's interval; blank where there is nothing to draw."""
    drawn = axis(finding)
    if drawn is None:
        return Text(" " * PICTURE)
    return interval(
        finding.estimate, finding.low, finding.high, left=drawn.left, zero=drawn.zero, right=drawn.right,
        style=STYLES[finding.state],
    )  # fmt: skip
