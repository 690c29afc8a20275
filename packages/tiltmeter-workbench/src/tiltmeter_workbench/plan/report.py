"""Reports a plan: sentences for people and JSON for machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter_workbench.check_report.report import Check, CheckGroup, Report
from tiltmeter_workbench.plan.choose_method import MethodChoice
from tiltmeter_workbench.plan.groups import Groups
from tiltmeter_workbench.plan.lint.linter import LintReport
from tiltmeter_workbench.plan.memory.estimate import GB, Memory, TrainingJob, cache_per_token, memory
from tiltmeter_workbench.plan.memory.fit_to_gpu import (
    USABLE,
    FittingChange,
    cheapest_changes,
    fits,
    gpus_needed,
    in_gb,
    vllm_lacks_memory,
)
from tiltmeter_workbench.plan.memory.published import NOTE, published
from tiltmeter_workbench.plan.memory.shapes import Shape

NAMES: Mapping[str, str] = {
    "sft": "SFT",
    "reward": "reward model",
    "dpo": "DPO",
    "iterative dpo": "iterative DPO",
    "rloo": "RLOO",
    "grpo": "GRPO",
    "ppo": "PPO",
}
PRECISION: Mapping[str, str] = {
    "fp32": "everything in 32 bits",
    "bf16": "weights, gradients and Adam in bf16, as torch makes them of a bf16 model",
    "mixed": "weights, gradients and Adam in 32 bits, computing in bf16 (autocast, TRL's default)",
    "master": "weights and gradients in bf16, a 32-bit copy and Adam in 32 bits (DeepSpeed, Megatron)",
}


@dataclass(frozen=True)
class MemoryFit:
    """A job against a GPU; `fits` is None where the GPU's memory was not given."""

    memory: Memory
    gpu_known: bool
    changes: tuple[FittingChange, ...] = ()
    gpus: int | None = None

    @property
    def fits(self) -> bool | None:
        return None if not self.gpu_known else fits(self.memory.job, self.memory.total)


def fit_job(job: TrainingJob, gpu_known: bool) -> MemoryFit:
    """The job's memory; if it does not fit, also the cheapest changes and the number of GPUs needed."""
    fit = MemoryFit(memory(job), gpu_known)
    if fit.fits is not False:
        return fit
    return MemoryFit(fit.memory, gpu_known, cheapest_changes(job), gpus_needed(job))


def headline(fit: MemoryFit) -> str:
    """One line: method, model, memory, whether it fits."""
    job, total = fit.memory.job, in_gb(fit.memory.total)
    size = job.shape.parameters
    count = f"{size / 1e9:.2f} B" if size >= 1e9 else f"{size / 1e6:.1f} M"
    where = "one GPU" if job.gpus == 1 else f"each of {job.gpus} GPUs"
    line = f"{NAMES[job.method]} on {job.shape.name} ({count} parameters): {total} GB on {where}"
    if fit.fits is None:
        return f"{line}."
    usable = in_gb(job.gpu * USABLE)
    return f"{line} of {in_gb(job.gpu):g} GB, {usable} of them usable: " + ("fits." if fit.fits else "does not fit.")


def assumptions(job: TrainingJob) -> list[str]:
    """Assumptions behind the memory figure."""
    sequences = f"{job.sequences} sequence{'s' if job.sequences > 1 else ''} of {job.length} tokens"
    lines = [
        f"gradients are counted; {PRECISION[job.precision]}",
        f"{sequences} in a backward pass, {job.accumulate} passes to an update, "
        + ("with" if job.checkpointing else "without")
        + f" activation checkpointing, {job.attention} attention, logits "
        + ("in tiles" if job.head == "tiled" else "as a whole"),
    ]
    if job.adapters is not None:
        lines.append("LoRA: adapters in 32 bits, the rest frozen; the reference is the model with its adapters off")
    if job.method in ("grpo", "rloo", "ppo"):
        lines += [] if job.reference else ["no reference: the KL is neither penalised nor measured"]
        lines += ["no reward model in memory"] if job.reward is None else []
        lines += ["vLLM is on other GPUs, which are not counted"] if job.engine == "server" else []
        lines += [_engine(job)] if job.engine == "colocate" else []
    if job.gpus > 1:
        lines.append("several GPUs: by arithmetic; buffers of NCCL and DeepSpeed's own buckets are not counted")
    if job.precision == "bf16" and job.adapters is None and job.optimiser.startswith("adamw"):
        lines.append("bf16 weights round away small updates at learning rates near 1e-6: --precision master costs more")
    return lines


