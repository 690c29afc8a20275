"""Policy update rules on tables of logits: exact tilt, natural gradient, gradient, GRPO and PPO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tiltmeter_lab.worlds.world import Floats, World

Ints = NDArray[np.int64]

#: The log-probability of an answer that a prompt does not have: finite, so that no step needs a mask; its exp is 0.
ABSENT = -1e9


@dataclass
class Learner:
    """A policy over a world's answers. `logits` minus their log-sum are its log-probabilities."""

    world: World
    logits: Floats = field(init=False)
    start: Floats = field(init=False)

    def __post_init__(self) -> None:
        used = self.world.reference > 0
        self.start = np.where(used, np.log(np.where(used, self.world.reference, 1.0)), ABSENT)
        self.logits = self.start.copy()

    def policy(self) -> tuple[Floats, Floats]:
        """Probabilities and their logarithms, prompts x answers."""
        logs = log_softmax(self.logits)
        return np.exp(logs), logs


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float64)


def advantages(reward: Floats, normalise: bool, scale: float) -> Floats:
    """Reward minus its group's mean, over the group's standard deviation or the world's; 0 if all are equal."""
    centred = reward - reward.mean(1, keepdims=True)
    own = reward.std(1, keepdims=True)
    spread = own if normalise else np.full((len(reward), 1), scale)
    dead = own < 1e-9 * (1 + np.abs(reward).max())
    return np.asarray(np.where(dead, 0.0, centred / np.where(dead, 1.0, spread)), np.float64)


@dataclass(frozen=True)
class SampledStep:
    """The sample of one step: prompts, answers and rewards, with the tables they came from."""

    step: int
    policy: Floats
    logs: Floats  # of the policy
    proxy: Floats  # the table in force
    prompt: Ints  # groups
    answer: Ints  # groups x group_size
    reward: Floats  # groups x group_size


def _kl_term(learner: Learner, batch: SampledStep) -> Floats | float:
    """What the KL term adds to the advantage of every answer, in standardised reward."""
    weight = learner.world.leash[batch.step]
    if not weight:
        return 0.0
    ratio = batch.logs - learner.start
    return np.asarray(-weight * (ratio - (batch.policy * ratio).sum(1, keepdims=True)), np.float64)


def tilt(learner: Learner, batch: SampledStep) -> None:
    """The exact tilt: log-probabilities grow by the standardised reward itself."""
    gain = batch.proxy / learner.world.scale + _kl_term(learner, batch)
    learner.logits += learner.world.rate[batch.step] * gain


def natural(learner: Learner, batch: SampledStep) -> None:
    """The natural policy gradient with GRPO's normalisation: each prompt's advantages have spread one."""
    mean = (batch.policy * batch.proxy).sum(1, keepdims=True)
    spread = np.sqrt((batch.policy * (batch.proxy - mean) ** 2).sum(1, keepdims=True))
    gain = (batch.proxy - mean) / np.maximum(spread, FLAT * learner.world.scale)
    learner.logits += learner.world.rate[batch.step] * (gain + _kl_term(learner, batch))


#: A prompt whose answers hardly differ any more in reward is not blown up to spread one.
FLAT = 1e-3


def gradient(learner: Learner, batch: SampledStep) -> None:
    """The plain gradient of a softmax table: an answer moves in proportion to its own probability."""
    mean = (batch.policy * batch.proxy).sum(1, keepdims=True)
    gain = (batch.proxy - mean) / learner.world.scale + _kl_term(learner, batch)
    # In units of a typical answer's probability, so that `rate` means about the same as elsewhere.
    typical = (batch.policy**2).sum(1, keepdims=True)
    learner.logits += learner.world.rate[batch.step] * gain * batch.policy / typical


def grpo(learner: Learner, batch: SampledStep) -> None:
    """The natural gradient step estimated from the sampled groups, with sampling noise.

    A network generalises, so a rare answer moves as far as a common one when a similar answer is sampled. A table does
    not: a sampled answer moves by its advantage over its probability of being sampled, which is the same on average.
    """
    world = learner.world
    gain = advantages(batch.reward, world.normalise, world.scale)
    counts = np.bincount(batch.prompt, minlength=len(world.reference))[batch.prompt, None]
    chance = batch.policy[batch.prompt[:, None], batch.answer]
    step = world.rate[batch.step] * gain / (world.group_size * counts * chance)
    np.add.at(learner.logits, (batch.prompt[:, None], batch.answer), step.clip(-MAX_MOVE, MAX_MOVE))
    learner.logits += world.rate[batch.step] * _kl_term(learner, batch)


MAX_MOVE = 1.0  # nats that one sample may move an answer
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
        parts = two_stage_table(self.world.reference)
        self.width = parts.shape[1]
        self.first = _log(parts.sum(2))
        self.second = _log(parts)
        self.values = np.zeros(len(parts)), np.zeros(parts.shape[:2])

    def policy(self) -> tuple[Floats, Floats]:
        logs = log_softmax(self.first)[:, :, None] + log_softmax(self.second)
        logs = logs.reshape(len(logs), -1)[:, : self.start.shape[1]]
        return np.exp(logs), logs


