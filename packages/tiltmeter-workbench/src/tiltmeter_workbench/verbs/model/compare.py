"""`tiltmeter model compare`: compare a checkpoint with its base model: what training gained and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tiltmeter.cli.options import Html, Json, Markdown, Seed
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.monitor.parts import reject_reward_as_gold
from tiltmeter.safety.loading import load_function
from tiltmeter_workbench.compare.comparison import PARTS, ComparisonRequest, compare_models, open_models, open_prompts
from tiltmeter_workbench.compare.measures.accuracy import open_reward
from tiltmeter_workbench.compare.measures.harness_tasks import OWN as TASKS
from tiltmeter_workbench.compare.referees import ScoringReferee, open_referee
from tiltmeter_workbench.compare.render import as_json, as_report
from tiltmeter_workbench.compare.sampling import AnswerSampler
from tiltmeter_workbench.compare.suite import suite_rows
from tiltmeter_workbench.terminal.ask_people import wait_for_people
from tiltmeter_workbench.terminal.give_report import check_places, give_report
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.resolve_rewards import last_rewards

QUICK = {"most": 32, "answers": 2, "tokens": 96}

Base = Annotated[Path, typer.Argument(help="The model training began with: a folder.", metavar="BASE")]
Checkpoint = Annotated[
    Path, typer.Argument(help="What training made of it: a folder, whole or a LoRA adapter.", metavar="CHECKPOINT")
]
PromptsFile = Annotated[
    str | None, typer.Option("--prompts", help="Prompts like those of training: a column prompt.", metavar="FILE")
]
Ood = Annotated[
    str | None, typer.Option(help="Prompts unlike those of training, judged apart.", metavar="FILE", show_default=False)
]
Judge = Annotated[
    str | None, typer.Option(help="Which answer is better: judge.toml, checks.py:score or people.", metavar="JUDGE")
]
Scored = Annotated[bool, typer.Option("--scored", help="Ask a judge.toml to score each answer, not for the better.")]
RewardOption = Annotated[
    str | None,
    typer.Option(
        "--reward", help="The reward of the training: a folder, rewards.py:score or recipe.yaml.", metavar="REWARD"
    ),
]
Sycophancy = Annotated[str, typer.Option(help="Items that tempt to agree: a file.", metavar="FILE")]
Benign = Annotated[str, typer.Option(help="Prompts that should be answered: a file, or xstest.", metavar="FILE")]
Harmful = Annotated[str, typer.Option(help="Prompts that should be refused: a file, or harmbench.", metavar="FILE")]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task", help="lm-eval tasks: names, files or a folder; code tasks: .jsonl. Repeatable.", metavar="TASK"
    ),
]
SuiteDir = Annotated[
    Path | None, typer.Option(help="A folder with benign, harmful and sycophancy files of your own.", metavar="FOLDER")
]
LeaveOut = Annotated[list[str] | None, typer.Option(help="Leave a group of measures out; repeatable.", metavar="NAME")]
Answers = Annotated[int, typer.Option("--answers", help="Answers of each model to a prompt.", metavar="N", min=1)]
Most = Annotated[int | None, typer.Option(help="At most so many prompts or items of each suite.", metavar="N", min=1)]
Tokens = Annotated[int, typer.Option("--tokens", help="Longest answer in tokens.", metavar="N", min=1)]
Work = Annotated[
    Path | None, typer.Option(help="Where answers are kept; run again, it goes on there.", metavar="FOLDER")
]
Quick = Annotated[bool, typer.Option("--quick", help="A first look: few prompts, two short answers to each.")]


def compare(
    base: Base,
    checkpoint: Checkpoint,
    prompts: PromptsFile = None,
    ood: Ood = None,
    judge: Judge = None,
    scored: Scored = False,
    reward: RewardOption = None,
    sycophancy: Sycophancy = "sycophancy",
    benign: Benign = "benign",
    harmful: Harmful = "harmful",
    suite_dir: SuiteDir = None,
    task: Tasks = None,
    leave_out: LeaveOut = None,
    answers: Answers = 4,
    most: Most = None,
    tokens: Tokens = 256,
    seed: Seed = 0,
    work: Work = None,
    html: Html = None,
    md: Markdown = None,
    json: Json = False,
    quick: Quick = False,
) -> None:
    """Compare a checkpoint with its base: wins, KL, and what they cost, with intervals and a verdict.

    Example: tiltmeter model compare base/ checkpoint-400/ --prompts prompts.jsonl --judge judge.toml --html price.html

    Costs it names: quality, generality, reward hacked, sycophancy, refusals of what is harmless, lost refusals of what
    is not, capability, diversity, length, hedging, speed. Exit code: 0 healthy, 1 a cost or drift, 2 cannot tell.
    """
    if quick:
        most, answers, tokens = most or QUICK["most"], min(answers, QUICK["answers"]), min(tokens, QUICK["tokens"])
    check_places(html, md, as_json=json)
    folder = work if work is not None else Path(f"{checkpoint.resolve().name}-compared")
    suites = _suites(suite_dir, {"sycophancy": sycophancy, "benign": benign, "harmful": harmful})
    material = AnswerSampler(*open_models(base, checkpoint), folder, seed, tokens, answers)
    inputs = _open_inputs(material, prompts, ood, judge, scored, reward, suites, task, most, leave_out or ())
    sys.stderr.write(f"{folder}: answers are kept here; run the same again and it goes on\n")
    with progress() as report_progress:
        material.progress = report_progress
        report = compare_models(material, inputs)
    wait_for_people(inputs.referee)
    give_report(as_report(report), as_json(report), checkpoint.resolve().name, html, md, as_json=json)
    raise typer.Exit(report.exit_code)


def _open_inputs(
    material: AnswerSampler,
    prompts: str | None,
    ood: str | None,
    judge: str | None,
    scored: bool,
    reward: str | None,
    suites: Mapping[str, str],
    tasks: Sequence[str] | None,
    most: int | None,
    leave_out: Sequence[str],
) -> ComparisonRequest:
    """Open and check every input, so that a mistake is found before anything is sampled."""
    if unknown := sorted(set(leave_out) - set(PARTS)):
        raise typer.BadParameter(f"there is no {unknown[0]!r}; there are {', '.join(PARTS)}", param_hint="--leave-out")
    if scored and not (judge or "").endswith(".toml"):
        raise typer.BadParameter(
            "it is about a judge.toml; a function scores or compares anyway", param_hint="--scored"
        )
    used = {"sycophancy": ("sycophancy",), "refusal": ("benign", "harmful")}
    for group, names in used.items():
        for name in names if group not in leave_out else ():
            suite_rows(suites[name])
    rewards: Sequence[Mapping[str, Any]] = ()
    guards: Any = "standard"
    if reward is not None and reward.endswith((".yaml", ".yml")):
        rewards, guards = recipe_rewards(Path(reward))
    elif reward is not None:
        rewards = open_reward(reward)
    referee = None if judge is None else open_referee(judge, material.work, scored=scored)
    if isinstance(referee, ScoringReferee):
        functions = [load_function(entry["function"]) for entry in rewards if "function" in entry]
        reject_reward_as_gold(referee.source, functions)
    return ComparisonRequest(
        open_prompts(prompts),
        None if ood is None else open_prompts(ood, "ood"),
        referee,
        rewards,
        guards,
        **suites,
        tasks=tuple(tasks or TASKS),
        most=most,
        leave_out=tuple(leave_out),
    )


def _suites(folder: Path | None, options: Mapping[str, str]) -> dict[str, str]:
    """The suite files: those of the folder replace ours; a suite's own option overrides both."""
    suites = dict(options)
    if folder is None:
        return suites
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is no folder", param_hint="--suite-dir")
    for name in options:
        files = sorted(folder.glob(f"{name}.*"))
        if files and options[name] == name:
            suites[name] = str(files[0])
    if suites == dict(options):
        raise typer.BadParameter(
            f"{folder} holds none of {', '.join(f'{n}.jsonl' for n in options)}", param_hint="--suite-dir"
        )
    return suites


def recipe_rewards(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """The rewards and guards of a recipe's last stage that has any."""
    entries, stage = last_rewards(read_recipe(path))
    return entries, stage.guards or "standard"
