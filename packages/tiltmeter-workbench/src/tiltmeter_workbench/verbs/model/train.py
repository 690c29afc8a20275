"""`tiltmeter model train`: check a recipe, train it with TRL under the monitor, and print a summary."""

from __future__ import annotations

import json as json_module
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.options import Json
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.safety.safe_text import terminal
from tiltmeter.verdict.states import STATES
from tiltmeter_workbench.train import distributed
from tiltmeter_workbench.train.method_interface import Progress
from tiltmeter_workbench.train.preview import preview_recipe
from tiltmeter_workbench.train.recipe import RECIPE_FIELDS, STAGE_FIELDS, Method, Recipe, read_recipe
from tiltmeter_workbench.train.registry import JUDGED_AT_SAVES, SPECS, options_of
from tiltmeter_workbench.train.runner import FinishedStage, run_recipe

SENTENCE = 500  # characters

Where = Annotated[Path | None, typer.Argument(help="The recipe, a YAML file.", metavar="RECIPE", show_default=False)]
Check = Annotated[bool, typer.Option("--check", help="Check everything, train nothing.")]
Fresh = Annotated[
    list[str] | None, typer.Option(help="Throw a stage's result away and train it again; repeatable.", metavar="STAGE")
]
Steps = Annotated[
    int | None, typer.Option(help="A trial: at most N steps per stage, in a folder of its own.", metavar="N", min=1)
]
Model = Annotated[str | None, typer.Option(help="In place of the recipe's model.", metavar="FOLDER")]
Out = Annotated[Path | None, typer.Option("--out", help="In place of the recipe's output.", metavar="FOLDER")]
Fields = Annotated[
    str | None, typer.Option(help="Print every field that a stage of this method may have.", metavar="METHOD")
]


def train(
    recipe: Where = None,
    check: Check = False,
    fresh: Fresh = None,
    steps: Steps = None,
    model: Model = None,
    out: Out = None,
    fields: Fields = None,
    json: Json = False,
) -> None:
    """Train by a recipe, with TRL: SFT, reward models, DPO, IPO, KTO, GRPO, RLOO, and what is made of them.

    Example: tiltmeter model train recipe.yaml --check, then tiltmeter model train recipe.yaml

    Run again, it goes on where it was. For several GPUs: accelerate launch -m tiltmeter model train recipe.yaml. Exit
    code: 0 done, 1 done and a watched stage has an alarm, 2 could not be done.
    """
    if fields is not None:
        _print_fields(fields, json)
        return
    if recipe is None:
        raise typer.BadParameter("name the recipe, as tiltmeter model train recipe.yaml", param_hint="RECIPE")
    parsed_recipe = read_recipe(recipe, model=model, output=out)
    if check:
        _print_check(parsed_recipe, json)
        return
    with _report_progress(distributed.is_main_process()) as report_progress:
        done = run_recipe(parsed_recipe, report_progress, fresh=tuple(fresh or ()), steps=steps)
    if distributed.is_main_process():
        if json:
            sys.stdout.write(json_module.dumps(as_json(parsed_recipe, done), allow_nan=False) + "\n")
        else:
            _print_stages(done)
    raise typer.Exit(1 if any(_alarms(one) for one in done) else 0)


def as_json(recipe: Recipe, done: Sequence[FinishedStage]) -> dict[str, Any]:
    """Every fact of every stage; what is no number is null."""
    stages = [
        {
            "name": one.result.name,
            "method": one.result.method,
            "before": one.before,
            "folder": str(one.result.folder),
            "folders": [str(path) for path in one.result.trained.folders],
            "files": [str(path) for path in one.result.trained.files],
            "facts": dict(one.result.trained.facts),
            "told": list(one.result.trained.notes),
        }
        for one in done
    ]
    result: dict[str, Any] = _finite({"recipe": str(recipe.path), "output": str(recipe.output), "stages": stages})
    return result


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


@contextmanager
def _report_progress(main: bool) -> Iterator[Progress]:
    """Progress of the main process. What libraries print goes to standard error: standard output is for the summary."""
    with redirect_stdout(sys.stderr):
        if not main:
            yield lambda what, of, total: None
            return
        with progress() as update:
            yield update


