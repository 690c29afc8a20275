"""GPU memory of a training job, itemised, at the point of a step where it is largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from tiltmeter_workbench.plan.memory.activations import (
    PRECISIONS,
    ActivationBytes,
    Adapters,
    Attention,
    Head,
    Numbers,
    activation_bytes,
    tile,
)
from tiltmeter_workbench.plan.memory.shapes import Shape

Method = Literal["sft", "reward", "dpo", "grpo", "rloo", "ppo"]
#: none on several GPUs is DistributedDataParallel; fsdp-grad keeps weights whole (SHARD_GRAD_OP), as zero2 does.
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp", "fsdp-grad"]
Optimiser = Literal["adamw", "adamw-fp32", "adamw-bf16", "adamw-8bit", "momentum", "sgd", "none"]
OptimiserStep = Literal["fused", "loop", "foreach"]
Engine = Literal["none", "colocate", "server"]

ONLINE = ("grpo", "rloo", "ppo")
#: Items in the order in which they are shown.
ITEMS = (
    *("weights", "casts", "reference", "reward model", "value model", "gradients", "buckets", "optimiser"),
    *("activations", "logits", "gathered", "KV cache", "vLLM"),
)
GB = 1e9
#: 8-bit Adam keeps a 32-bit scale for each 256 numbers (bitsandbytes, blockwise quantisation, arXiv 2110.02861).
EIGHT_BIT = 1 + 4 / 256


@dataclass(frozen=True)
class TrainingJob:
    """A training job as far as memory depends on it.

    `batch` counts the sequences of one backward pass on one GPU (pairs for `dpo` and `reward`), `length` the tokens of
    a sequence, prompt and answer together. `accumulate` backward passes make one update; from 2 on, gradients are there
    while the next activations are made. `reference` may be off (TRL's GRPO has none at beta 0); under LoRA it costs
    nothing, being the model with its adapters off. `share` is what a colocated vLLM reserves of a GPU of `gpu` bytes.
    """

    shape: Shape
    method: Method
    precision: str = "bf16"
    optimiser: Optimiser = "adamw"
    step: OptimiserStep = "fused"
    adapters: Adapters | None = None
    sharding: Sharding = "none"
    gpus: int = 1
    checkpointing: bool = True
    attention: Attention = "sdpa"
    head: Head = "whole"
    batch: int = 1
    length: int = 1024
    accumulate: int = 8
    reference: bool = True
    reward: Shape | None = None
    value: Shape | None = None  # of PPO; None: the policy's own shape
    engine: Engine = "none"
    share: float = 0.3
    sleep: bool = False
    gpu: float = 80 * GB
    generated: int = 8  # sequences that one GPU generates at once, without vLLM

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("method", self.method, get_args(Method)),
            ("precision", self.precision, tuple(PRECISIONS)),
            ("optimiser", self.optimiser, get_args(Optimiser)),
            ("sharding", self.sharding, get_args(Sharding)),
            ("attention", self.attention, get_args(Attention)),
            ("head", self.head, get_args(Head)),
            ("engine", self.engine, get_args(Engine)),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        for name, number in (("batch", self.batch), ("length", self.length), ("gpus", self.gpus)):
            if number < 1:
                raise ValueError(f"{name} must be 1 or more, not {number}")

    @property
    def numbers(self) -> Numbers:
        return PRECISIONS[self.precision]

    @property
    def sequences(self) -> int:
        """In one backward pass: a pair is two."""
        return self.batch * (2 if self.method in ("dpo", "reward") else 1)

    @property
    def trained(self) -> int:
        """Parameters of the policy that get a gradient."""
        if self.adapters is not None:
            return self.adapters.parameters(self.shape)
        return self.shape.scalar if self.method == "reward" else self.shape.parameters


@dataclass(frozen=True)
class Moment:
    """One point of a step, with bytes by item."""

    name: str
    items: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.items.values())


@dataclass(frozen=True)
class Memory:
    """A job's memory on each GPU, moment by moment. Out of memory happens at the largest one.

    >>> from tiltmeter_workbench.plan.memory.shapes import shape
    >>> job = TrainingJob(shape("7B"), "dpo", batch=1, length=1024)
    >>> plan = memory(job)
    >>> {item: round(plan.peak.items[item] / 1e9, 1) for item in ("weights", "reference", "gradients", "optimiser")}
    {'weights': 13.5, 'reference': 13.5, 'gradients': 13.5, 'optimiser': 27.0}
    """

    job: TrainingJob
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment:
        return max(self.moments, key=lambda moment: moment.total)

    @property
    def total(self) -> float:
        return self.peak.total


@dataclass(frozen=True)
class ShardDivisors:
    """By how much weights, gradients and optimiser states are divided between the GPUs."""

    weights: int = 1
    gradients: int = 1
    optimiser: int = 1


def _shard_divisors(job: TrainingJob) -> ShardDivisors:
    if job.gpus == 1 or job.sharding == "none":
        return ShardDivisors()
    if job.sharding == "zero1":
        return ShardDivisors(optimiser=job.gpus)
    if job.sharding in ("zero2", "fsdp-grad"):
        return ShardDivisors(gradients=job.gpus, optimiser=job.gpus)
    return ShardDivisors(job.gpus, job.gpus, job.gpus)


def optimiser_bytes(job: TrainingJob) -> float:
    """Bytes that the optimiser keeps for one trained parameter; master weights are among them."""
    if job.optimiser == "none":
        return 0.0
    state = 4 if job.adapters is not None else job.numbers.state
    master = 0 if job.adapters is not None else job.numbers.master
    state_bytes = {
        "adamw": 2.0 * state,
        "adamw-fp32": 8.0,
        "adamw-bf16": 4.0,
        "adamw-8bit": 2.0 * EIGHT_BIT,
        "momentum": float(state),
        "sgd": 0.0,
    }
    return state_bytes[job.optimiser] + master


def memory(job: TrainingJob) -> Memory:
    """Memory at every point of a step that may be the largest."""
    persistent = _persistent_items(job)
    moments = _training_moments(job, persistent)
    if job.method in (*ONLINE, "dpo") and job.reference:
        moments.append(_reference_moment(job, persistent))
    if job.method in ONLINE:
        moments.append(_generation_moment(job, persistent))
    return Memory(job, tuple(moments))


def _gradient(job: TrainingJob) -> float:
    """Bytes of one gradient: as wide as the parameter, and peft keeps adapters in 32 bits."""
    return 4.0 if job.adapters is not None else float(job.numbers.gradients)


def _persistent_items(job: TrainingJob) -> dict[str, float]:
    """Items that stay in memory throughout the step."""
    numbers, share = job.numbers, _shard_divisors(job)
    count = job.shape.scalar if job.method == "reward" else job.shape.parameters
    items = {"weights": count * numbers.weights / share.weights}
    if job.adapters is not None:
        items["weights"] += 4.0 * job.trained / share.weights
    trained = job.trained
    if job.method == "ppo":
        value = (job.value or job.shape).scalar
        items["value model"] = value * numbers.weights / share.weights
        trained += value
    items["optimiser"] = optimiser_bytes(job) * trained / share.optimiser
    if job.reference and job.adapters is None and job.method in (*ONLINE, "dpo"):
        items["reference"] = job.shape.parameters * numbers.weights / share.weights
    if job.reward is not None and job.method in ONLINE:
        items["reward model"] = job.reward.scalar * numbers.weights / share.weights
    if job.gpus > 1 and job.sharding == "none":
        # DistributedDataParallel copies gradients into buckets unless `gradient_as_bucket_view` is set.
        items["buckets"] = _gradient(job) * trained
    if job.gpus > 1 and job.sharding in ("zero3", "fsdp"):
        items["gathered"] = 2.0 * max(job.shape.block, job.shape.table) * numbers.weights  # in use, and the next
    if job.engine == "colocate" and job.method in ONLINE and not job.sleep:
        items["vLLM"] = job.share * job.gpu
    return items


def _training_moments(job: TrainingJob, persistent: Mapping[str, float]) -> list[Moment]:
    """The loss, the backward pass at its first and its last block, the optimiser's step."""
    shape, numbers = job.shape, job.numbers
    cost = activation_bytes(shape, job.precision, job.attention, job.length, job.head, job.adapters)
    tokens = job.sequences * job.length
    gradients = _gradient(job) * (job.trained + ((job.value or shape).scalar if job.method == "ppo" else 0))
    gradients /= _shard_divisors(job).gradients
    before = gradients if job.accumulate > 1 else 0.0
    table = _gradient(job) * shape.table if job.adapters is None and job.method != "reward" else 0.0
    head, every = _casts(job)
    casts = head if job.checkpointing else every
    activations, block = _stored_activations(job, cost, tokens)
    loss, wide = 0.0 if job.method == "reward" else tokens * cost.loss_peak, 0.0
    if loss and job.head == "tiled":
        loss += tile(shape, job.precision, tokens)
        wide = 4.0 * shape.table if table else 0.0  # the head's gradient, summed in 32 bits
    first_block = block + cost.work * tokens if job.checkpointing else cost.work * tokens
    again = table if shape.tied else 0.0  # the embedding's part of a shared table's gradient, before it is added
    late = casts if job.checkpointing else every / shape.layers
    moments = []
    if job.checkpointing and every:
        # Autocast forgets its copies when the forward pass is over; with checkpointing nobody else keeps them.
        once = loss if job.head == "tiled" else tokens * shape.vocabulary * (numbers.compute + 8.0)
        moments = [
            _moment("forward pass", persistent, gradients=before, casts=every, activations=activations, logits=once)
        ]
    return [
        *moments,
        _moment(
            "the loss",
            persistent,
            gradients=before + wide,
            casts=casts,
            activations=activations + cost.last * tokens,
            logits=loss,
        ),
        _moment(
            "first block back",
            persistent,
            gradients=before + table,
            casts=casts,
            activations=activations + first_block,
            logits=0.0,
        ),
        _moment(
            "last block back",
            persistent,
            gradients=max(before, gradients - _late_gradients(job)),
            casts=late,
            activations=block + cost.work * tokens,
            logits=0.0,
        ),
        _moment("embedding back", persistent, gradients=gradients + again, logits=0.0),
        _moment("optimiser step", persistent, gradients=gradients, optimiser=persistent["optimiser"] + _scratch(job)),
    ]


def _casts(job: TrainingJob) -> tuple[float, float]:
    """Autocast's copies of the head, and of all matrices."""
    head = float(job.numbers.casts * (job.shape.table if job.method != "reward" else 0))
    blocks = job.numbers.casts * job.shape.layers * sum(each.inside * each.outside for each in job.shape.linears)
    return head, head + blocks


def _late_gradients(job: TrainingJob) -> float:
    """Gradients made after the last block's activations are freed: its own, and the embedding's."""
    shape = job.shape
    if job.adapters is not None:
        return _gradient(job) * job.trained / shape.layers / _shard_divisors(job).gradients
    table = 0 if shape.tied else shape.table
    return _gradient(job) * (shape.block + table) / _shard_divisors(job).gradients


def _stored_activations(job: TrainingJob, cost: ActivationBytes, tokens: float) -> tuple[float, float]:
    """Activations of all blocks as stored, and those of one block without checkpointing."""
    block = cost.block * tokens
    if job.checkpointing:
        return job.shape.layers * cost.stream * tokens, block
    return job.shape.layers * block - cost.less * tokens, block


def _scratch(job: TrainingJob) -> float:
    """Temporary memory of the optimiser step, beside its states."""
    if job.optimiser in ("none", "sgd", "momentum") or job.step == "fused":
        return 0.0
    number = 4.0 if job.adapters is not None else float(job.numbers.state)
    if job.step == "foreach":
        return number * job.trained
    largest = max(job.shape.table, *(each.inside * each.outside for each in job.shape.linears))
    if job.adapters is not None:
        largest = job.adapters.rank * max(max(each.inside, each.outside) for each in job.shape.linears)
    return 2.0 * number * largest


def _reference_moment(job: TrainingJob, persistent: Mapping[str, float]) -> Moment:
    """The reference model's forward pass, which saves no activations; in DPO the policy's activations are held."""
    cost = activation_bytes(job.shape, job.precision, job.attention, job.length, job.head, job.adapters)
    tokens = job.sequences * job.length
    compute = job.numbers.compute
    logits = tile(job.shape, job.precision, tokens)
    if job.head == "whole":
        logits = tokens * job.shape.vocabulary * (compute + 4.0 + (4.0 if compute == 2 else 0.0))
    # Autocast keeps its copies until the loss is known: those of the reference, unless it is the policy itself, whose
    # matrices are frozen and not remembered; and in DPO those of the policy.
    activations, casts = 0.0, _casts(job)[1] * (1 if job.adapters is None else 0)
    if job.method == "dpo":
        casts += _casts(job)[1] if job.adapters is None or not job.checkpointing else 0.0
        activations = _stored_activations(job, cost, tokens)[0] + cost.last * tokens
        logits += tokens * cost.loss_kept
    gradients = _gradient(job) * job.trained / _shard_divisors(job).gradients if job.accumulate > 1 else 0.0
    return _moment(
        "reference scores", persistent, gradients=gradients, casts=casts, activations=activations, logits=logits
    )


def _generation_moment(job: TrainingJob, persistent: Mapping[str, float]) -> Moment:
    """Generation: no gradients or activations, but a KV cache, here or in vLLM's share."""
    if job.engine == "colocate":
        return _moment("generation", persistent, vLLM=job.share * job.gpu)
    if job.engine == "server":
        return _moment("generation", persistent)
    cache = cache_per_token(job.shape, job.precision) * job.length * job.generated
    return _moment(
        "generation", persistent, **{"KV cache": cache, "logits": 8.0 * job.shape.vocabulary * job.generated}
    )


def cache_per_token(shape: Shape, precision: str) -> float:
    """Keys and values of one token in all layers, in bytes.

    >>> from tiltmeter_workbench.plan.memory.shapes import shape
    >>> cache_per_token(shape("7B"), "bf16") / 2**20  # half a MiB: an answer of 1,000 tokens is half a gigabyte
    0.5
    """
    return 2.0 * shape.layers * shape.kv_width * PRECISIONS[precision].compute


def _moment(name: str, persistent: Mapping[str, float], **items: float) -> Moment:
    merged = {**persistent, **{key.replace("_", " "): value for key, value in items.items()}}
    return Moment(name, {item: merged[item] for item in ITEMS if merged.get(item)})
