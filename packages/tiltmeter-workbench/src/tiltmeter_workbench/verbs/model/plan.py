"""`tiltmeter model plan`: choose method, memory and group size before any GPU is rented."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer

from tiltmeter.cli.options import Html, Json, write_report
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.plan import groups as group_sizes
from tiltmeter_workbench.plan.choose_method import AvailableInputs, MethodChoice, choose_method
from tiltmeter_workbench.plan.memory import estimate as planned
from tiltmeter_workbench.plan.memory.activations import PRECISIONS, Adapters, Attention, Head
from tiltmeter_workbench.plan.memory.estimate import GB, ONLINE, TrainingJob
from tiltmeter_workbench.plan.memory.shapes import Shape, nominal, repository, shape
from tiltmeter_workbench.plan.report import (
    MemoryFit,
    choice_json,
    fit_job,
    groups_json,
    memory_json,
    plan_as_report,
    published_json,
    shape_json,
)
from tiltmeter_workbench.plan.starter import starter, unsupported_choices
from tiltmeter_workbench.terminal import plan_report as view

METHODS = ("auto", *get_args(planned.Method))
Trainer = Literal["trl", "verl", "openrlhf"]
TRAINERS = get_args(Trainer)

Model = Annotated[
    str, typer.Option(help="A size (7B), a name (Qwen2.5-7B), or a folder with config.json.", metavar="MODEL")
]
Method = Annotated[str, typer.Option(help=f"{', '.join(METHODS)}. auto: from what you have.", metavar="NAME")]
Pairs = Annotated[int, typer.Option("--pair-count", help="Preference pairs that you have.", metavar="N", min=0)]
RewardModel = Annotated[str | None, typer.Option(help="You have a reward model of this size.", metavar="SIZE")]
Verifier = Annotated[bool, typer.Option("--verifier", help="You have a check of right and wrong.")]
Judge = Annotated[bool, typer.Option("--has-judge", help="You have a language model that compares answers.")]
Dense = Annotated[bool, typer.Option("--dense", help="The reward is for steps or tokens, not whole answers.")]
Base = Annotated[bool, typer.Option("--untuned", help="The model was never fine-tuned on answers.")]
Sampling = Annotated[bool, typer.Option(help="Whether generating during training is affordable.")]
Gpus = Annotated[int, typer.Option(help="GPUs.", metavar="N", min=1)]
GpuMemory = Annotated[float | None, typer.Option(help="Memory of one GPU.", metavar="GB", min=0.1, max=1e6)]
Precision = Annotated[str, typer.Option(help=f"{', '.join(PRECISIONS)}.", metavar="NAME")]
Optimiser = Annotated[str, typer.Option(help=f"{', '.join(get_args(planned.Optimiser))}.", metavar="NAME")]
Lora = Annotated[int | None, typer.Option(help="LoRA of this rank.", metavar="RANK", min=1)]
Targets = Annotated[str | None, typer.Option(help="LoRA beside these; all if not said.", metavar="a,b")]
Sharding = Annotated[str, typer.Option(help=f"{', '.join(get_args(planned.Sharding))}.", metavar="NAME")]
Checkpointing = Annotated[bool, typer.Option(help="Activation checkpointing.")]
Vllm = Annotated[str, typer.Option(help=f"{', '.join(get_args(planned.Engine))}.", metavar="WHERE")]
VllmShare = Annotated[float, typer.Option(help="Of a GPU, reserved by colocate.", metavar="0..1", min=0.0, max=1.0)]
Sleep = Annotated[bool, typer.Option("--vllm-sleep", help="vLLM gives its memory back while training.")]
AttentionKind = Annotated[str, typer.Option(help=f"{', '.join(get_args(Attention))}.", metavar="NAME")]
Logits = Annotated[str | None, typer.Option(help="whole or tiled; TRL 1.16 has tiles.", metavar="HOW")]
Batch = Annotated[int, typer.Option(help="Sequences (DPO: pairs) of a backward pass, per GPU.", metavar="N", min=1)]
Length = Annotated[int, typer.Option(help="Tokens of prompt and answer together.", metavar="N", min=1)]
Accumulate = Annotated[int, typer.Option(help="Backward passes of an update.", metavar="N", min=1)]
Reference = Annotated[
    bool,
    typer.Option("--reference-model/--no-reference-model", help="A reference model (TRL's GRPO has none at beta 0)."),
]
GroupSize = Annotated[int | None, typer.Option(help="Answers per prompt.", metavar="N", min=2, max=1000)]
PassRate = Annotated[float | None, typer.Option(help="How often an answer is right.", metavar="P", min=0.0, max=1.0)]
Samples = Annotated[Path | None, typer.Option(help="Samples that were checked, several a prompt.", metavar="FILE")]
GroupColumn = Annotated[str, typer.Option(help="Column of --samples that tells the prompts apart.", metavar="NAME")]
CorrectColumn = Annotated[str, typer.Option(help="Column of --samples with right or wrong.", metavar="NAME")]
Published = Annotated[bool, typer.Option("--published", help="As the figures in circulation: no gradients.")]
TrainerName = Annotated[str | None, typer.Option(help=f"{', '.join(TRAINERS)}.", metavar="NAME")]
Out = Annotated[Path | None, typer.Option("--out", help="Write a configuration to start from.", metavar="FILE")]


@dataclass(frozen=True)
class Plan:
    """Everything that was asked for."""

    model: Shape
    choice: MethodChoice | None
    fits: tuple[MemoryFit, ...]
    groups: group_sizes.Groups | None
    published: dict[str, Any] | None
    single_method: bool  # one method was asked for or chosen: then whether it fits is the answer

    @property
    def code(self) -> int:
        if self.single_method and not self.fits:
            return 2
        return 1 if self.single_method and any(fit.fits is False for fit in self.fits) else 0


def plan(
    model: Model = "7B",
    method: Method = "auto",
    pairs: Pairs = 0,
    reward_model: RewardModel = None,
    verifier: Verifier = False,
    judge: Judge = False,
    dense: Dense = False,
    base: Base = False,
    sampling: Sampling = True,
    gpus: Gpus = 1,
    gpu_memory: GpuMemory = None,
    precision: Precision = "bf16",
    optimiser: Optimiser = "adamw",
    lora: Lora = None,
    targets: Targets = None,
    sharding: Sharding = "none",
    checkpointing: Checkpointing = True,
    vllm: Vllm = "none",
    vllm_share: VllmShare = 0.3,
    vllm_sleep: Sleep = False,
    attention: AttentionKind = "sdpa",
    logits: Logits = None,
    batch: Batch = 1,
    length: Length = 1024,
    accumulate: Accumulate = 8,
    reference: Reference = True,
    group: GroupSize = None,
    pass_rate: PassRate = None,
    samples: Samples = None,
    group_column: GroupColumn = "prompt",
    correct_column: CorrectColumn = "correct",
    published: Published = False,
    trainer: TrainerName = None,
    out: Out = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Plan a run: the method with reasons, memory item by item, and what a group size buys.

    Example: tiltmeter model plan --model 7B --verifier --gpus 2 --gpu-memory 80 --pass-rate 0.3

    Nothing is loaded and nothing is asked of a GPU. The memory is that of the moment when it is largest, gradients
    included. Exit code: 0 it fits, or nothing to judge was given; 1 it does not fit; 2 there is nothing to train on,
    or a file cannot be read.
    """
    check_choices(
        ("--method", method, METHODS),
        ("--precision", precision, tuple(PRECISIONS)),
        ("--optimiser", optimiser, get_args(planned.Optimiser)),
        ("--sharding", sharding, get_args(planned.Sharding)),
        ("--vllm", vllm, get_args(planned.Engine)),
        ("--attention", attention, get_args(Attention)),
        ("--logits", logits, (None, *get_args(Head))),
        ("--trainer", trainer, (None, *TRAINERS)),
    )
    if vllm == "colocate" and gpu_memory is None:
        raise typer.BadParameter("a share of a GPU is reserved: give --gpu-memory", param_hint="--vllm")
    have = AvailableInputs(
        pairs, reward_model is not None, verifier, judge, dense, "base" if base else "instruct", sampling
    )
    grouped = _groups(pass_rate, samples, group_column, correct_column, group)
    size = group or (grouped.size if grouped is not None else None)
    model_shape = shape(model)
    job = TrainingJob(
        model_shape, "sft", precision, cast(planned.Optimiser, optimiser),
        adapters=None if lora is None else Adapters(lora, _targets(targets, model_shape)),
        sharding=cast(planned.Sharding, sharding), gpus=gpus, checkpointing=checkpointing,
        attention=cast(Attention, attention), head=cast(Head, logits or _head(trainer)),
        batch=batch, length=length, accumulate=accumulate, reference=reference,
        reward=None if reward_model is None else shape(reward_model),
        engine=cast(planned.Engine, vllm), share=vllm_share, sleep=vllm_sleep,
        gpu=(gpu_memory or 80.0) * GB, generated=max(batch * accumulate, size or 0),
    )  # fmt: skip
    count = (nominal(model) or float(model_shape.parameters)) if published else None
    result = _plan_methods(job, method, have, grouped, has_limit=gpu_memory is not None, published=count)
    if out is not None:
        _write_starter(out, trainer or "trl", result, repository(model), size, have)
    if html is not None:
        report = plan_as_report(result.model, result.choice, result.fits, result.groups)
        write_report(render_html(report), html, "plan.html", "--html")
    if json:
        sys.stdout.write(json_module.dumps(as_json(result), allow_nan=False) + "\n")
    else:
        view.print_plan(result.model, result.choice, result.fits, result.groups, result.published, size)
    raise typer.Exit(result.code)


