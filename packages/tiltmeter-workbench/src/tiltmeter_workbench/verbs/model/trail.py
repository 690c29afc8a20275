"""`tiltmeter model trail`: gold along the checkpoints of any trainer, with a verdict and the one to keep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tiltmeter.cli.options import Html, Json, Markdown, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.errors import AttachError
from tiltmeter.monitor.parts import reject_reward_as_gold
from tiltmeter.safety.loading import load_function
from tiltmeter_workbench.compare.comparison import open_prompts
from tiltmeter_workbench.compare.measures.accuracy import load_reward, open_reward
from tiltmeter_workbench.compare.referees import open_scoring_referee
from tiltmeter_workbench.terminal.ask_people import wait_for_people
from tiltmeter_workbench.terminal.give_report import check_places, give_report
from tiltmeter_workbench.trail.asked_run import read_asked_run
from tiltmeter_workbench.trail.checkpoints import list_checkpoints
from tiltmeter_workbench.trail.render import as_json, as_report
from tiltmeter_workbench.trail.trail import follow_trail, sampler_maker
from tiltmeter_workbench.verbs.model.compare import (
    Answers,
    Base,
    Most,
    PromptsFile,
    RewardOption,
    Tokens,
    Work,
    recipe_rewards,
)

Checkpoints = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Folders in the order of training, or one output folder with checkpoint-*; none where BASE is a run "
        "whose checkpoints were asked.",
        metavar="[CHECKPOINTS...]",
    ),
]
GoldOption = Annotated[
    str | None,
    typer.Option("--gold", help="Who scores an answer: checks.py:score, judge.toml or people.", metavar="GOLD"),
]


def trail(
    base: Base,
    checkpoints: Checkpoints = None,
    gold: GoldOption = None,
    prompts: PromptsFile = None,
    reward: RewardOption = None,
    answers: Answers = 4,
    most: Most = None,
    tokens: Tokens = 256,
    seed: Seed = 0,
    work: Work = None,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
) -> None:
    """Follow gold along the checkpoints of a run: has it fallen, where was it highest, which one to keep.

    Example: tiltmeter model trail base/ output/ --gold checks.py:score --prompts prompts.jsonl

    For DPO, KTO, SFT and whatever else trains without rollouts: each checkpoint is asked the same prompts. Of a run
    whose checkpoints were asked while it trained, name the run alone: nothing is asked again. Exit code: 0 healthy, 1
    gold has fallen, 2 cannot tell.
    """
    check_places(html, md, as_json=json)
    run = None if checkpoints else read_asked_run(base)
    if run is not None:
        gold, answers, tokens, seed = gold or run.gold, run.answers, run.tokens, run.seed
    if gold is None:
        raise AttachError("a trail needs gold: --gold checks.py:score, or --gold judge.toml; nothing else can tell")
    folders = list_checkpoints(checkpoints or []) if run is None else run.folders
    folder = work if work is not None else Path(f"{base.resolve().name}-trail") if run is None else run.work
    referee = open_scoring_referee(gold, folder, "a trail")
    rewards = [] if reward is None else _open_rewards(reward)
    reject_reward_as_gold(referee.source, [load_function(one["function"]) for one in rewards if "function" in one])
    chosen = open_prompts(prompts).draw(seed, most) if run is None else run.prompts
    many = (len(folders) + 1) * len(chosen) * answers
    calls = f" and asks {referee.identity} about each" if referee.judged else ""
    sys.stderr.write(f"{len(folders) + 1} models x {len(chosen)} prompts x {answers} answers: samples {many}{calls}\n")
    sys.stderr.write(f"{folder}: answers are kept here; run the same again and it goes on\n")
    with progress() as report_progress:
        settings: dict[str, Any] = {"seed": seed, "limit": tokens, "samples": answers, "progress": report_progress}
        settings |= {} if run is None else {"plain": run.plain}
        make = sampler_maker(base if run is None else run.base, folder, **settings)
        report = follow_trail(folders, chosen, referee, make, load_reward(rewards) if rewards else None)
    wait_for_people(referee)
    give_report(as_report(report), as_json(report), "trail", html, md, as_json=json)
    raise typer.Exit(report.exit_code)


def _open_rewards(reward: str) -> list[dict[str, Any]]:
    return recipe_rewards(Path(reward))[0] if reward.endswith((".yaml", ".yml")) else open_reward(reward)
