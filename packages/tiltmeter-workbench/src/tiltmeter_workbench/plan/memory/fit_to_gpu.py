"""The cheapest change that makes a training job fit into GPU memory: free changes first, costs in quality last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiltmeter_workbench.plan.memory.activations import Adapters
from tiltmeter_workbench.plan.memory.estimate import GB, ONLINE, TrainingJob, memory

#: Of a GPU that a plan may fill. The rest is the driver's context, the allocator's fragments and NCCL's buffers: a rule
#: of thumb, not measured here.
USABLE = 0.92
RANK = 32
MOST = 64  # GPUs tried at most


@dataclass(frozen=True)
class FittingChange:
    """A change to a job, what it costs, and the memory it then needs."""

    name: str
    costs: str
    job: TrainingJob
    total: float

    @property
    def fits(self) -> bool:
        return fits(self.job, self.total)


@dataclass(frozen=True)
class _Remedy:
    name: str
    costs: str
    apply: Callable[[TrainingJob], TrainingJob]  # the same job where it does not apply


def _use_zero3(job: TrainingJob) -> TrainingJob:
    return replace(job, sharding="zero3") if job.gpus > 1 and job.sharding != "fsdp" else job


def _sleep_vllm(job: TrainingJob) -> TrainingJob:
    return replace(job, sleep=True) if job.engine == "colocate" and job.method in ONLINE else job


def _batch_of_one(job: TrainingJob) -> TrainingJob:
    return replace(job, batch=1, accumulate=max(job.accumulate, 2) * job.batch) if job.batch > 1 else job


def _use_8bit_adam(job: TrainingJob) -> TrainingJob:
    return replace(job, optimiser="adamw-8bit") if job.optimiser.startswith("adamw") else job


def _use_lora(job: TrainingJob) -> TrainingJob:
    return replace(job, adapters=Adapters(RANK)) if job.adapters is None else job


#: In the order of what they cost.
REMEDIES: tuple[_Remedy, ...] = (
    _Remedy("a head in tiles", "nothing; TRL 1.16 does it by itself", lambda job: replace(job, head="tiled")),
    _Remedy("flash or sdpa attention", "nothing", lambda job: replace(job, attention="sdpa")
            if job.attention == "eager" else job),
    _Remedy("vLLM asleep while training", "seconds a step to wake it", _sleep_vllm),
    _Remedy("activation checkpointing", "about a third more computing", lambda job: replace(job, checkpointing=True)),
    _Remedy("one sequence at a time, accumulated", "slower steps", _batch_of_one),
    _Remedy("ZeRO-3 over the GPUs", "weights travel at every step", _use_zero3),
    _Remedy("Adam's states in 8 bits", "coarser updates (arXiv 2110.02861)", _use_8bit_adam),
    _Remedy(f"LoRA of rank {RANK}", "fewer degrees of freedom; a learning rate about ten times higher", _use_lora),
)  # fmt: skip


def vllm_lacks_memory(job: TrainingJob) -> bool:
    """Whether a colocated vLLM cannot even hold the weights, split over all GPUs."""
    share = job.share * job.gpu * job.gpus
    return job.engine == "colocate" and job.method in ONLINE and share <= job.shape.parameters * job.numbers.compute


def fits(job: TrainingJob, total: float) -> bool:
    """Whether a total is within what can be used of each GPU."""
    return total <= job.gpu * USABLE and not vllm_lacks_memory(job)


def cheapest_changes(job: TrainingJob) -> tuple[FittingChange, ...]:
    """The cheapest single change that is enough; else changes added one by one until the job fits or none is left.

    Empty if the job fits already. `fits` of the last change says whether all of them together are enough.
    """
    before = memory(job).total
    if fits(job, before):
        return ()
    for remedy in REMEDIES:
        change = _apply_remedy(remedy, job)
        if change.fits:
            return (change,)
    steps: list[FittingChange] = []
    for remedy in REMEDIES:
        change = _apply_remedy(remedy, job)
        if change.total >= before * 0.99:
            continue
        steps.append(change)
        job, before = change.job, change.total
        if change.fits:
            break
    return tuple(steps)


def _apply_remedy(remedy: _Remedy, job: TrainingJob) -> FittingChange:
    new_job = remedy.apply(job)
    return FittingChange(remedy.name, remedy.costs, new_job, memory(new_job).total)


def gpus_needed(job: TrainingJob) -> int | None:
    """The fewest GPUs of this kind, with ZeRO-3, on which the job fits as it is; None: not on 64."""
    for count in range(1, MOST + 1):
        sharded = replace(job, gpus=count, sharding="zero3" if count > 1 else job.sharding)
        if fits(sharded, memory(sharded).total):
            return count
    return None


def in_gb(amount: float) -> float:
    """Bytes in gigabytes of 10^9, rounded to one digit.

    >>> in_gb(13_476_831_232)
    13.5
    """
    return round(amount / GB, 1)