def check_choices(*options: tuple[str, str | None, tuple[str | None, ...]]) -> None:
    for name, value, allowed in options:
        if value not in allowed:
            raise typer.BadParameter(f"choose one of {', '.join(filter(None, allowed))}", param_hint=name)


def _plan_methods(
    job: TrainingJob,
    method: str,
    have: AvailableInputs,
    grouped: group_sizes.Groups | None,
    *,
    has_limit: bool,
    published: float | None,
) -> Plan:
    """The job for each method that is meant: the one named, the one that fits what one has, or all of them."""
    choice = choose_method(have) if method == "auto" and have.has_signal else None
    if method != "auto":
        methods: tuple[str, ...] = (method,)
    elif choice is not None:
        methods = () if choice.method is None else (choice.method,)
    else:
        methods = () if published is not None else get_args(planned.Method)
    fits = []
    for each in methods:
        # PPO has a reward model unless a verifier stands in for it.
        reward = job.shape if each == "ppo" and job.reward is None and not have.verifier else job.reward
        fits.append(fit_job(replace(job, method=cast(planned.Method, each), reward=reward), has_limit))
    figures = None if published is None else published_json(published)
    single_method = method != "auto" or choice is not None
    return Plan(job.shape, choice, tuple(fits), grouped, figures, single_method)


