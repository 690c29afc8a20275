"""`tiltmeter data constitution`: answers revised, and preferences labelled, by written principles, before a run."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.options import Json, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.safety.safe_text import terminal
from tiltmeter_workbench.common.open_chat import open_model
from tiltmeter_workbench.constitution.run import ConstitutionSettings
from tiltmeter_workbench.constitution.training_files import ConstitutionFiles, HumanPairs
from tiltmeter_workbench.preferences.render import as_json, headline
from tiltmeter_workbench.preferences.report import PreferenceReport
from tiltmeter_workbench.train.methods.constitution import FORMS, ConstitutionJob, run_constitution_job

COUNTS = {
    "prompts": "prompts", "answers": "first answers", "critiques": "critiques", "revisions": "revisions",
    "sft": "rows for SFT", "samples": "sampled answers", "compared": "comparisons, asked in both orders",
    "pairs": "consistent: pairs", "tied": "consistent: ties", "inconsistent": "turned with the order: dropped",
    "unreadable": "without a verdict: dropped", "unasked": "identical or empty: not asked",
    "mixed": "pairs after mixing",
}  # fmt: skip

Prompts = Annotated[
    Path, typer.Argument(help="A table with a column prompt, or a .txt with a line each.", metavar="PROMPTS")
]
Model = Annotated[str, typer.Option(help="Answers: a model's folder, or a server's file.toml.", metavar="MODEL")]
Judge = Annotated[str | None, typer.Option(help="Model that compares; --model if not given.", metavar="MODEL")]
Principles = Annotated[Path | None, typer.Option("--constitution", help="Your principles: .toml.", metavar="FILE")]
Out = Annotated[Path, typer.Option(help="Where everything is kept; give it again to go on.", metavar="FOLDER")]
Rounds = Annotated[int, typer.Option(help="Of critique and revision; 0: none.", metavar="N", min=0)]
Answers = Annotated[
    int, typer.Option("--answers", help="Answers per prompt to compare two by two; 0: none.", metavar="N", min=0)
]
Tokens = Annotated[int, typer.Option("--tokens", help="Tokens of one answer.", metavar="N", min=1)]
Temperature = Annotated[float, typer.Option(help="Sampling temperature.", metavar="T", min=0.0)]
Margin = Annotated[float, typer.Option(help="Nats within which a local judge has no opinion.", metavar="X", min=0.0)]
People = Annotated[Path | None, typer.Option("--human", help="Pairs of people to mix in.", metavar="FILE")]
Share = Annotated[
    float, typer.Option("--human-share", help="Of human pairs in the mixture.", metavar="S", min=0.0, max=1.0)
]
Form = Annotated[str, typer.Option(help="auto, messages or text: the form of the files.", metavar="FORM")]


def constitution(
    prompts: Prompts,
    model: Model,
    out: Out,
    judge: Judge = None,
    principles: Principles = None,
    rounds: Rounds = 1,
    answers: Answers = 2,
    tokens: Tokens = 256,
    temperature: Temperature = 1.0,
    margin: Margin = 0.0,
    human: People = None,
    human_share: Share = 0.5,
    form: Form = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Constitutional AI: critique, revise and compare answers by principles; SFT data and pairs come out.

    Example: tiltmeter data constitution prompts.jsonl --model ./policy --judge server.toml --out cai

    Whatever stops it, the same command goes on and asks nothing twice. Exit code: 0 done, 1 done and the labels show a
    bias or a defect, 2 not finished, or wrong usage.
    """
    if form not in FORMS:
        raise typer.BadParameter(f"one of {', '.join(FORMS)}", param_hint="--form")
    policy = open_model(model)
    order = ConstitutionJob(
        prompts,
        policy,
        policy if judge is None or judge == model else open_model(judge),
        out,
        ConstitutionSettings(rounds, answers, tokens, temperature, margin, seed),
        principles,
        None if human is None else HumanPairs(human, human_share),
        form,
    )
    with progress() as report_progress:
        result, report = run_constitution_job(order, report_progress)
    code = 2 if result.counts["failed_steps"] else int(report is not None and report.exit_code == 1)
    if json:
        sys.stdout.write(json_module.dumps(_result_json(result, report, code), allow_nan=False) + "\n")
    else:
        _print_result(result, report, out)
    raise typer.Exit(code)


def _result_json(result: ConstitutionFiles, report: PreferenceReport | None, code: int) -> dict[str, object]:
    return {
        **result.counts,
        "files": [path.name for path in result.files],
        "told": list(result.notes),
        "labels": None if report is None else as_json(report),
        "exit_code": code,
    }


def _print_result(result: ConstitutionFiles, report: PreferenceReport | None, out: Path) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for name, label in COUNTS.items():
        if name in result.counts and (result.counts[name] or name in ("prompts", "pairs")):
            table.add_row(f"{result.counts[name]:,}", label)
    console.print(table)
    if (share := result.counts.get("consistency")) is not None:
        low, high = result.counts["consistency_interval"]
        console.print(
            f"\nThe judge said the same in both orders in {100 * share:.0f} % of comparisons "
            f"({100 * low:.0f} to {100 * high:.0f} %)."
        )
    if report is not None:
        style = {"found": "bold red", "clear": "green"}.get(report.state, "yellow")
        console.print(Text.assemble("Labels: ", (report.state.upper(), style), " ", terminal(headline(report), 600)))
        for finding in report.problems:
            console.print(terminal(f"· {finding.name}: {finding.sentence} {finding.fix}", 800))
    for line in result.notes:
        console.print(terminal(f"· {line}", 800))
    console.print()
    report_files = [out / name for name in ("bias.json", "bias.html") if report is not None]
    for path in (*result.files, *report_files):
        console.print(terminal(str(path), 400))
