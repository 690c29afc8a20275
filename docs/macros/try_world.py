"""Computes what the page "Try it" shows, while mkdocs builds, with the kernels of `tiltmeter.stats`. No curve is drawn.

`data` is the figures of every setting that the page's sliders reach, packed; `presets_table` the four named settings,
for readers without JavaScript.

The world: 32 kinds of answers. Gold is what each is worth. Each has an error, drawn at the quantiles of a chosen tail,
and the score is gold + size × error. 24 kinds share 96 % of the reference evenly; 8 are ever rarer, as the far end of a
tail is, and of middling worth, because an error says nothing about worth. Training is the natural policy gradient on a
table of logits with reward r and leash β, whose path is the reference tilted by η r, η = (1 - exp(-β t)) / β; without
the leash η = t. `tests/docs/test_try_page.py` integrates that flow and compares.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import asinh, exp, expm1, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.stats.tilting import Floats, best_of_n, kl, tilted

from .tables import table

BETAS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SIZES = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0)
GROUPS = (2, 4, 8, 16, 32, 64)
TIMES = (0.0, *(float(f"{time:.2g}") for time in np.geomspace(0.01, 30.0, 31)))
QUANTITIES = ("score", "gold", "kl", "entropy", "odds")  # log-odds to pass: a chance near 1 would lose its digits
PASSING = 0.25  # of the reference's answers get a pass, where the score is made pass or fail

ORDINARY, RARE, COMMON, RARER = 24, 8, 0.96, 0.3  # kinds, kinds, the first's share, each rare kind to the one before
QUANTUM, LARGEST = 0.01, 1000.0  # figures are packed as 16 bits of asinh(x / QUANTUM), up to this

_normal = NormalDist().inv_cdf
#: Quantile functions with median 0. The first two have E exp(tX) finite for small t, the last two for none.
TAILS: dict[str, Callable[[float], float]] = {
    "Gaussian": _normal,
    "exponential": lambda u: log(2.0 * u) if u < 0.5 else -log(2.0 * (1.0 - u)),
    "lognormal": lambda u: exp(_normal(u)) - 1.0,
    "power law": lambda u: (2.0 * u - 1.0) / sqrt(2.0 * u * (1.0 - u)),  # Student's t with two degrees of freedom
}


@dataclass(frozen=True)
class Setting:
    """One position of all sliders, by index."""

    tail: int
    size: int
    beta: int
    group: int
    time: int


PRESETS = {
    "Healthy": Setting(tail=0, size=1, beta=2, group=2, time=31),
    "Hacked": Setting(tail=0, size=3, beta=1, group=2, time=26),
    "Heavy tail": Setting(tail=3, size=2, beta=4, group=2, time=31),
    "Leash too tight": Setting(tail=0, size=2, beta=7, group=2, time=31),
}


@dataclass(frozen=True)
class World:
    """The kinds of answers, rarest last: the reference's share of each, its worth, its error by tail."""

    reference: Floats
    gold: Floats
    errors: Floats  # tail × kind

    def score(self, tail: int, size: int) -> Floats:
        return np.asarray(self.gold + SIZES[size] * self.errors[tail], np.float64)


@cache
def world() -> World:
    """Rounded to what the page is given, so that both compute with the same numbers."""
    rest = (1.0 - COMMON) * RARER ** np.arange(RARE)
    edges = np.concatenate((np.linspace(0.0, COMMON, ORDINARY + 1)[:-1], 1.0 - rest, [1.0]))
    reference, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2.0
    gold = np.array([_normal((rank + 0.5) / (ORDINARY + RARE)) for rank in _ranks()])
    gold = gold - reference @ gold
    gold = gold / np.sqrt(reference @ gold**2)
    errors = np.array([_quantiles(tail, middles) for tail in TAILS.values()])
    return World(_rounded(reference), _rounded(gold), np.array([_rounded(row) for row in errors]))


def _rounded(values: Floats) -> Floats:
    return np.array([float(f"{value:.5g}") for value in values])


def _quantiles(tail: Callable[[float], float], at: Floats) -> Floats:
    """Errors of the same middle half whatever the tail, that of the unit normal: only the far end differs."""
    unit = (_normal(0.75) - _normal(0.25)) / (tail(0.75) - tail(0.25))
    return np.array([unit * tail(float(u)) for u in at])


