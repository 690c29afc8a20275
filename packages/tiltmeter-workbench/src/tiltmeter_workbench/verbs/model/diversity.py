"""`tiltmeter model diversity`: how much more a model's answers can differ at equal gold, by how it is sampled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import Html, Json, Markdown, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter_workbench.compare.comparison import open_prompts
from tiltmeter_workbench.compare.referees import open_scoring_referee
from tiltmeter_workbench.compare.sampling import AnswerSampler
from tiltmeter_workbench.diversity.render import as_json, as_report
from tiltmeter_workbench.diversity.sweep import sweep_sampling
from tiltmeter_workbench.terminal.ask_people import wait_for_people
from tiltmeter_workbench.terminal.give_report import check_places, give_report
from tiltmeter_workbench.trail.served_model import open_checkpoint
from tiltmeter_workbench.verbs.model.compare import Answers, Most, PromptsFile, Tokens, Work

Model = Annotated[Path, typer.Argument(help="A model: a folder, or the .toml file of a server.", metavar="MODEL")]
GoldOption = Annotated[
    str, typer.Option("--gold", help="Who scores an answer: checks.py:score, judge.toml or people.", metavar="GOLD")
]
Temperatures = Annotated[
    str, typer.Option("--temperatures", help="Beside 1, which is always asked.", metavar="NUMBERS")
]
AtOnce = Annotated[bool, typer.Option("--at-once", help="Ask for all answers in one reply too: verbalised sampling.")]
Margin = Annotated[float, typer.Option("--margin", help="Of gold that may be lost.", metavar="SHARE", min=0.0, max=1.0)]


def diversity(
    model: Model,
    gold: GoldOption,
    prompts: PromptsFile = None,
    temperatures: Temperatures = "0.7,1.3",
    at_once: AtOnce = False,
    margin: Margin = 0.05,
    answers: Answers = 4,
    most: Most = None,
    tokens: Tokens = 256,
    seed: Seed = 0,
    work: Work = None,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
) -> None:
    """Find the way of sampling with the most diversity at equal gold: temperatures, and all answers at once.

    Example: tiltmeter model diversity checkpoint/ --gold checks.py:score --prompts prompts.jsonl --at-once

    A setting is named only if its answers differ more than at temperature 1 and a loss of gold beyond the margin is
    excluded, both over the same prompts. Exit code: 0 looked at, 2 cannot tell.
    """
    check_places(html, md, as_json=json)
    folder = work if work is not None else Path(f"{model.resolve().name}-diversity")
    referee = open_scoring_referee(gold, folder, "a sweep")
    chosen = open_prompts(prompts).draw(seed, most)
    numbers = _read_numbers(temperatures)
    ways = len({1.0, *numbers}) + at_once
    calls = f" and asks {referee.identity} about each" if referee.judged else ""
    sys.stderr.write(
        f"{ways} ways x {len(chosen)} prompts x {answers} answers: {ways * len(chosen) * answers}{calls}\n"
    )
    sys.stderr.write(f"{folder}: answers are kept here; run the same again and it goes on\n")
    with progress() as report_progress:
        opened = open_checkpoint(model, model)
        sampler = AnswerSampler(
            opened, opened, folder, seed=seed, limit=tokens, samples=answers, progress=report_progress
        )
        report = sweep_sampling(sampler, numbers, chosen, referee, margin=margin, at_once=at_once)
    wait_for_people(referee)
    give_report(as_report(report), as_json(report), "diversity", html, md, as_json=json)
    raise typer.Exit(report.exit_code)


def _read_numbers(text: str) -> list[float]:
    """
    >>> _read_numbers("0.7, 1.3")
    [0.7, 1.3]
    """
    try:
        return [float(piece) for piece in text.split(",") if piece.strip()]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers, as 0.7,1.3", param_hint="--temperatures") from None
