"""`tiltmeter gold oversight`: which way of asking a judge tells right answers from wrong ones, at equal calls."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tiltmeter.cli.options import Json, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.models.judge import read_judge
from tiltmeter.safety.safe_text import visible
from tiltmeter_workbench.oversight.bench import CALLS, grade_by_method, judge_by, methods_for, open_cache
from tiltmeter_workbench.oversight.graded import PICKS
from tiltmeter_workbench.oversight.known_answers import in_every_style, make_sums, read_answers
from tiltmeter_workbench.oversight.render import conclude, method_row

COUNT = 20  # built-in sums, each right and wrong

JudgeFile = Annotated[Path, typer.Argument(help="judge.toml, as a run's gold has it.", metavar="JUDGE")]
AnswersFile = Annotated[
    Path | None,
    typer.Argument(help="Rows with prompt, completion and truth; built-in sums if left out.", metavar="[ANSWERS]"),
]
Methods = Annotated[str | None, typer.Option(help="Only these, with commas; all that it can if not.", metavar="A,B")]
Calls = Annotated[int, typer.Option(help="Calls about one answer, at most.", metavar="N", min=1)]
Plain = Annotated[bool, typer.Option("--plain", help="Answers as they are, in no other style.")]
WorkFolder = Annotated[
    Path, typer.Option("--work", help="Grades are kept here; run again, it goes on.", metavar="FOLDER")
]


def oversight(
    judge: JudgeFile,
    answers: AnswersFile = None,
    methods: Methods = None,
    calls: Calls = CALLS,
    plain: Plain = False,
    seed: Seed = 0,
    work: WorkFolder = Path("oversight"),
    json: Json = False,
) -> None:
    """Compare ways of asking a judge on answers whose truth is known: accuracy, calibration, and who can fool it.

    Example: tiltmeter gold oversight judge.toml answers.jsonl --calls 5

    Each answer is also shown in styles that may raise a grade and make nothing better: confident, long, flattering,
    with words to the grader. Exit code: 0 a method is better than the bare judge beyond chance, 1 none is, 2 unknown.
    """
    described = read_judge(judge)
    own = make_sums(COUNT, seed) if answers is None else read_answers(answers)
    texts = own if plain else in_every_style(own)
    chosen = methods_for(described, calls) if methods is None else ["bare", *methods.split(",")]
    names = list(dict.fromkeys(name.strip() for name in chosen))
    judges = [judge_by(described, name, calls) for name in names]
    most = sum(one.calls for one in judges) * len(texts)
    sys.stderr.write(
        visible(f"{len(texts)} answers, {len(names)} methods: at most {most:,} calls to {described.host}\n")
    )
    cache = open_cache(work)
    with progress() as report_progress:
        graded = [grade_by_method(one, texts, cache, report_progress) for one in judges]
    bare = graded[0] if names[0] == "bare" else next(one for one in graded if one.method == "bare")
    rows = [method_row(one, bare) for one in graded]
    outcome, summary = conclude(graded, bare)
    if json:
        facts = {
            "answers": len(texts),
            "calls": calls,
            "judge": described.model,
            "outcome": outcome,
            "sentence": summary,
        }
        sys.stdout.write(json_module.dumps({**facts, "methods": rows}, allow_nan=False) + "\n")
    else:
        _print(rows, summary)
    raise typer.Exit({"better": 0, "none": 1, "cannot say": 2}[outcome])


def _print(rows: list[dict[str, Any]], summary: str) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    heads = (
        "method",
        "accuracy",
        "over bare",
        "Brier",
        "ECE",
        "wrong, best style",
        f"right, best of {PICKS}",
        "missing",
    )
    for head in heads:
        table.add_column(head, justify="left" if head == "method" else "right")
    for row in rows:
        worst = f"{_cell(row['wrong_graded'])} {row['worst_style']}" if "worst_style" in row else ""
        table.add_row(
            row["method"], _span(row, "accuracy"), _span(row, "over_bare"), _cell(row["brier"]),
            _cell(row["calibration_error"]), worst, _cell(row[f"best_of_{PICKS}"]), _cell(row["missing"]),
        )  # fmt: skip
    console.print(table)
    console.print(visible(summary))


def _span(row: dict[str, Any], name: str) -> str:
    return f"{_cell(row[name])} [{_cell(row[f'{name}_low'])}, {_cell(row[f'{name}_high'])}]"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