def _ranks() -> list[int]:
    """Which rank of worth each kind has: the rare ones the middle ranks, the others scattered evenly over the rest."""
    first = ORDINARY // 2
    middle = [first + (rank // 2 if rank % 2 else RARE - 1 - rank // 2) for rank in range(RARE)]
    others = [rank for rank in range(ORDINARY + RARE) if rank not in middle]
    golden = (5**0.5 - 1.0) / 2.0
    scattered = np.argsort(np.argsort([(kind + 1) * golden % 1.0 for kind in range(ORDINARY)]))
    return [others[rank] for rank in scattered] + middle


def pressure(beta: float, time: float) -> float:
    """η after this time under a leash of β; β = 0 is none."""
    return -expm1(-beta * time) / beta if beta else time


def policy(tail: int, size: int, beta: float, time: float) -> Floats:
    eta = pressure(beta, time)
    return tilted(world().reference, world().score(tail, size), 1.0 / eta if eta else float("inf"))


def figures(chances: Floats, tail: int, size: int) -> tuple[float, ...]:
    """QUANTITIES of a policy; score and gold as gains over the reference."""
    here, score = world(), world().score(tail, size)
    given = chances > 0.0
    entropy = -float((chances[given] * np.log(chances[given])).sum())
    return (
        float((chances - here.reference) @ score),
        float((chances - here.reference) @ here.gold),
        kl(chances, here.reference),
        max(0.0, entropy),
        _log_odds(chances, score > bar(tail, size)),
    )


def _log_odds(chances: Floats, passes: NDArray[np.bool_]) -> float:
    with np.errstate(divide="ignore"):
        odds = float(np.log(chances[passes].sum()) - np.log(chances[~passes].sum()))
    return min(odds, LARGEST)


def bar(tail: int, size: int) -> float:
    """The score that at most PASSING of the reference's answers exceed."""
    score = world().score(tail, size)
    order = np.argsort(score)
    above = 1.0 - np.cumsum(world().reference[order])
    return float(score[order][int((above <= PASSING + 1e-9).argmax())])


def grid() -> Floats:
    """tail × size × leash (0 none, then BETAS) × quantity × time."""
    shape = (len(TAILS), len(SIZES), 1 + len(BETAS), len(TIMES))
    found = np.empty((*shape, len(QUANTITIES)))
    for tail, size, leash, time in np.ndindex(shape):
        chances = policy(tail, size, (0.0, *BETAS)[leash], TIMES[time])
        found[tail, size, leash, time] = figures(chances, tail, size)
    return np.moveaxis(found, -1, -2)


def selection() -> Floats:
    """tail × size × quantity × group: the best of as many answers as a group has, by score."""
    found = np.empty((len(TAILS), len(SIZES), len(GROUPS), len(QUANTITIES)))
    for tail, size, group in np.ndindex(found.shape[:-1]):
        score = world().score(tail, size)
        found[tail, size, group] = figures(best_of_n(world().reference, score, GROUPS[group]), tail, size)
    return np.moveaxis(found, -1, -2)


def packed(values: Floats) -> NDArray[np.uint16]:
    """Near 0 in steps of 4e-6, elsewhere to 2 parts in 10,000."""
    half = 32767.0
    return np.asarray(np.rint(np.arcsinh(values / QUANTUM) / asinh(LARGEST / QUANTUM) * half) + half, np.uint16)


def unpacked(codes: NDArray[np.uint16]) -> Floats:
    half = 32767.0
    return np.asarray(QUANTUM * np.sinh((codes.astype(np.float64) - half) / half * asinh(LARGEST / QUANTUM)))


@cache
def data() -> str:
    here = world()
    told = {
        "betas": BETAS, "sizes": SIZES, "groups": GROUPS, "times": TIMES, "tails": tuple(TAILS),
        "presets": {name: vars(setting) for name, setting in PRESETS.items()},
        "reference": here.reference.tolist(), "gold": here.gold.tolist(), "errors": here.errors.tolist(),
        "quantum": QUANTUM, "largest": LARGEST,
        "grid": _text(grid()), "selection": _text(selection()),
    }  # fmt: skip
    return f'<script type="application/json" id="try-data">{json.dumps(told, separators=(",", ":"))}</script>'


def _text(values: Floats) -> str:
    return base64.b64encode(packed(values).astype("<u2").tobytes()).decode()


def presets_table() -> str:
    """The presets at their time, with and without the leash."""
    rows = []
    for name, at in PRESETS.items():
        beta, time = BETAS[at.beta], TIMES[at.time]
        setting = f"**{name}**: {list(TAILS)[at.tail]} error of {SIZES[at.size]:g}, time {time:g}, leash β = {beta:g}"
        for leash, words in ((beta, setting), (0.0, "the same without a leash")):
            score, gold, nats, entropy, _ = figures(policy(at.tail, at.size, leash, time), at.tail, at.size)
            rows.append((words, f"{score:+.2f}", f"{gold:+.2f}", f"{nats:.2f}", f"{entropy:.2f}"))
    return table("setting | score | gold | KL | entropy", rows)
