"""`tiltmeter model repay`: between a base and a checkpoint, the point that keeps capability and most of the gain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tiltmeter.cli.options import Html, Json, Markdown, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.errors import AttachError
from tiltmeter_workbench.compare.comparison import open_prompts
from tiltmeter_workbench.compare.measures.capability import check_tasks
from tiltmeter_workbench.compare.measures.harness_tasks import OWN as TASKS
from tiltmeter_workbench.compare.referees import open_scoring_referee
from tiltmeter_workbench.repay.front import Front
from tiltmeter_workbench.repay.interpolate import interpolate
from tiltmeter_workbench.repay.measure_front import measure_front, point_name
from tiltmeter_workbench.repay.render import FrontFacts, as_json, as_report
from tiltmeter_workbench.terminal.ask_people import wait_for_people
from tiltmeter_workbench.terminal.give_report import check_places, give_report
from tiltmeter_workbench.trail.trail import sampler_maker
from tiltmeter_workbench.verbs.model.compare import Answers, Base, Checkpoint, Most, PromptsFile, Tasks, Tokens, Work
from tiltmeter_workbench.verbs.model.trail import GoldOption

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)  # closer where gold begins to fall, which is mostly nearer to the checkpoint

Between = Annotated[
    list[float] | None,
    typer.Option("--share", help="Of the checkpoint's change, as 0.5; repeatable. 0.3 to 0.9 by default.", metavar="S"),
]
Also = Annotated[
    list[Path] | None,
    typer.Option("--also", help="Another checkpoint of the same base, as one with a higher beta.", metavar="FOLDER"),
]
Margin = Annotated[
    float, typer.Option("--margin", help="Of capability that may be lost.", metavar="SHARE", min=0.0, max=1.0)
]
Out = Annotated[Path | None, typer.Option("--out", help="Write the chosen model to this new folder.", metavar="FOLDER")]


def repay(
    base: Base,
    checkpoint: Checkpoint,
    gold: GoldOption = None,
    prompts: PromptsFile = None,
    task: Tasks = None,
    share: Between = None,
    also: Also = None,
    margin: Margin = 0.05,
    out: Out = None,
    answers: Answers = 4,
    most: Most = None,
    tokens: Tokens = 256,
    seed: Seed = 0,
    work: Work = None,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
) -> None:
    """Win back what training cost: models between base and checkpoint, and the one that keeps capability and gold.

    Example: tiltmeter model repay base/ checkpoint-400/ --gold checks.py:score --prompts prompts.jsonl --out repaid/

    Weights are averaged; gold and capability are measured on each point, with intervals. Exit code: 0 a point keeps
    both, 1 none does, 2 cannot tell.
    """
    if gold is None:
        raise AttachError("what was gained is judged by gold: --gold checks.py:score, or --gold judge.toml")
    check_places(html, md, as_json=json)
    between = sorted(set(share or SHARES))
    if wrong := [one for one in between if not 0.0 < one < 1.0]:
        raise typer.BadParameter(f"{wrong[0]:g} is not between 0 and 1", param_hint="--share")
    if out is not None and out.exists():
        raise AttachError(f"{out} is there already: --out needs a new folder")
    check_tasks(tuple(task or TASKS))
    folder = work if work is not None else Path(f"{checkpoint.resolve().name}-repay")
    referee = open_scoring_referee(gold, folder, "a front")
    chosen = open_prompts(prompts).draw(seed, most)
    models = 2 + len(between) + len(also or ())
    sys.stderr.write(f"{models} models x {len(chosen)} prompts x {answers} answers, and the items of the tasks\n")
    sys.stderr.write(f"{folder}: answers are kept here; run the same again and it goes on\n")
    with progress() as report_progress:
        settings: dict[str, Any] = {"seed": seed, "limit": tokens, "samples": answers, "progress": report_progress}
        make = sampler_maker(base, folder, **settings)
        front = measure_front(
            base, checkpoint, between, also or (), chosen, referee, tuple(task or TASKS), make, folder, most=most,
            margin=margin,
        )  # fmt: skip
    wait_for_people(referee)
    facts = FrontFacts(referee.identity, referee.judged, len(chosen), answers, f"tasks: {', '.join(task or TASKS)}")
    if out is not None:
        _write_chosen(front, {point_name(one): one for one in between}, base, checkpoint, out)
    give_report(as_report(front, facts), as_json(front, facts), "repay", html, md, as_json=json)
    raise typer.Exit(front.exit_code)


def _write_chosen(front: Front, between: dict[str, float], base: Path, checkpoint: Path, out: Path) -> None:
    name = front.points[front.chosen].name
    if front.state == "kept" and name in between:
        interpolate(base, checkpoint, between[name], out)
        sys.stderr.write(f"{out}: {name}\n")
    else:
        sys.stderr.write(f"{out} is not written: no model in between was chosen\n")
