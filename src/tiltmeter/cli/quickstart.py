"""`tiltmeter quickstart`: a first script with Tiltmeter in it, for the trainer that is installed."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.console import Console

from tiltmeter.safety.safe_text import log_line

Trainer = Literal["trl", "verl", "openrlhf", "loop"]

#: By trainer: the file that is written, and what to type next.
SCRIPTS: dict[Trainer, tuple[str, tuple[str, ...]]] = {
    "trl": ("quickstart.py", ("python {file}", "tiltmeter show quickstart")),
    "verl": ("quickstart.sh", ("set the model and the data in {file}", "bash {file}", "tiltmeter show OUTPUT_DIR")),
    "openrlhf": ("quickstart.sh", ("set the model and the data in {file}", "bash {file}", "tiltmeter show OUTPUT_DIR")),
    "loop": ("quickstart.py", ("python {file}", "tiltmeter show runs/flattery")),
}


def installed_trainer() -> Trainer:
    """The first of those we know that is here; without one, a loop that needs none."""
    return next((name for name in get_args(Trainer) if find_spec(name) is not None), "loop")


def script(trainer: Trainer) -> str:
    """A whole script, or for the trainers that are started from a shell a configuration of theirs."""
    return (files("tiltmeter.cli") / "quickstart_scripts" / f"{trainer}.txt").read_text("utf-8")


def quickstart(
    trainer: Annotated[
        Trainer | None,
        typer.Option("--trainer", help="trl, verl, openrlhf or loop; what is installed if not given.", metavar="NAME"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where it is written.", metavar="FILE")] = None,
) -> None:
    """Write a first script with Tiltmeter attached, for the trainer that is installed, and say what to type next.

    Example: tiltmeter quickstart --trainer loop --out first.py

    Those for TRL and for a loop of your own run on any CPU and download nothing. Nothing is overwritten. Exit code: 0
    written, 2 the file is there already.
    """
    chosen = trainer or installed_trainer()
    name, steps = SCRIPTS[chosen]
    path = out or Path(name)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(script(chosen))
    except FileExistsError:
        typer.echo(f"tiltmeter: {log_line(str(path))} is there already; --out FILE writes another", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"tiltmeter: {log_line(str(path))} cannot be written: {log_line(str(error))}", err=True)
        raise typer.Exit(2) from None
    why = "" if trainer else {"loop": " (no trainer that we know is installed)"}.get(chosen, " (which is installed)")
    console.print(f"{log_line(str(path))} is written, for {chosen}{why}. Next:")
    for step in steps:
        console.print(f"  {step.format(file=log_line(str(path)))}")
