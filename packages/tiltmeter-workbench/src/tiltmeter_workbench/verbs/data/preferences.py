"""`tiltmeter data preferences`: check preference labels for biases before a model is trained on them."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tiltmeter.cli.options import Html, Json, Markdown, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.data.memo import shared_results
from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import write_rows
from tiltmeter_workbench.preferences import balanced_subset
from tiltmeter_workbench.preferences import review_queue as reviewing
from tiltmeter_workbench.preferences.checks import rater_groups
from tiltmeter_workbench.preferences.checks.typicality import likelier_at_equal_length
from tiltmeter_workbench.preferences.likelihood import model_likelihood
from tiltmeter_workbench.preferences.reading.columns import KEYS
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.join_files import first_rows, join_files
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.preferences.reading.reader import PreferenceData, read_preferences
from tiltmeter_workbench.preferences.render import as_json, as_report
from tiltmeter_workbench.preferences.report import Likelihood, PreferenceReport, check_labels, check_pairs
from tiltmeter_workbench.terminal.give_report import give_report

Data = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Comparisons: a file, a datasets folder, or several of them.", metavar="DATA", show_default=False
    ),
]
Map = Annotated[
    list[str] | None, typer.Option("--map", help="Your columns' names: prompt=question,votes=ann+bob.", metavar="NAMES")
]
Base = Annotated[Path | None, typer.Option(help="A base model, for typicality, and to balance it.", metavar="FOLDER")]
Most = Annotated[
    int | None, typer.Option("--most", help="Look at this many comparisons, drawn at random.", metavar="N", min=1)
]
Balanced = Annotated[Path | None, typer.Option(help="Write a balanced subset, to train on.", metavar="FILE")]
Review = Annotated[Path | None, typer.Option(help="Write what people should look at again.", metavar="FILE")]
Groups = Annotated[
    Path | None, typer.Option(help="Write which raters belong together, for a run that asks them.", metavar="FILE")
]
Guide = Annotated[bool, typer.Option("--guide", help="Print guidelines for whoever labels, and nothing else.")]


@shared_results()  # the report, the review queue and the balanced subset need the same copies
def preferences(
    data: Data = None,
    map_: Map = None,
    base: Base = None,
    most: Most = None,
    seed: Seed = 0,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
    balanced: Balanced = None,
    review: Review = None,
    groups: Groups = None,
    guide: Guide = False,
) -> None:
    """Check preference data: rater agreement, and what the labels reward beside quality, with intervals.

    Example: tiltmeter data preferences train.jsonl test.jsonl --html report.html --review again.jsonl

    Reads prompt / chosen / rejected, or two answers with one vote or more: JSONL, JSON, CSV, Parquet, a datasets
    folder. Exit code: 0 nothing found, 1 a bias or a defect found, 2 could not judge.
    """
    if guide:
        sys.stdout.write((files("tiltmeter.gold") / "guide.md").read_text("utf-8"))
        return
    if not data:
        raise typer.BadParameter("give a file or a folder of comparisons, or --guide", param_hint="DATA")
    if json and str(md) == "-":
        raise typer.BadParameter("one of --json and --md - can be printed: name a file after --md")
    columns = parse_map(map_ or [])
    if base is not None and not any(base.glob("*.safetensors")):
        raise typer.BadParameter(f"{base} has no model; give a folder that save_pretrained wrote", param_hint="--base")
    _check_outputs(data, {"--html": html, "--md": md, "--balanced": balanced, "--review": review, "--groups": groups})
    reading, source = _read_data(data, columns)
    pairs, lines, raw_rows = _draw_sample(reading, most, seed)
    if balanced is not None and reading.labels is None and not (any(pairs.first) or any(pairs.second)):
        raise typer.BadParameter(f"{source} has no texts to train on; leave it out", param_hint="--balanced")
    likelihood = None if base is None else model_likelihood(base)
    if reading.labels is not None:
        if any((balanced, review, base, most)):
            raise typer.BadParameter(f"{source} has labels and no two answers to compare; leave --balanced, --review, "
                                     "--base and --most out")  # fmt: skip
        report = check_labels(reading.labels, seed=seed, source=source, input_notes=lines, left_out=reading.left_out)
    else:
        with progress() as report_progress:
            report = check_pairs(
                pairs, seed=seed, likelihood=likelihood, progress=report_progress, source=source,
                input_notes=lines, left_out=reading.left_out,
            )  # fmt: skip
    if balanced is not None:
        _write_balanced(balanced, pairs, raw_rows, seed, likelihood)
    if groups is not None:
        _write_groups(groups, Ratings.of(pairs) if reading.labels is None else reading.labels, seed)
    if review is not None:
        _write_review(report, pairs, review)
    give_report(as_report(report), as_json(report), "preferences", html, md, as_json=json)
    raise typer.Exit(report.exit_code)


def parse_map(options: Sequence[str]) -> dict[str, str]:
    """What `--map` says; a piece without a name belongs to the one before it.

    >>> parse_map(["prompt=question,votes=ann,bob"])
    {'prompt': 'question', 'votes': 'ann,bob'}
    """
    columns: dict[str, str] = {}
    last = ""
    for piece in (piece.strip() for text in options for piece in text.split(",")):
        key, equals, column = piece.partition("=")
        if not equals and last:
            columns[last] += f",{piece}"
            continue
        if not equals or not column:
            raise typer.BadParameter(f"{piece!r} is not of the form name=column", param_hint="--map")
        if key not in KEYS:
            raise typer.BadParameter(f"there is no {key!r}; the names are {', '.join(KEYS)}", param_hint="--map")
        columns[key], last = column, key
    return columns


def _check_outputs(data: Sequence[Path], outputs: Mapping[str, Path | None]) -> None:
    """Refuse, before any work, to write where nothing can be written or over what is read."""
    in_use = {path.resolve(): str(path) for path in data}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            raise AttachError(f"{path} cannot be written: {option} needs a file in a folder that is there")
        over = [name for place, name in in_use.items() if place in (path.resolve(), *path.resolve().parents)]
        if over:
            raise typer.BadParameter(f"{path} would be written over or into {over[0]}; give another", param_hint=option)
        in_use[path.resolve()] = option


def _read_data(data: Sequence[Path], columns: Mapping[str, str]) -> tuple[PreferenceData, str]:
    """One file as it is; several as splits of one set, by their names."""
    readings = {str(path): read_preferences(path, columns or None) for path in data}
    if len(readings) == 1:
        return next(iter(readings.values())), data[0].name
    if single := [path for path in data if readings[str(path)].labels is not None]:
        raise AttachError(f"{single[0]} has labels and no two answers to compare: give it by itself")
    short = [path.name.partition(".")[0] for path in data]
    names = short if len(set(short)) == len(short) else [str(path) for path in data]
    parts = dict(zip(names, readings.values(), strict=True))
    lines = [f"{name}: {line}" for name, reading in parts.items() for line in reading.input_notes]
    whole = {name: reading.pairs for name, reading in parts.items()}
    left_out = sum(reading.left_out for reading in parts.values())
    starts = ", ".join(f"{name} from {start}" for name, start in first_rows(whole).items())
    lines.append(f"rows are counted on from file to file: {starts}")
    raw_rows = [row for reading in parts.values() for row in reading.raw_rows]
    return PreferenceData(join_files(whole), tuple(lines), left_out, None, raw_rows), ", ".join(names)


def _draw_sample(
    reading: PreferenceData, limit: int | None, seed: int
) -> tuple[Comparisons, list[str], Sequence[Mapping[str, Any]]]:
    lines = list(reading.input_notes)
    if limit is None or limit >= len(reading.pairs):
        return reading.pairs, lines, reading.raw_rows
    indices = np.sort(np.random.default_rng(seed).choice(len(reading.pairs), limit, replace=False))
    lines.append(f"{limit:,} of {len(reading.pairs):,} comparisons, drawn at random; copies of the others are not seen")
    return reading.pairs.at(indices), lines, [reading.raw_rows[item] for item in indices.tolist()]


def _write_balanced(
    path: Path, pairs: Comparisons, raw_rows: Sequence[Mapping[str, Any]], seed: int, likelihood: Likelihood | None
) -> None:
    likelier = None if likelihood is None else likelier_at_equal_length(pairs, likelihood)
    items, balance = balanced_subset.balanced_subset(pairs, seed, likelier)
    write_rows(path, pairs_to_train_on(pairs, raw_rows, items.tolist()))
    apart = " Each row names its split: do not train on all of them." if len(pairs.splits) else ""
    sys.stderr.write(f"{path}: {len(items):,} of {len(pairs):,} comparisons. {_balance_sentence(balance)}.{apart}\n")


def _write_groups(path: Path, ratings: Ratings, seed: int) -> None:
    raters = rater_groups.members(ratings, seed)
    if not raters:
        sys.stderr.write(f"{path} was not written: the data support one group of raters\n")
        return
    path.write_text(json_module.dumps({"groups": raters}, indent=1) + "\n", "utf-8")
    sizes = ", ".join(f"{len(names)} in group {group}" for group, names in raters.items())
    sys.stderr.write(f"{path}: {sizes}; raters whose group is in doubt are left out\n")


def _write_review(report: PreferenceReport, pairs: Comparisons, review: Path) -> None:
    again = reviewing.review_queue(pairs, report.findings)
    write_rows(review, again)
    sys.stderr.write(f"{review}: {len(again):,} comparisons to look at again\n")


def pairs_to_train_on(
    pairs: Comparisons, raw_rows: Sequence[Mapping[str, Any]], items: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows as TRL reads them, of the items in which one answer has most votes: messages stay messages, or a chat
    template would no longer be put on."""
    rows = []
    for item in items:
        row = raw_rows[item]
        answers = (row["first"], row["second"])
        if pairs.winner[item] in (0.0, 1.0):
            chosen, rejected = answers if pairs.winner[item] == 1.0 else answers[::-1]
            prompt = {"prompt": row["prompt"]} if "prompt" in row else {}
            split = {"split": pairs.splits[item]} if len(pairs.splits) else {}
            rows.append({**prompt, "chosen": chosen, "rejected": rejected, **split})
    return rows


def _balance_sentence(balance: Mapping[str, Any]) -> str:
    """How often the longer answer, and the likelier one, is chosen, before and after balancing."""
    before, after = balance["before"], balance["after"]
    line = (
        f"The longer answer was chosen in {_percent(before['longer_chosen'])} of them, and is in "
        f"{_percent(after['longer_chosen'])} of what is left"
    )
    if "likelier_chosen" in after:
        line += (
            f"; the likelier one at equal length in {_percent(before['likelier_chosen'])} and "
            f"{_percent(after['likelier_chosen'])} ({after['likelihoods']:,} have a likelihood)"
        )
    return line


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100.0 * share:.0f} %"
