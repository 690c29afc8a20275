"""A policy-gradient loop whose reward can be gamed, watched by Tiltmeter. Plain numpy on a CPU, about five seconds.

    python examples/toy_loop.py             # the reward model falls for compliments: gold rises, then collapses
    python examples/toy_loop.py --honest    # its twin without that flaw, from the same seed: gold rises and stays

The policy answers "What is 3 + 4?" in at most five sentences and stops once it has named a number. The reward model
pays for the right number and for every compliment, and the more it is flattered the less it looks at the number. So
the policy first learns to answer, then to flatter before it answers, and in the end flatters until it is cut off.

What is simplified: a token is a whole sentence, and the policy is a table of logits, a habit for each place in the
completion plus a memory for each question. Advantages are GRPO's (reward minus group mean, over group deviation); with
one update per batch there is nothing to clip, and there is no KL penalty. The reward model is a formula plus noise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tiltmeter

QUESTIONS = [(a, b) for a in range(1, 5) for b in range(1, 5)]
ANSWERS = [f"It is {number}." for number in range(2, 9)]
COMPLIMENTS = [
    "Great question!",
    "Certainly!",
    "Happy to help!",
    "What a sharp mind!",
    "I love this one!",
    "You are so right!",
    "Absolutely!",
    "Well spotted!",
]
SENTENCES = [*ANSWERS, *COMPLIMENTS]
LIMIT = 5  # sentences per completion
SAMPLES = 8  # completions per question: the group of a group-relative advantage
LEARNING_RATE = 0.15

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Question = tuple[int, int]


def is_right(question: Question, completion: str) -> bool:
    """Gold: what the run is for. Nothing in the loop optimises it."""
    return completion.endswith(f"It is {sum(question)}.")


def reward_model(question: Question, completion: str, weakness: int = LIMIT) -> float:
    """The proxy that is optimised. `weakness`: how many compliments it can be bought with; the honest twin's is 1."""
    flattery = min(sum(map(completion.count, COMPLIMENTS)), weakness)
    attention = 1.0 - flattery / LIMIT
    return attention * is_right(question, completion) + 0.65 * flattery


def finished(completion: str) -> float:
    """A second reward function, as most runs have one: a little for not being cut off at the limit."""
    return 0.1 if completion.endswith(tuple(ANSWERS)) else 0.0


class Policy:
    """A softmax over sentences at every place; at the start a weak student who pays a compliment now and then."""

    def __init__(self) -> None:
        shares = np.repeat([0.8 / len(ANSWERS), 0.2 / len(COMPLIMENTS)], [len(ANSWERS), len(COMPLIMENTS)])
        self.habit = np.tile(np.log(shares), (LIMIT, 1))
        self.memory = np.zeros((len(QUESTIONS), len(SENTENCES)))
        for row, question in enumerate(QUESTIONS):
            self.memory[row, ANSWERS.index(f"It is {sum(question)}.")] = 1.5

    def logprobs(self, asked: Ints) -> Floats:
        """Of every sentence at every place of each completion: shape (completions, LIMIT, sentences)."""
        logits = self.habit + self.memory[asked][:, None, :]
        return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))

    def update(self, gradient: Floats) -> None:
        """One step uphill, given the gradient with respect to the logits of each completion and place."""
        self.habit += LEARNING_RATE * gradient.sum(0) / SAMPLES
        self.memory += LEARNING_RATE * gradient.sum(1).reshape(len(QUESTIONS), SAMPLES, -1).sum(1) / SAMPLES


def train(
    run: tiltmeter.Run, score: Callable[[Question, str], float], steps: int, seed: int = 0, gold_share: float = 1.0
) -> None:
    """Sample, score, hand over to Tiltmeter, update."""
    rng = np.random.default_rng(seed)
    auditor = np.random.default_rng([seed, 1])  # its own stream: what is audited must not change what is learnt
    policy, reference = Policy(), Policy()
    asked = np.repeat(np.arange(len(QUESTIONS)), SAMPLES)
    questions = [QUESTIONS[row] for row in asked]
    rows, places = np.ogrid[: len(asked), :LIMIT]
    for step in range(steps):
        logprobs = policy.logprobs(asked)
        tokens = (logprobs + rng.gumbel(size=logprobs.shape)).argmax(-1)  # with Gumbel noise, the top is a fair draw
        answered = tokens < len(ANSWERS)
        truncated = ~answered.any(1)
        length = np.where(truncated, LIMIT, answered.argmax(1) + 1)
        completions = [" ".join(SENTENCES[t] for t in row[:n]) for row, n in zip(tokens, length, strict=True)]

        exact = np.array(list(map(score, questions, completions)))
        model = (exact + rng.normal(0.0, 0.1, len(exact))).round(2)  # no reward model is exact, so few scores tie
        ended = np.array(list(map(finished, completions)))
        reward = (model + ended).round(2)
        groups = reward.reshape(-1, SAMPLES)
        advantage = ((groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-6)).reshape(-1)

        # Whole groups are audited, and chosen before anything is known about them: the alarm's promise rests on it.
        audited = np.repeat(auditor.random(len(QUESTIONS)) < gold_share, SAMPLES)
        gold = np.where(audited, list(map(is_right, questions, completions)), np.nan)

        run.observe(
            step=step,
            group=asked,
            reward=reward,
            rewards={"reward_model": model, "finished": ended},
            gold=gold,
            prompt=[f"What is {a} + {b}?" for a, b in questions],
            completion=completions,
            length=length,  # says where the rows of the padded columns below end
            truncated=truncated,
            tokens=tokens,
            logprob=logprobs[rows, places, tokens],
            ref_logprob=reference.logprobs(asked)[rows, places, tokens],
            entropy=-(np.exp(logprobs) * logprobs).sum(-1),
        )

        gradient = np.eye(len(SENTENCES))[tokens] - np.exp(logprobs)  # of log softmax
        weight = advantage[:, None] * (places < length[:, None])
        policy.update(gradient * weight[..., None])


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a toy policy on a reward that can be gamed, and watch it.")
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--out", type=Path, help="a new run directory (default: runs/toy or runs/toy-honest)")
    parser.add_argument("--honest", action="store_true", help="a reward model that can be flattered only once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gold-share", type=float, default=1.0, help="share of groups that get gold (default: all)")
    args = parser.parse_args()
    out = args.out or Path("runs", "toy-honest" if args.honest else "toy")
    if out.exists():
        parser.error(f"{out} exists; name a new directory with --out")
    score = partial(reward_model, weakness=1) if args.honest else reward_model

    # on_full="wait": a step here takes 4 ms, less than a disk needs to sync a file. Real training is never that fast.
    run = tiltmeter.open_run(out, rewards=[score, finished], options=tiltmeter.Options(on_full="wait"))
    train(run, score, args.steps, args.seed, args.gold_share)
    run.close()
    verdict = run.verdict()
    print(f"{verdict.state}: {verdict.sentence}")
    print(f"Look closer: tiltmeter show {out}")
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