def _head(trainer: str | None) -> Head:
    """TRL's trainers go over the logits in tiles by themselves."""
    return "tiled" if trainer == "trl" else "whole"


def _targets(text: str | None, model: Shape) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    linears = [each.name for each in model.linears]
    if unknown := [name for name in names if name not in linears]:
        raise typer.BadParameter(f"{unknown[0]} is not one of {', '.join(linears)}", param_hint="--targets")
    return names


def _groups(
    rate: float | None, samples: Path | None, group: str, correct: str, size: int | None
) -> group_sizes.Groups | None:
    sizes = sorted({*group_sizes.SIZES, *([] if size is None else [size])})
    if rate is not None and samples is not None:
        raise typer.BadParameter("give --pass-rate or --samples, not both")
    if samples is not None:
        return group_sizes.from_file(samples, group, correct, sizes)
    return None if rate is None else group_sizes.at_rate(rate, sizes)


def as_json(result: Plan) -> dict[str, Any]:
    """What was asked for; what was not is null."""
    return {
        "model": shape_json(result.model),
        "method": None if result.choice is None else choice_json(result.choice),
        "memory": [memory_json(fit) for fit in result.fits],
        "groups": None if result.groups is None else groups_json(result.groups),
        "published": result.published,
    }


def _write_starter(
    path: Path, trainer: str, result: Plan, model: str, group: int | None, have: AvailableInputs
) -> None:
    """A configuration for the method planned, of the trainer chosen."""
    if len(result.fits) != 1:
        raise typer.BadParameter("one method must be planned: give --method, or what you have", param_hint="--out")
    job = result.fits[0].memory.job
    settings = {**choices(job, group, have), "model": model}
    text = starter(cast(Trainer, trainer), job.method, settings)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{error.strerror}: {path}", param_hint="--out") from error
    sys.stderr.write(f"{path}: a start for {trainer}; read it before you run it\n")
    if others := unsupported_choices(cast(Trainer, trainer), job.method, settings):
        sys.stderr.write(f"planned, but not in the file: {'; '.join(others)}\n")


def choices(job: TrainingJob, group: int | None, have: AvailableInputs) -> dict[str, object]:
    """What a starting configuration is made of."""
    return {
        "batch": job.batch,
        "length": job.length,
        "accumulate": job.accumulate,
        "precision": job.precision,
        "optimiser": job.optimiser,
        "lora": None if job.adapters is None else job.adapters.rank,
        "gpus": job.gpus,
        "sharding": job.sharding,
        "checkpointing": job.checkpointing,
        "vllm": job.engine if job.method in ONLINE else "none",
        "vllm_share": job.share,
        "vllm_sleep": job.sleep,
        "group": group or 8,
        "reference": job.reference,
        "verifier": have.verifier,
        "reward_model": "your/reward-model" if have.reward_model and not have.verifier else None,
    }
