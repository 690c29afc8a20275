"""`tiltmeter data traps`: make traps of a dataset's tasks, twins whose pay honest work cannot earn."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tiltmeter.cli.options import Json, Seed
from tiltmeter.errors import AttachError
from tiltmeter.gold.checks.task_shapes import has_tests
from tiltmeter.gold.traps.trap_file import write_traps
from tiltmeter.safety.safe_text import visible
from tiltmeter.sandbox import open_sandbox
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.rewards.traps.make_traps import TrapReport, make_traps

EXAMPLE = '{"prompt": "What is 17 + 25?", "answer": "42"}'

Tasks = Annotated[Path, typer.Argument(help="The dataset's rows: JSON lines, JSON, CSV or Parquet.", metavar="TASKS")]
Out = Annotated[Path, typer.Option("--out", help="Where the traps go, as JSON lines.", metavar="FILE")]
Most = Annotated[int | None, typer.Option(help="Use only the first N tasks.", metavar="N", min=1)]
Stop = Annotated[bool, typer.Option("--stop", help="Let prompts offer to stop, which is not held against the policy.")]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Do not run reference solutions in the sandbox.")]


def traps(
    tasks: Tasks,
    out: Out,
    most: Most = None,
    seed: Seed = 0,
    unchecked: Unchecked = False,
    stop: Stop = False,
    json: Json = False,
) -> None:
    """Make traps: the dataset's tasks with a wrong key, a changed test or two tests that contradict each other.

    Example: tiltmeter data traps train.jsonl --out traps.jsonl, then attach(trainer, traps="traps.jsonl")

    Each is checked with the task's reference solution and mistakes made in it, in the sandbox; one that is paid is left
    out. Exit code: 0 traps were made, 2 no task allows one.
    """
    if out.exists():
        raise AttachError(f"{out} exists: name another file, so that traps that were used are not used again")
    rows = read_rows(tasks, EXAMPLE)[:most]
    sandbox = open_sandbox("pooled") if not unchecked and any(map(has_tests, rows)) else None
    report = make_traps(rows, seed=seed, sandbox=sandbox, stop=stop)
    if report.traps:
        write_traps(out, report.traps)
    if json:
        typer.echo(json_module.dumps(report.to_json(), indent=1))
    else:
        _print(report, out)
    raise typer.Exit(0 if report.traps else 2)


def _print(report: TrapReport, out: Path) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    facts = report.to_json()
    console.print(
        visible(f"{len(report.traps)} traps of {report.tasks} tasks" + (f" in {out}" if report.traps else ""))
    )
    for kind, count in facts["kinds"].items():
        console.print(f"  {count} {kind}")
    for why, count in report.left_out.items():
        console.print(visible(f"  {count} left out: {why}"))
    if report.chance is not None:
        console.print(
            f"Honest work: {report.tried} answers and programs tried on them, {report.paid} paid (at most "
            f"{report.chance:.1%}, 95 %)"
        )
    if unchecked := len(report.traps) - facts["checked"]:
        console.print(f"{unchecked} were not tried: that honest work is not paid rests on how they were made")
    if report.traps:
        console.print(f"{report.same_prompt} have the original's prompt, letter for letter")
    if facts["told_apart"] is not None:
        console.print(
            f"Changed prompts are told from originals in {facts['told_apart']:.0%} of pairs (50 %: not at all)"
        )
