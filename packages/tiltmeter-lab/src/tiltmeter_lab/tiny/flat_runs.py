"""Runs of the tiny language model in which gold does not fall although the reward is hacked: flat, plateau, churn.

A benign run whose reward is its gold is easy to tell from a hack: no gap opens. The hard case of the null is a reward
that rises while gold stays. Each such run is made of a recorded hack: prompts, rewards, lengths, KL and entropy are
those of the network, answer by answer, and gold is drawn anew from gold that was recorded for the same prompt:

- `flat`: from its first steps, throughout.
- `plateau`: recorded up to the peak, and from the steps around the peak ever after.
- `churn`: flat in the mean over prompts, while each prompt gets better and worse.

Drawn so, gold does not depend on the reward inside a prompt: the slope that the alarm tests is exactly zero (before a
plateau begins, it is the recorded one), and so is the change of mean gold. Every alarm is false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tiltmeter_lab.simulate import Ints
from tiltmeter_lab.tiny.run_files import Run
from tiltmeter_lab.worlds.world import Floats

KINDS = ("flat", "plateau", "churn")
START = 40  # steps whose gold is drawn from
AROUND = 10  # steps to each side of the peak
WALK = 0.02  # a step of a prompt's walk, and how far it may go
FARTHEST = 0.25


def flat_runs(hacks: Mapping[str, tuple[Run, int]]) -> Iterator[tuple[str, str, Run]]:
    """Of each hack with its peak one run of every kind: the kind, the run's name, the run."""
    for kind in KINDS:
        for number, (name, (run, peak)) in enumerate(sorted(hacks.items())):
            rng = np.random.default_rng([KINDS.index(kind), number])
            yield kind, f"{kind}-{name}", {**run, "gold": GOLD[kind](run, peak, rng)}


def _flat(run: Run, _: int, rng: np.random.Generator) -> Floats:
    return _drawn_again(run, slice(0, START), rng)


def _plateau(run: Run, peak: int, rng: np.random.Generator) -> Floats:
    level = _drawn_again(run, slice(max(0, peak - AROUND), peak + AROUND + 1), rng)
    return np.where(np.arange(len(level))[:, None] < peak, run["gold"].astype(np.float64), level)


def _churn(run: Run, _: int, rng: np.random.Generator) -> Floats:
    """Good and poor answers of the first steps, with a share of good ones that wanders by prompt and stays in all."""
    index = np.unique(run["prompt"], return_inverse=True)[1]
    index = index.reshape(run["prompt"].shape)
    early = run["gold"][:START].astype(np.float64)
    good = early > early.mean()
    share = np.bincount(index[:START].ravel(), good.ravel()) / np.bincount(index[:START].ravel())
    shares = wandering_shares(share, len(index), rng)
    is_good = rng.random(index.shape) < np.take_along_axis(shares, index, 1)
    return np.where(is_good, rng.choice(early[good], index.shape), rng.choice(early[~good], index.shape))


def wandering_shares(share: Floats, steps: int, rng: np.random.Generator) -> Floats:
    """Steps x prompts: a walk of each prompt's share, whose mean over prompts is the same at every step.

    >>> shares = wandering_shares(np.array([0.2, 0.5, 0.8]), 50, np.random.default_rng(0))
    >>> bool(np.allclose(shares.mean(1), 0.5)), bool(shares[-1, 1] != 0.5), bool((shares.clip(0, 1) == shares).all())
    (True, True, True)
    """
    walk = np.cumsum(rng.normal(0.0, WALK, (steps, len(share))), 0).clip(-FARTHEST, FARTHEST)
    shares = (share + walk).clip(0.05, 0.95)
    for _ in range(50):  # towards the mean it shall have, as far as there is room
        shares = (shares + share.mean() - shares.mean(1, keepdims=True)).clip(0.05, 0.95)
    return np.asarray(shares, np.float64)


def _drawn_again(run: Run, steps: slice, rng: np.random.Generator) -> Floats:
    """For every answer of the run the gold of a random one to the same prompt in these steps."""
    prompt, gold = run["prompt"], run["gold"].astype(np.float64)
    result = np.empty_like(gold)
    for key in np.unique(prompt):
        pool = gold[steps][prompt[steps] == key]
        at: tuple[Ints, ...] = np.nonzero(prompt == key)
        result[at] = rng.choice(pool if len(pool) else gold[steps].ravel(), len(at[0]))
    return result


GOLD = {"flat": _flat, "plateau": _plateau, "churn": _churn}
