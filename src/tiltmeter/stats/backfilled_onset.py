"""Where gold stood highest, from a few labels bought afterwards over the stored past: an estimate, no promise.

An alarm comes late, and the labels that led to it lie where the alarm looked. What a rollback needs is the peak, and
that can be read off the past: label a few answers drawn uniformly over every stored one, learn from them what gold is
worth in terms of what is known of all (reward, length, prompt), and correct the levels so read by what the labels say
against them. Source: own; the correction is that of prediction-powered means, Angelopoulos et al. 2301.09633.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.rise_then_fall import rise_then_fall

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_R2 = 0.1  # of the other half of the labels, from which features are believed
LEAST_LABELS = 20  # for features at all
RIDGE = 2.0  # labels' worth of belief that a feature says nothing
PROMPT_SHRINK = 6.0  # labels that a prompt's own mean must outweigh to stand for itself
SMOOTHING = 16  # steps are corrected with those around them: a Gaussian of 1/16 of the run
AS_GOOD = 0.02  # of gold: places this near the top are one top, and its middle is the peak
MOST_STEPS = 500  # of the curve; in a longer run neighbours are one
REPEATS = 200  # of the bootstrap
INTERVAL = (0.05, 0.95)
SEED = 0


class BackfilledOnset(NamedTuple):
    """The step at which gold was highest with its 90 % interval, and by step the estimated level and its best curve.

    `r2` is what the features explain of labels that they were not fitted on; below 0.1 they were not used.
    """

    peak: int
    low: int
    high: int
    steps: Ints
    level: Floats
    fit: Floats
    r2: float


def backfilled_onset(
    step: Ints,
    features: Floats,
    labelled: Ints,
    gold: Floats,
    prompt: Ints | None = None,
    *,
    repeats: int = REPEATS,
) -> BackfilledOnset:
    """The peak of gold over stored rollouts of which a few were labelled.

    `step`, `features` (rows x k) and `prompt` have one row per stored rollout, in any order; steps may have gaps.
    `labelled` are row numbers drawn uniformly over all rows, which may repeat, and `gold` has their labels.

    Level of a step = mean surrogate of its rows + mean residual of the labels around it. The interval is a bootstrap:
    labels are drawn anew, the levels' own deviations from the curve are shuffled in blocks of steps, and it reaches
    from the first to the last place that is as good as the peak; without `repeats` that is where the curve is so.

    >>> rng = np.random.default_rng(1)
    >>> step = np.repeat(np.arange(0, 1000, 10), 16)
    >>> chance = np.interp(step, [0, 400, 1000], [0.3, 0.8, 0.1])
    >>> drawn = rng.integers(0, len(step), 300)
    >>> onset = backfilled_onset(step, chance[:, None], drawn, rng.binomial(1, chance[drawn]).astype(float))
    >>> 360 <= onset.peak <= 440, onset.low <= onset.peak <= onset.high
    (True, True)
    """
    step, labelled = np.asarray(step, np.int64), np.asarray(labelled, np.int64)
    features, gold = np.asarray(features, np.float64), np.asarray(gold, np.float64)
    if not len(labelled) or len(labelled) != len(gold):
        raise ValueError("an onset needs one gold value for each labelled row, and at least one")
    if not np.isfinite(gold).all() or not np.isfinite(features).all():
        raise ValueError("gold and features have to be finite numbers")
    steps, place = np.unique(step, return_inverse=True)
    if len(steps) > MOST_STEPS:
        width = -(-len(steps) // MOST_STEPS)
        steps, place = steps[width // 2 :: width], np.minimum(place // width, len(steps[width // 2 :: width]) - 1)
    table = _expand(features)
    keys = None if prompt is None else _prompt_keys(np.asarray(prompt, np.int64), labelled)
    r2 = _two_fold_r2(table[labelled], None if keys is None else keys[labelled], gold, labelled)
    if r2 < LEAST_R2:
        table, keys = np.zeros((len(step), 0)), None
    rows, prompts = np.bincount(place).astype(np.float64), 0 if keys is None else int(keys.max()) + 1
    means = np.column_stack([np.bincount(place, column) / rows for column in table.T] or [np.zeros((len(steps), 0))])
    shares = None if keys is None else _prompt_shares(place, keys, rows)
    at = np.arange(len(steps))
    kernel = np.exp(-0.5 * ((at[:, None] - at[None]) * SMOOTHING / max(len(at), 3 * SMOOTHING)) ** 2)

    def level_of(draw: Ints) -> Floats:
        """The surrogate is linear, so that a step's mean needs the means of its features alone."""
        chosen = labelled[draw]
        own = None if keys is None else keys[chosen]
        base, weights, offsets = _ridge(table[chosen], own, gold[draw], prompts)
        guess = base + table[chosen] @ weights + (0.0 if own is None else offsets[own])
        free = base + means @ weights + (0.0 if shares is None else shares @ offsets)
        error = np.bincount(place[chosen], gold[draw] - guess, len(steps))
        count = np.bincount(place[chosen], minlength=len(steps)).astype(np.float64)
        return np.asarray(free + (kernel @ error) / (kernel @ count + 2.0), np.float64)

    level = level_of(np.arange(len(labelled)))
    fit = rise_then_fall(level, rows)
    rng, block = np.random.default_rng(SEED), max(1, len(steps) // SMOOTHING)
    own = _top(fit)
    tops = [own]
    for _ in range(repeats):
        starts = rng.integers(0, len(steps), 1 + len(steps) // block)
        shuffled = ((starts[:, None] + np.arange(block)) % len(steps)).ravel()[: len(steps)]
        redrawn = level_of(rng.integers(0, len(labelled), len(labelled))) - (level - fit) + (level - fit)[shuffled]
        tops.append(_top(rise_then_fall(redrawn, rows)))
    low = int(np.quantile([top[0] for top in tops], INTERVAL[0], method="nearest"))
    high = int(np.quantile([top[-1] for top in tops], INTERVAL[1], method="nearest"))
    peak = int(own[len(own) // 2])
    return BackfilledOnset(
        int(steps[peak]), int(steps[min(low, peak)]), int(steps[max(high, peak)]), steps, level, fit, r2
    )


def _top(fit: Floats) -> Ints:
    """The places that are as good as the highest. The best curve overshoots there by luck, so the height of the top is
    that of the sixteenth of the run around it."""
    height = np.sort(fit)[-max(1, len(fit) // SMOOTHING) :].mean()
    return np.flatnonzero(fit >= height - AS_GOOD)


def _expand(features: Floats) -> Floats:
    """Features in units of their spread; those that take more than two values also as bends at their quartiles."""
    columns = []
    for column in features.T:
        spread = float(column.std())
        if spread <= 1e-9 * (1.0 + float(np.abs(column).max(initial=0.0))):
            continue
        unit = np.clip((column - column.mean()) / spread, -4.0, 4.0)
        columns.append(unit)
        if len(np.unique(column)) > 2:
            columns += [np.maximum(unit - bend, 0.0) for bend in np.unique(np.quantile(unit, (0.25, 0.5, 0.75)))]
    return np.column_stack(columns) if columns else np.zeros((len(features), 0))


def _ridge(table: Floats, keys: Ints | None, gold: Floats, prompts: int) -> tuple[float, Floats, Floats]:
    """Gold as a constant, a weight per column, and what each prompt adds to that."""
    base, centre = float(gold.mean()), table.mean(0)
    centred = table - centre
    square = centred.T @ centred + RIDGE * np.eye(table.shape[1])
    weights = np.linalg.solve(square, centred.T @ (gold - base))
    base -= float(centre @ weights)
    if keys is None:
        return base, weights, np.zeros(prompts)
    error = gold - base - table @ weights
    return base, weights, np.bincount(keys, error, prompts) / (np.bincount(keys, minlength=prompts) + PROMPT_SHRINK)


def _two_fold_r2(table: Floats, keys: Ints | None, gold: Floats, rows: Ints) -> float:
    """What half of the labels explains of the other half. A row that was drawn twice is in one half only."""
    spread = float(((gold - gold.mean()) ** 2).sum())
    if len(np.unique(rows)) < LEAST_LABELS or not (table.shape[1] or keys is not None) or spread <= 0.0:
        return 0.0
    half = np.unique(rows, return_inverse=True)[1]
    half = np.random.default_rng(SEED).permutation(int(half.max()) + 1)[half] % 2
    lost, prompts = 0.0, 0 if keys is None else int(keys.max()) + 1
    for fold in (0, 1):
        a, b = half != fold, half == fold
        base, weights, offsets = _ridge(table[a], None if keys is None else keys[a], gold[a], prompts)
        guess = base + table[b] @ weights + (0.0 if keys is None else offsets[keys[b]])
        lost += float(((gold[b] - guess) ** 2).sum())
    return 1.0 - lost / spread


def _prompt_keys(prompt: Ints, labelled: Ints) -> Ints:
    """Labelled prompts by number, and all others, of which nothing was learnt, as one."""
    learnt = np.unique(prompt[labelled])
    at = np.minimum(np.searchsorted(learnt, prompt), len(learnt) - 1)
    return np.asarray(np.where(learnt[at] == prompt, at, len(learnt)), np.int64)


def _prompt_shares(place: Ints, keys: Ints, rows: Floats) -> Floats:
    """By step, which share of its rows belongs to each prompt."""
    shares = np.zeros((len(rows), int(keys.max()) + 1))
    np.add.at(shares, (place, keys), 1.0)
    return np.asarray(shares / rows[:, None], np.float64)
