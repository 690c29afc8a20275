"""The cheapest change that makes a job fit a GPU: what costs nothing first, what costs quality last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiltmeter.plan.activations import Adapters
from tiltmeter.plan.memory import GB, ONLINE, Job, memory

#: Of a GPU that a plan may fill. The rest is the driver's context, the allocator's fragments and NCCL's buffers: a rule
#: of thumb, not measured here.
USABLE = 0.92
RANK = 32
MOST = 64  # GPUs that are looked at


@dataclass(frozen=True)
class Change:
    """A change of a job, what it costs, and what it brings."""

    name: str
    costs: str
    job: Job
    total: float

    @property
    def fits(self) -> bool:
        return fits(self.job, self.total)


@dataclass(frozen=True)
class _Remedy:
    name: str
    costs: str
    applied: Callable[[Job], Job]  # the same job where it does not apply


def _shared(job: Job) -> Job:
    return replace(job, sharding="zero3") if job.gpus > 1 and job.sharding != "fsdp" else job


def _asleep(job: Job) -> Job:
    return replace(job, sleep=True) if job.engine == "colocate" and job.method in ONLINE else job


def _smaller(job: Job) -> Job:
    return replace(job, batch=1, accumulate=max(job.accumulate, 2) * job.batch) if job.batch > 1 else job


def _eight_bit(job: Job) -> Job:
    return replace(job, optimiser="adamw-8bit") if job.optimiser.startswith("adamw") else job


def _adapted(job: Job) -> Job:
    return replace(job, adapters=Adapters(RANK)) if job.adapters is None else job


#: In the order of what they cost.
REMEDIES: tuple[_Remedy, ...] = (
    _Remedy("a head in tiles", "nothing; TRL 1.16 does it by itself", lambda job: replace(job, head="tiled")),
    _Remedy("flash or sdpa attention", "nothing", lambda job: replace(job, attention="sdpa")
            if job.attention == "eager" else job),
    _Remedy("vLLM asleep while training", "seconds a step to wake it", _asleep),
    _Remedy("activation checkpointing", "about a third more computing", lambda job: replace(job, checkpointing=True)),
    _Remedy("one sequence at a time, accumulated", "slower steps", _smaller),
    _Remedy("ZeRO-3 over the GPUs", "weights travel at every step", _shared),
    _Remedy("Adam's states in 8 bits", "coarser updates (arXiv 2110.02861)", _eight_bit),
    _Remedy(f"LoRA of rank {RANK}", "fewer degrees of freedom; a learning rate about ten times higher", _adapted),
)  # fmt: skip


def starved(job: Job) -> bool:
    """Whether a colocated vLLM cannot even hold the weights, split over all GPUs."""
    share = job.share * job.gpu * job.gpus
    return job.engine == "colocate" and job.method in ONLINE and share <= job.shape.parameters * job.numbers.compute


def fits(job: Job, total: float) -> bool:
    """Whether a total is within what can be used of each GPU."""
    return total <= job.gpu * USABLE and not starved(job)


def cheapest(job: Job) -> tuple[Change, ...]:
    """The one change that is enough, the cheapest first; else changes piled up until it fits or none is left.

    Empty where it fits already. The last one's `fits` says whether it came to fit.
    """
    before = memory(job).total
    if fits(job, before):
        return ()
    for remedy in REMEDIES:
        changed = _changed(remedy, job)
        if changed.fits:
            return (changed,)
    steps: list[Change] = []
    for remedy in REMEDIES:
        changed = _changed(remedy, job)
        if changed.total >= before * 0.99:
            continue
        steps.append(changed)
        job, before = changed.job, changed.total
        if changed.fits:
            break
    return tuple(steps)


def _changed(remedy: _Remedy, job: Job) -> Change:
    changed = remedy.applied(job)
    return Change(remedy.name, remedy.costs, changed, memory(changed).total)


def gpus_needed(job: Job) -> int | None:
    """The fewest GPUs of this kind, with ZeRO-3, on which the job fits as it is; None: not on 64."""
    for count in range(1, MOST + 1):
        shared = replace(job, gpus=count, sharding="zero3" if count > 1 else job.sharding)
        if fits(shared, memory(shared).total):
            return count
    return None


def in_gb(amount: float) -> float:
    """Bytes as people say them, 10^9 to the gigabyte.

    >>> in_gb(13_476_831_232)
    13.5
    """
    return round(amount / GB, 1)