def _alarms(done: FinishedStage) -> bool:
    return bool(done.result.trained.facts.get("alarms"))


def _print_stages(done: Sequence[FinishedStage]) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "method", "steps", "seconds", "verdict", "result"):
        table.add_column(title, justify="right" if title in ("steps", "seconds") else "left", overflow="fold")
    for one in done:
        trained = one.result.trained
        steps, seconds, state = (trained.facts.get(name) for name in ("steps", "seconds", "verdict"))
        outputs = trained.folders or trained.files
        table.add_row(
            Text(one.result.name),
            one.result.method,
            "" if steps is None else str(steps),
            "before" if one.before else "" if seconds is None else f"{seconds:.0f}",
            Text(str(state or ""), style=STATES[state].colour.terminal if state in STATES else ""),
            Text("\n").join(terminal(_short(path)) for path in outputs),
        )
    console.print(table)
    for one in done:
        sentences = [] if _unjudged(one) else [str(one.result.trained.facts.get("sentence"))]
        for sentence in (*sentences, *one.result.trained.notes):
            console.print(Text.assemble((f"{one.result.name}: ", "bold"), terminal(sentence, SENTENCE)))


def _unjudged(done: FinishedStage) -> bool:
    """Whether there is nothing to say of a verdict: all is well, or nothing was named to judge what is saved."""
    state = done.result.trained.facts.get("verdict")
    unjudged = done.result.method in JUDGED_AT_SAVES and done.result.parts.get("gold") is None
    return state in (None, "OK") or (state == "BLIND" and unjudged)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _print_check(recipe: Recipe, json: bool) -> None:
    with redirect_stdout(sys.stderr):
        report = preview_recipe(recipe)
    if json:
        sys.stdout.write(json_module.dumps(_finite(report), allow_nan=False) + "\n")
        return
    console = Console()
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "method", "starts from", "rows", "settings of", "state"):
        table.add_column(title, justify="right" if title == "rows" else "left", overflow="fold")
    for stage in report["stages"]:
        rows = "" if stage["rows"] is None else str(stage["rows"])
        table.add_row(
            Text(stage["name"]), stage["method"], terminal(stage["model"]), rows, stage["config"] or "", stage["state"]
        )
    console.print(table)
    ours = dict.fromkeys(name for stage in report["stages"] for name in stage["ours"])
    console.print(terminal(f"Of TRL's fields we set {', '.join(ours)}; every other is as the recipe or TRL says."))
    for stage in report["stages"]:
        for note in stage["notes"]:
            console.print(Text.assemble((f"{stage['name']}: ", "bold"), terminal(note, SENTENCE)))
    console.print("Nothing was trained. The recipe can be.")


def _print_fields(method: str, json: bool) -> None:
    if method not in get_args(Method):
        raise typer.BadParameter(f"choose one of {', '.join(get_args(Method))}", param_hint="--fields")
    kind, options = SPECS[cast(Method, method)], options_of(cast(Method, method))
    allowed = {"method", "name", "model", "data", "options"} | kind.fields
    if not options:
        allowed -= {"options"}
    stage = {name: sentence for name, (_, sentence) in STAGE_FIELDS.items() if name in allowed}
    of_recipe = {name: sentence for name, (_, sentence) in RECIPE_FIELDS.items()}
    description = {"method": method, "does": kind.does, "trl": kind.config, "recipe": of_recipe, "stage": stage}
    if json:
        sys.stdout.write(json_module.dumps({**description, "options": dict(options)}) + "\n")
        return
    console = Console()
    console.print(f"{method}: {kind.does}")
    for title, part in (("of the recipe", of_recipe), ("of the stage", stage), ("options", options)):
        table = Table(
            box=None, pad_edge=False, show_header=False, title=title, title_justify="left", title_style="bold"
        )
        for name, sentence in part.items():
            own = f", {kind.config}" if name == "trl" and kind.config else ""
            table.add_row(name, f"{sentence}{own}")
        if part:
            console.print(table)