def _engine(job: TrainingJob) -> str:
    """How vLLM's share is used: a second copy of the weights, and the KV cache in the rest."""
    share = job.share * job.gpu
    rest = share - job.shape.parameters * job.numbers.compute
    if rest <= 0.0:
        return (
            f"vLLM's share of {in_gb(share)} GB does not hold the weights on one GPU: raise --vllm-share, or split "
            "them over GPUs (tensor parallelism)"
        )
    tokens = rest / cache_per_token(job.shape, job.precision)
    return f"vLLM holds the weights once more; {in_gb(rest)} GB of its share are left, a cache of {tokens:,.0f} tokens"


def fit_advice(fit: MemoryFit) -> list[str]:
    """What would make it fit."""
    if fit.fits is not False:
        return []
    lines = ["vLLM's share does not hold the weights: raise --vllm-share"] if vllm_lacks_memory(fit.memory.job) else []
    if len(fit.changes) == 1 and fit.changes[0].fits:
        change = fit.changes[0]
        lines.append(f"the cheapest change that is enough: {change.name} ({change.costs}), {in_gb(change.total)} GB")
    elif fit.changes:
        lines += [f"{change.name} ({change.costs}): then {in_gb(change.total)} GB" for change in fit.changes]
        lines.append("all of these together fit" if fit.changes[-1].fits else "even all of these together do not fit")
    if fit.gpus is not None and fit.gpus > fit.memory.job.gpus:
        lines.append(f"or as it is on {fit.gpus} such GPUs with ZeRO-3")
    elif fit.gpus is None:
        lines.append("it does not fit as it is on 64 such GPUs either")
    return lines


def memory_json(fit: MemoryFit) -> dict[str, Any]:
    """Bytes as GB, by item and by moment."""
    job = fit.memory.job
    return {
        "method": job.method,
        "total_gb": round(fit.memory.total / GB, 3),
        "largest_at": fit.memory.peak.name,
        "items_gb": {name: round(value / GB, 3) for name, value in fit.memory.peak.items.items()},
        "moments_gb": {moment.name: round(moment.total / GB, 3) for moment in fit.memory.moments},
        "includes_gradients": True,
        "precision": job.precision,
        "optimiser": job.optimiser,
        "gpus": job.gpus,
        "sharding": job.sharding,
        "gpu_gb": in_gb(job.gpu) if fit.gpu_known else None,
        "fits": fit.fits,
        "changes": [
            {"name": each.name, "costs": each.costs, "total_gb": round(each.total / GB, 3), "fits": each.fits}
            for each in fit.changes
        ],
        "gpus_needed": fit.gpus,
        "assumes": assumptions(job),
    }


def lint_as_report(result: LintReport) -> Report:
    """A configuration's complaints as the report that every screen shows, errors first."""
    errors = len(result.errors)
    complaints = sorted(result.complaints, key=lambda complaint: complaint.level != "error")
    checks = [
        Check(
            each.rule, each.level, f"{each.sentence} ({each.rule}; {each.source}, {each.date})", fix=each.fix,
            title=f"{each.key} = {each.value}",
        )
        for each in complaints
    ]  # fmt: skip
    state = "error" if errors else "note" if complaints else "clear"
    labels = {"error": "The configuration has errors", "note": "Outside what is recommended", "clear": "No complaint"}
    return Report(
        result.path,
        state,
        labels[state],
        f"{errors} errors, {len(complaints) - errors} notes",
        [CheckGroup("Settings", checks, noun="setting")],
        f"{result.trainer}, {result.method}",
        [f"{each.key}: {each.fix}" for each in complaints],
    )


