"""`tiltmeter lint`: mistakes in a trainer's configuration, before anything is trained."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import Html, Json, write_report
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.plan.lint.linter import lint_file
from tiltmeter_workbench.plan.report import lint_as_report
from tiltmeter_workbench.terminal.check_report import print_report
from tiltmeter_workbench.terminal.plan_report import lint_json
from tiltmeter_workbench.verbs.model.plan import METHODS, TRAINERS, TrainerName, check_choices

#: The planner's, and those that only the linter knows.
LINTED = (*METHODS, "kto", "distillation", "reinforce", "reinforce_baseline", "remax", "opo", "gpg")

Configuration = Annotated[
    Path, typer.Argument(help="A configuration: YAML, a shell script or a Python file.", metavar="CONFIG")
]
Method = Annotated[str, typer.Option("--method", help=f"{', '.join(LINTED)}. auto: as the file says.", metavar="NAME")]


def lint(
    config: Configuration,
    trainer: TrainerName = None,
    method: Method = "auto",
    html: Html = None,
    json: Json = False,
) -> None:
    """Look for mistakes in a trainer's configuration: what will go wrong, with the fix and its source.

    Example: tiltmeter lint grpo.yaml

    Knows the files of TRL, veRL and OpenRLHF. Nothing is loaded and nothing is run. Exit code: 0 no error, 1 an error
    was found, 2 the file cannot be read.
    """
    check_choices(("--trainer", trainer, (None, *TRAINERS)), ("--method", method, LINTED))
    result = lint_file(config, trainer, None if method == "auto" else method)
    if html is not None:
        write_report(render_html(lint_as_report(result)), html, "lint.html", "--html")
    if json:
        sys.stdout.write(json_module.dumps(lint_json(result), allow_nan=False) + "\n")
    else:
        print_report(lint_as_report(result))
    raise typer.Exit(1 if result.errors else 0)
