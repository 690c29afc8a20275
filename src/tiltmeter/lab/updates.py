"""Ways in which a policy learns from its reward, on tables of log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tiltmeter.lab.world import Floats, World

Ints = NDArray[np.int64]

#: The log-probability of an answer that a prompt does not have: finite, so that no step needs a mask; its exp is 0.
NEVER = -1e9


@dataclass
class Learner:
    """A policy over a world's answers. `logits` minus their log-sum are its log-probabilities."""

    world: World
    logits: Floats = field(init=False)
    start: Floats = field(init=False)

    def __post_init__(self) -> None:
        used = self.world.reference > 0
        self.start = np.where(used, np.log(np.where(used, self.world.reference, 1.0)), NEVER)
        self.logits = self.start.copy()

    def policy(self) -> tuple[Floats, Floats]:
        """Probabilities and their logarithms, prompts x answers."""
        logs = normalised(self.logits)
        return np.exp(logs), logs


def normalised(logits: Floats) -> Floats:
    """Log-probabilities along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float64)


def advantages(reward: Floats, normalise: bool, scale: float) -> Floats:
    """Reward minus its group's mean, over the group's own spread or the world's. A group without spread has zeros."""
    centred = reward - reward.mean(1, keepdims=True)
    own = reward.std(1, keepdims=True)
    spread = own if normalise else np.full((len(reward), 1), scale)
    dead = own < 1e-9 * (1 + np.abs(reward).max())
    return np.asarray(np.where(dead, 0.0, centred / np.where(dead, 1.0, spread)), np.float64)


@dataclass(frozen=True)
class Sampled:
    """What one step saw: which prompts, which answers, what they were paid; and the tables behind it."""

    step: int
    policy: Floats
    logs: Floats  # of the policy
    proxy: Floats  # the table in force
    prompt: Ints  # groups
    answer: Ints  # groups x group_size
    reward: Floats  # groups x group_size


def _leashed(learner: Learner, seen: Sampled) -> Floats | float:
    """What the KL term adds to the advantage of every answer, in standardised reward."""
    weight = learner.world.leash[seen.step]
    if not weight:
        return 0.0
    ratio = seen.logs - learner.start
    return np.asarray(-weight * (ratio - (seen.policy * ratio).sum(1, keepdims=True)), np.float64)


def tilt(learner: Learner, seen: Sampled) -> None:
    """The exact tilt: log-probabilities grow by the standardised reward itself."""
    gain = seen.proxy / learner.world.scale + _leashed(learner, seen)
    learner.logits += learner.world.rate[seen.step] * gain


def natural(learner: Learner, seen: Sampled) -> None:
    """The natural policy gradient with GRPO's normalisation: each prompt's advantages have spread one."""
    mean = (seen.policy * seen.proxy).sum(1, keepdims=True)
    spread = np.sqrt((seen.policy * (seen.proxy - mean) ** 2).sum(1, keepdims=True))
    gain = (seen.proxy - mean) / np.maximum(spread, FLAT * learner.world.scale)
    learner.logits += learner.world.rate[seen.step] * (gain + _leashed(learner, seen))


#: A prompt whose answers hardly differ any more in reward is not blown up to spread one.
FLAT = 1e-3


def gradient(learner: Learner, seen: Sampled) -> None:
    """The plain gradient of a softmax table: an answer moves in proportion to its own probability."""
    mean = (seen.policy * seen.proxy).sum(1, keepdims=True)
    gain = (seen.proxy - mean) / learner.world.scale + _leashed(learner, seen)
    # In units of a typical answer's probability, so that `rate` means about the same as elsewhere.
    typical = (seen.policy**2).sum(1, keepdims=True)
    learner.logits += learner.world.rate[seen.step] * gain * seen.policy / typical


def grpo(learner: Learner, seen: Sampled) -> None:
    """The natural step as the sampled groups alone estimate it, with the noise of a real step.

    A network shares what it learns, so an answer that is rare moves as far as a common one when its like is met. A
    table shares nothing: an answer that is met moves by its advantage over its chance of being met, which is the same
    on average.
    """
    world = learner.world
    gain = advantages(seen.reward, world.normalise, world.scale)
    counts = np.bincount(seen.prompt, minlength=len(world.reference))[seen.prompt, None]
    chance = seen.policy[seen.prompt[:, None], seen.answer]
    step = world.rate[seen.step] * gain / (world.group_size * counts * chance)
    np.add.at(learner.logits, (seen.prompt[:, None], seen.answer), step.clip(-FARTHEST, FARTHEST))
    learner.logits += world.rate[seen.step] * _leashed(learner, seen)


FARTHEST = 1.0  # nats that one meeting may move an answer
LAMBDA = 0.95  # of generalised advantage estimation
CLIP = 0.2
EPOCHS = 4
VALUE_RATE = 0.3