def plan_as_report(
    model: Shape, choice: MethodChoice | None, memory_fits: Sequence[MemoryFit], groups: Groups | None
) -> Report:
    """A plan as the report that every tool has: the method with its reasons, memory by item, what a group size buys."""
    checks = [_fit_check(fit) for fit in memory_fits]
    states = {check.state for check in checks}
    state = "failed" if states == {"failed"} else "passed" if "passed" in states else "shown"
    labels = {"failed": "It does not fit", "passed": "It fits", "shown": "A plan"}
    opening = {}
    if choice is not None:
        steps = ", then ".join(NAMES[step] for step in choice.steps) or "nothing yet"
        remarks = [f"{each.name}: {each.because} ({each.source})" for each in (choice.rule, *choice.remarks)]
        opening = {f"Method: {steps}": [line.removesuffix(" ()") for line in remarks]}
    sizes = [] if groups is None else [_groups_check(groups)]
    return Report(
        model.name,
        state,
        labels[state],
        headline(memory_fits[0])
        if len(memory_fits) == 1
        else f"memory of {len(memory_fits)} methods"
        if memory_fits
        else "nothing to train on",
        [CheckGroup("Memory", checks, noun="method", estimate="GB"), CheckGroup("Group sizes", sizes, noun="question")],
        f"{model.parameters:,} parameters",
        [line for fit in memory_fits for line in fit_advice(fit)] if len(memory_fits) == 1 else [],
        opening,
        {"What this holds for": assumptions(memory_fits[0].memory.job) if memory_fits else []},
    )


def _fit_check(fit: MemoryFit) -> Check:
    job, usage = fit.memory.job, fit.memory
    rows = [{"item": name, "GB": amount / GB} for name, amount in usage.peak.items.items()]
    return Check(
        job.method,
        {None: "shown", True: "passed", False: "failed"}[fit.fits],
        f"Largest at: {usage.peak.name}.",
        round(usage.total / GB, 3),
        unit="GB on each GPU",
        facts={f"GB at {moment.name}": moment.total / GB for moment in usage.moments},
        rows=rows,
        title=NAMES[job.method],
    )


def _groups_check(groups: Groups) -> Check:
    rows = [
        {"completions": row.size, "groups without a gradient": row.dead, "spread of the reward": row.spread,
         "rollouts for each group with one": None if math.isinf(row.cost) else row.cost}
        for row in groups.rows
    ]  # fmt: skip
    return Check("group size", "shown", groups.why, rows=rows, facts={"pass rate": groups.rate, "size": groups.size})


def shape_json(shape: Shape) -> dict[str, Any]:
    return {
        "name": shape.name,
        "family": shape.family,
        "parameters": shape.parameters,
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "mlp": shape.mlp,
        "vocabulary": shape.vocabulary,
        "tied": shape.tied,
    }


def choice_json(choice: MethodChoice) -> dict[str, Any]:
    return {
        "steps": list(choice.steps),
        "because": choice.rule.because,
        "source": choice.rule.source,
        "remarks": [
            {"name": each.name, "because": each.because, "source": each.source} for each in choice.remarks
        ],
    }  # fmt: skip


def groups_json(groups: Groups) -> dict[str, Any]:
    return {
        "pass_rate": groups.rate,
        "prompts": groups.prompts or None,
        "never_right": groups.never if groups.prompts else None,
        "always_right": groups.always if groups.prompts else None,
        "size": groups.size,
        "why": groups.why,
        "sizes": [
            {
                "size": row.size,
                "dead": round(row.dead, 6),
                "spread": round(row.spread, 6),
                "rollouts_per_live_group": None if math.isinf(row.cost) else round(row.cost, 2),
                "baseline_noise": round(row.noise, 4),
                "how": row.how,
            }
            for row in groups.rows
        ],
    }


def published_json(parameters: float) -> dict[str, Any]:
    tables = published(parameters)
    return {
        "includes_gradients": False,
        "note": NOTE,
        "methods": {
            method: {"total_gb": round(sum(items.values()), 3), "items_gb": items} for method, items in tables.items()
        },
    }