def two_stage_table(table: Floats) -> Floats:
    """A table of answers as prompts x first decision x second decision, padded with zeros to a square."""
    width = int(np.ceil(np.sqrt(table.shape[1])))
    padded = np.zeros((len(table), width * width))
    padded[:, : table.shape[1]] = table
    return padded.reshape(len(table), width, width)


def _log(table: Floats) -> Floats:
    return np.where(table > 0, np.log(np.where(table > 0, table, 1.0)), ABSENT)


def gae_advantages(reward: Floats, whole: Floats, unfinished: Floats) -> tuple[Floats, Floats]:
    """Generalised advantages of the two decisions: the reward comes after the second, nothing is discounted.

    The second has reward - unfinished; the first what its own step brought, unfinished - whole, plus lambda times that.

    >>> [float(value.item()) for value in gae_advantages(np.array([1.0]), np.array([0.2]), np.array([0.6]))]
    [0.78, 0.4]
    """
    later = reward - unfinished
    return unfinished - whole + LAMBDA * later, later


def clipped_gradient(ratio: Floats, gain: Floats) -> Floats:
    """The derivative of PPO's clipped objective by the log-probability: ratio times advantage, or 0 where clipped.

    >>> clipped_gradient(np.array([1.0, 1.3, 0.7, 0.7]), np.array([2.0, 2.0, 2.0, -2.0])).tolist()
    [2.0, 0.0, 1.4, -0.0]
    """
    clipped = np.where(gain > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    return np.where(clipped, 0.0, ratio) * gain


def ppo(learner: Learner, batch: SampledStep) -> None:
    """Clipped PPO on the sampled rollouts: a learned value as baseline, GAE standardised over the batch, epochs.

    The value follows a share of its error per step. As in training with human feedback, the KL term is part of the
    reward.
    """
    assert isinstance(learner, TwoStage)
    world = learner.world
    prompt, answer = np.repeat(batch.prompt, world.group_size), batch.answer.ravel()
    one, two = np.divmod(answer, learner.width)
    drift = batch.logs[prompt, answer] - learner.start[prompt, answer]
    reward = batch.reward.ravel() / world.scale - world.leash[batch.step] * drift
    whole, unfinished = learner.values
    gains = gae_advantages(reward, whole[prompt], unfinished[prompt, one])
    targets = gains[0] + whole[prompt], gains[1] + unfinished[prompt, one]
    both = np.concatenate(gains)
    first, second = ((gain - both.mean()) / max(both.std(), FLAT) for gain in gains)
    _policy_epochs(learner, world.rate[batch.step], (prompt, one, two), (first, second))
    mean_towards(whole, (prompt,), targets[0])
    mean_towards(unfinished, (prompt, one), targets[1])


def _policy_epochs(
    learner: TwoStage, rate: float, where: tuple[Ints, Ints, Ints], gains: tuple[Floats, Floats]
) -> None:
    prompt, one, two = where
    before = log_softmax(learner.first)[prompt, one], log_softmax(learner.second)[prompt, one, two]
    # Over the chance of being sampled, as in `grpo`; the second decision follows the first.
    counts = np.bincount(prompt, minlength=len(learner.first))[prompt]
    chances = np.exp(before[0]), np.exp(before[0] + before[1])
    steps = tuple(rate / EPOCHS / (counts * each) for each in chances)
    for _ in range(EPOCHS):
        logs = log_softmax(learner.first), log_softmax(learner.second)
        first_move = steps[0] * clipped_gradient(np.exp(logs[0][prompt, one] - before[0]), gains[0])
        second_move = steps[1] * clipped_gradient(np.exp(logs[1][prompt, one, two] - before[1]), gains[1])
        # A natural step has no share for the decisions that were not taken: the log-sum takes it from them.
        np.add.at(learner.first, (prompt, one), first_move.clip(-MAX_MOVE, MAX_MOVE))
        np.add.at(learner.second, (prompt, one, two), second_move.clip(-MAX_MOVE, MAX_MOVE))


def mean_towards(value: Floats, cell: tuple[Ints, ...], target: Floats) -> None:
    """Move each visited cell towards the mean of its targets."""
    flat = np.ravel_multi_index(cell, value.shape)
    counts = np.bincount(flat, minlength=value.size)
    means = np.bincount(flat, target, value.size) / np.maximum(counts, 1)
    moved = np.where(counts > 0, VALUE_RATE * (means - value.ravel()), 0.0)
    value += moved.reshape(value.shape)


RULES: dict[str, Callable[[Learner, SampledStep], None]] = {
    "tilt": tilt,
    "natural": natural,
    "gradient": gradient,
    "grpo": grpo,
    "ppo": ppo,
}


def make_learner(world: World) -> Learner:
    """A fresh table policy for a world: two-staged for `ppo`, one table otherwise."""
    return TwoStage(world) if world.update == "ppo" else Learner(world)