@dataclass
class TwoStage(Learner):
    """A policy that decides twice: answer y is first y // width, then y % width given the first.

    Two tables of logits and two of values, as small as a policy can be that needs a value for an unfinished answer. The
    probability of an answer is the product of its two decisions, so everything else stays exact.
    """

    width: int = field(init=False)
    first: Floats = field(init=False)  # prompts x width
    second: Floats = field(init=False)  # prompts x width x width
    values: tuple[Floats, Floats] = field(init=False)  # of a prompt; of a prompt and a first decision

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = staged(self.world.reference)
        self.width = parts.shape[1]
        self.first = _log(parts.sum(2))
        self.second = _log(parts)
        self.values = np.zeros(len(parts)), np.zeros(parts.shape[:2])

    def policy(self) -> tuple[Floats, Floats]:
        logs = normalised(self.first)[:, :, None] + normalised(self.second)
        logs = logs.reshape(len(logs), -1)[:, : self.start.shape[1]]
        return np.exp(logs), logs


def staged(table: Floats) -> Floats:
    """A table of answers as prompts x first decision x second decision, padded with zeros to a square."""
    width = int(np.ceil(np.sqrt(table.shape[1])))
    padded = np.zeros((len(table), width * width))
    padded[:, : table.shape[1]] = table
    return padded.reshape(len(table), width, width)


def _log(table: Floats) -> Floats:
    return np.where(table > 0, np.log(np.where(table > 0, table, 1.0)), NEVER)


def estimated(reward: Floats, whole: Floats, unfinished: Floats) -> tuple[Floats, Floats]:
    """Generalised advantages of the two decisions: the reward comes after the second, nothing is discounted.

    The second has reward - unfinished; the first what its own step brought, unfinished - whole, plus lambda times that.

    >>> [float(value.item()) for value in estimated(np.array([1.0]), np.array([0.2]), np.array([0.6]))]
    [0.78, 0.4]
    """
    later = reward - unfinished
    return unfinished - whole + LAMBDA * later, later


def pressure(ratio: Floats, gain: Floats) -> Floats:
    """The derivative of PPO's clipped objective by the log-probability: ratio times advantage, or 0 where clipped.

    >>> pressure(np.array([1.0, 1.3, 0.7, 0.7]), np.array([2.0, 2.0, 2.0, -2.0])).tolist()
    [2.0, 0.0, 1.4, -0.0]
    """
    clipped = np.where(gain > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    return np.where(clipped, 0.0, ratio) * gain


def ppo(learner: Learner, seen: Sampled) -> None:
    """Clipped PPO on the sampled rollouts: a learned value as baseline, GAE standardised over the batch, epochs.

    The value follows a share of its error per step. As in training with human feedback, the KL term is part of the
    reward.
    """
    assert isinstance(learner, TwoStage)
    world = learner.world
    prompt, answer = np.repeat(seen.prompt, world.group_size), seen.answer.ravel()
    one, two = np.divmod(answer, learner.width)
    drift = seen.logs[prompt, answer] - learner.start[prompt, answer]
    reward = seen.reward.ravel() / world.scale - world.leash[seen.step] * drift
    whole, unfinished = learner.values
    gains = estimated(reward, whole[prompt], unfinished[prompt, one])
    targets = gains[0] + whole[prompt], gains[1] + unfinished[prompt, one]
    both = np.concatenate(gains)
    first, second = ((gain - both.mean()) / max(both.std(), FLAT) for gain in gains)
    _climb(learner, world.rate[seen.step], (prompt, one, two), (first, second))
    _regress(whole, (prompt,), targets[0])
    _regress(unfinished, (prompt, one), targets[1])


def _climb(learner: TwoStage, rate: float, where: tuple[Ints, Ints, Ints], gains: tuple[Floats, Floats]) -> None:
    prompt, one, two = where
    before = normalised(learner.first)[prompt, one], normalised(learner.second)[prompt, one, two]
    # Over the chance of being met, as in `grpo`; the second decision is met only behind the first.
    counts = np.bincount(prompt, minlength=len(learner.first))[prompt]
    met = np.exp(before[0]), np.exp(before[0] + before[1])
    steps = tuple(rate / EPOCHS / (counts * each) for each in met)
    for _ in range(EPOCHS):
        logs = normalised(learner.first), normalised(learner.second)
        push = steps[0] * pressure(np.exp(logs[0][prompt, one] - before[0]), gains[0])
        pull = steps[1] * pressure(np.exp(logs[1][prompt, one, two] - before[1]), gains[1])
        # A natural step has no share for the decisions that were not taken: the log-sum takes it from them.
        np.add.at(learner.first, (prompt, one), push.clip(-FARTHEST, FARTHEST))
        np.add.at(learner.second, (prompt, one, two), pull.clip(-FARTHEST, FARTHEST))


def _regress(value: Floats, cell: tuple[Ints, ...], target: Floats) -> None:
    """Move each visited cell towards the mean of its targets."""
    flat = np.ravel_multi_index(cell, value.shape)
    counts = np.bincount(flat, minlength=value.size)
    means = np.bincount(flat, target, value.size) / np.maximum(counts, 1)
    moved = np.where(counts > 0, VALUE_RATE * (means - value.ravel()), 0.0)
    value += moved.reshape(value.shape)


def learner(world: World) -> Learner:
    """A fresh policy for a world: two-staged for `ppo`, one table otherwise."""
    return TwoStage(world) if world.update == "ppo" else Learner(world)


RULES: dict[str, Callable[[Learner, Sampled], None]] = {
    "tilt": tilt,
    "natural": natural,
    "gradient": gradient,
    "grpo": grpo,
    "ppo": ppo,
}
