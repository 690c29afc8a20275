"""Groups of raters who want different things: a mixture over raters on top of the Dawid-Skene model.

Dawid and Skene know one truth for each item and raters who err about it. Here each group of raters has a truth of its
own, which is often the others' too, and a rater errs about that of their group. Without such a model a minority who
agree among themselves look like careless raters, and a majority vote drops what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMOOTHING = 0.5  # answers of each kind that every row of a rater's table begins with, and as many right ones again
MOST_GROUPS = 4
STARTS = 2  # of the fit, from different partitions; the best is taken
FOLDS = 4
SURE = 3.0  # standard errors by which one more group must make hidden items likelier
FEWEST = 20  # items with two ratings or more, below which there is one group
OPEN = 0.1  # of an item, that the prior has as open
DENSE = 20_000_000  # cells of items x raters up to which partitions are proposed by who goes with whom


@dataclass(frozen=True, eq=False)
class RaterGroups:
    """Raters by group, and by group what the items are.

    >>> rng = np.random.default_rng(0)
    >>> ours = rng.integers(0, 2, 200)
    >>> theirs = np.where(rng.random(200) < 0.5, ours, 1 - ours)
    >>> votes = np.column_stack([np.where(rng.random(200) < 0.9, side, 1 - side) for side in [ours] * 4 + [theirs] * 3])
    >>> fit = fit_groups(votes.astype(float), 2)
    >>> sorted(np.bincount(fit.group).tolist()), bool(np.abs(fit.differ.mean() - (ours != theirs).mean()) < 0.1)
    ([3, 4], True)
    """

    categories: Floats  # the answers that occur, in order
    member: Floats  # raters x groups: the chance that a rater belongs to a group; the largest group is first
    truth: Floats  # groups x items x categories; NaN for an item without ratings
    differ: Floats  # per item the chance that not all groups want the same; NaN without ratings
    confusion: Floats  # raters x truth x answer
    prior: Floats  # of every combination of the groups' truths, in the order of `product`; last, of an open item
    open_answers: Floats  # how common each answer is where an item is open: nobody's truth decides it
    bound: float  # of the log likelihood, from below, with the priors
    path: Floats  # the same by iteration: it never falls

    @property
    def count(self) -> int:
        return int(self.member.shape[1])

    @property
    def group(self) -> Ints:
        """Per rater the likeliest group."""
        return np.asarray(self.member.argmax(axis=1), np.int64)


@dataclass(frozen=True)
class GroupChoice:
    """How many groups the data support, and by how much one more would predict better."""

    fit: RaterGroups
    gains: tuple[tuple[float, float], ...]  # of 2, 3, ... groups over one fewer: nats a hidden item, standard error

    @property
    def count(self) -> int:
        return self.fit.count


@dataclass(frozen=True)
class _Cells:
    """The ratings that are there, one by one."""

    item: Ints
    rater: Ints
    answer: Ints
    items: int
    raters: int
    categories: Floats

    @staticmethod
    def of(ratings: Floats) -> _Cells:
        present = np.isfinite(ratings)
        item, rater = np.nonzero(present)
        categories, answer = np.unique(ratings[present], return_inverse=True)
        items, raters = ratings.shape
        return _Cells(item, rater, answer.reshape(-1), items, raters, categories)

    def at(self, rows: NDArray[np.bool_]) -> _Cells:
        return _Cells(self.item[rows], self.rater[rows], self.answer[rows], self.items, self.raters, self.categories)


def fit_groups(ratings: Floats, groups: int, *, seed: int = 0, starts: int = STARTS) -> RaterGroups:
    """Fit so many groups to items x raters, NaN where there is no rating: the best of several starts.

    With q the chances of raters' groups, an item's truths t_1 ... t_G have the chance
    ρ(t_1 ... t_G) Π_r Π_g C[r, t_g, answer]^q(r, g), summed over all combinations of truths; q(r, g) is then
    proportional to π_g exp(expected log chance of r's answers by the truths of g). In turn with C, ρ and π that raises
    a bound of the likelihood until it stands (mean-field variational expectation maximisation). One more state of an
    item is that it is open, and raters answer as they like: hard items must not look like groups.
    """
    return _fit(_Cells.of(ratings), groups, np.random.default_rng(seed), starts)


def choose_groups(
    ratings: Floats, *, most: int = MOST_GROUPS, folds: int = FOLDS, sure: float = SURE, seed: int = 0
) -> GroupChoice:
    """One group, and one more as long as that makes items likelier that the fit has not seen.

    Items are hidden in `folds` parts. Who belongs to which group, and how raters err, is fitted on the others; then
    all ratings of a hidden item have a chance by each number of groups. One more group is taken if the mean gain in
    log chance is `sure` standard errors above 0, over items, for these raters. A careless rater gains nothing by a
    group of their own, because nobody else says what that group wants; hard items gain nothing, because a group has
    to be the same people on all items.
    """
    cells = _Cells.of(ratings)
    gains: list[tuple[float, float]] = []
    best = _fit(cells, 1, np.random.default_rng(seed), 1)
    counts = np.bincount(cells.item, minlength=cells.items)
    several = counts > 1
    rating_raters = int((np.bincount(cells.rater, minlength=cells.raters) > 0).sum())
    if several.sum() < FEWEST or len(cells.categories) < 2:
        return GroupChoice(best, ())
    fold = np.random.default_rng([seed, 1]).integers(0, folds, cells.items)
    scores = _hidden_scores(cells, 1, fold, folds, seed)
    for groups in range(2, most + 1):
        if rating_raters < 2 * groups:
            break  # a group needs two raters: nobody else says what a single one's group wants
        more = _hidden_scores(cells, groups, fold, folds, seed)
        gain = (more - scores)[several]
        mean, error = float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))
        gains.append((mean, error))
        if not mean > sure * error:
            break
        scores, best = more, _fit(cells, groups, np.random.default_rng([seed, groups]), STARTS)
    return GroupChoice(best, tuple(gains))


def adjusted_rand_index(first: Sequence[int] | Ints, second: Sequence[int] | Ints) -> float:
    """How far two partitions of the same things agree: 1 if they are equal, 0 on average by chance.

    Source: Hubert and Arabie 1985.

    >>> adjusted_rand_index([0, 0, 1, 1], [5, 5, 3, 3]), round(adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]), 2)
    (1.0, -0.5)
    >>> adjusted_rand_index([0, 0, 0], [1, 1, 1])
    1.0
    """
    _, one = np.unique(np.asarray(first), return_inverse=True)
    _, two = np.unique(np.asarray(second), return_inverse=True)
    table = np.zeros((one.max(initial=0) + 1, two.max(initial=0) + 1))
    np.add.at(table, (one, two), 1.0)

    def pairs(counts: Floats) -> float:
        return float((counts * (counts - 1.0) / 2.0).sum())

    together, rows, columns, total = pairs(table), pairs(table.sum(1)), pairs(table.sum(0)), pairs(table.sum()[None])
    expected = rows * columns / total if total else 0.0
    most = (rows + columns) / 2.0
    return 1.0 if most == expected else (together - expected) / (most - expected)


def _fit(cells: _Cells, groups: int, rng: np.random.Generator, starts: int) -> RaterGroups:
    if groups == 1:
        return _climb(cells, np.ones((cells.raters, 1)))
    axes = _rater_axes(cells, groups)
    fits = []
    for number in range(starts):
        places = axes if axes is not None and number < starts - 1 else rng.standard_normal((cells.raters, groups))
        partition = _partition(places, groups, rng)
        fits.append(_climb(cells, np.where(np.eye(groups)[partition] > 0.0, 0.9, 0.1 / (groups - 1))))
    best = max(fits, key=lambda fit: fit.bound)
    order = np.argsort(-np.bincount(best.group, minlength=groups), kind="stable")
    return replace(best, member=best.member[:, order], truth=best.truth[order], prior=_reorder(best.prior, order))


def _reorder(prior: Floats, order: Ints) -> Floats:
    """The prior of combinations when groups change places."""
    groups = len(order)
    k = round((len(prior) - 1) ** (1.0 / groups))
    return np.append(prior[:-1].reshape((k,) * groups).transpose(order).ravel(), prior[-1])


def _climb(cells: _Cells, member: Floats, *, most: int = 100, tolerance: float = 1e-6) -> RaterGroups:
    """Raise the bound from these chances of raters' groups until it stands."""
    k, groups, item, rater, answer = len(cells.categories), member.shape[1], cells.item, cells.rater, cells.answer
    counts = np.bincount(item * k + answer, minlength=cells.items * k).reshape(cells.items, k).astype(np.float64)
    rated = counts.sum(axis=1) > 0.0
    if not k:
        blank = np.full((groups, cells.items, 0), np.nan)
        empty = np.full(cells.items, np.nan)
        tables = np.zeros((cells.raters, 0, 0)), np.zeros(1), np.zeros(0)
        return RaterGroups(cells.categories, member, blank, empty, *tables, 0.0, np.zeros(0))
    states = _states(k, groups)
    same = (states == states[:, :1]).all(axis=1)
    # Where nothing is known groups want the same: half of the prior's weight is on that.
    state_counts = 2.0 * SMOOTHING * np.where(same, 0.5 / k, 0.5 / max(len(states) - k, 1))
    state_counts = np.append(state_counts, OPEN)
    open_answers = np.maximum(counts.sum(axis=0) / counts.sum(), 1e-6)  # one that was hidden is not impossible
    # By group the shares of its votes, drawn to those of everybody.
    everybody = (counts + SMOOTHING) / (counts + SMOOTHING).sum(axis=1, keepdims=True)
    truth = np.empty((groups, cells.items, k))
    for g in range(groups):
        votes = np.bincount(item * k + answer, member[rater, g], cells.items * k).reshape(cells.items, k)
        truth[g] = (votes + everybody) / (votes + everybody).sum(axis=1, keepdims=True)
    member = member.copy()
    confusion, state_chance = np.zeros((cells.raters, k, k)), np.zeros((cells.items, len(states) + 1))
    numbers, prior = (item, rater, answer, states, state_counts, open_answers), state_counts / state_counts.sum()
    places = (prior, member, truth, confusion, state_chance)
    path = _raise_bound(*numbers, *places, SMOOTHING, most, tolerance * len(item))
    truth[:, ~rated] = np.nan
    truth /= truth.sum(axis=2, keepdims=True)  # an open item is as it is where it is not
    differ = np.where(rated, state_chance[:, :-1][:, ~same].sum(axis=1), np.nan)
    tables = confusion, prior, open_answers
    return RaterGroups(cells.categories, member, truth, differ, *tables, float(path[-1]), path)


@kernel
def _raise_bound(
    item: Ints, rater: Ints, answer: Ints, states: Ints, state_counts: Floats, open_answers: Floats,
    prior: Floats, member: Floats, truth: Floats, confusion: Floats, state_chance: Floats,
    smoothing: float, most: int, tolerance: float,
) -> Floats:  # fmt: skip
    """The iterations of `_climb`, in place of what `prior` to `state_chance` hold; returns the bounds."""
    n, items, raters, groups, k, many = len(item), truth.shape[1], len(member), len(truth), truth.shape[2], len(states)
    share = np.zeros(groups)
    for r in range(raters):
        for g in range(groups):
            share[g] += member[r, g] / raters
    logs, chance, fits = np.zeros((raters, k, k)), np.zeros((items, many + 1)), np.zeros((raters, groups))
    votes, rated = np.zeros((items, groups, k)), np.zeros(items, np.bool_)
    for c in range(n):
        rated[item[c]] = True
    path = np.zeros(most)
    used = 0
    while True:
        if used:
            prior[:] = state_counts
            for i in range(items):
                if rated[i]:
                    prior += state_chance[i]
            prior /= prior.sum()
            for g in range(groups):
                share[g] = smoothing + member[:, g].sum()
            share /= share.sum()
        confusion[:] = smoothing
        for t in range(k):
            confusion[:, t, t] += smoothing
        for c in range(n):
            for g in range(groups):
                weight = member[rater[c], g]
                for t in range(k):
                    confusion[rater[c], t, answer[c]] += weight * truth[g, item[c], t]
        bound = 0.0
        for r in range(raters):
            for t in range(k):
                total = confusion[r, t].sum()
                for a in range(k):
                    confusion[r, t, a] /= total
                    logs[r, t, a] = np.log(confusion[r, t, a])
                    bound += (smoothing + (smoothing if a == t else 0.0)) * logs[r, t, a]
            for g in range(groups):
                if member[r, g] > 0.0:
                    bound += member[r, g] * (np.log(share[g]) - np.log(member[r, g]))
        for g in range(groups):
            bound += smoothing * np.log(share[g])
        for s in range(many + 1):
            bound += state_counts[s] * np.log(prior[s])
            chance[:, s] = np.log(prior[s])
        votes[:] = 0.0
        for c in range(n):
            chance[item[c], many] += np.log(open_answers[answer[c]])
            for g in range(groups):
                for t in range(k):
                    votes[item[c], g, t] += member[rater[c], g] * logs[rater[c], t, answer[c]]
        for i in range(items):
            for s in range(many):
                for g in range(groups):
                    chance[i, s] += votes[i, g, states[s, g]]
        truth[:] = 0.0
        for i in range(items):
            top, total = chance[i].max(), 0.0
            for s in range(many + 1):
                state_chance[i, s] = np.exp(chance[i, s] - top)
                total += state_chance[i, s]
            for s in range(many + 1):
                state_chance[i, s] /= total
            for s in range(many):
                for g in range(groups):
                    truth[g, i, states[s, g]] += state_chance[i, s]
            if rated[i]:
                bound += top + np.log(total)
        path[used] = bound
        used += 1
        if groups > 1:
            for r in range(raters):
                for g in range(groups):
                    fits[r, g] = np.log(share[g])
            for c in range(n):
                for g in range(groups):
                    for t in range(k):
                        fits[rater[c], g] += truth[g, item[c], t] * logs[rater[c], t, answer[c]]
            for r in range(raters):
                top, total = fits[r].max(), 0.0
                for g in range(groups):
                    member[r, g] = np.exp(fits[r, g] - top)
                    total += member[r, g]
                member[r] /= total
        if used >= most or (used > 1 and path[used - 1] - path[used - 2] < tolerance):
            return path[:used].copy()


def _hidden_scores(cells: _Cells, groups: int, fold: Ints, folds: int, seed: int) -> Floats:
    """The log chance of each item's ratings by a fit that has not seen the item."""
    scores = np.zeros(cells.items)
    states = _states(len(cells.categories), groups)
    for number in range(folds):
        hidden = fold[cells.item] == number
        fit = _fit(cells.at(~hidden), groups, np.random.default_rng([seed, groups, number]), STARTS)
        item, rater, answer = cells.item[hidden], cells.rater[hidden], cells.answer[hidden]
        by_truth = fit.confusion[rater, :, answer]  # ratings x truths
        of_state = np.zeros((len(item), len(states) + 1))
        for g in range(groups):
            of_state[:, :-1] += fit.member[rater, g, None] * by_truth[:, states[:, g]]
        of_state[:, -1] = fit.open_answers[answer]
        chance = np.log(fit.prior) + np.zeros((cells.items, 1))
        np.add.at(chance, item, np.log(of_state))
        of_fold = fold == number
        scores[of_fold] = np.logaddexp.reduce(chance[of_fold], axis=1)
    return scores


def _states(categories: int, groups: int) -> Ints:
    """All combinations of what groups may want: states x groups."""
    return np.array(list(product(range(categories), repeat=groups)), np.int64).reshape(-1, groups)


def _rater_axes(cells: _Cells, groups: int) -> Floats | None:
    """Raters as points: near each other where they leave what everybody says to the same side."""
    if cells.items * cells.raters > DENSE or not len(cells.item):
        return None
    k = len(cells.categories)
    counts = np.bincount(cells.item * k + cells.answer, minlength=cells.items * k).reshape(cells.items, k)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    together = np.zeros((cells.raters, cells.raters))
    apart = np.zeros((cells.items, cells.raters))
    for t in range(k):
        apart[:] = 0.0
        apart[cells.item, cells.rater] = (cells.answer == t) - share[cells.item, t]
        together += apart.T @ apart
    scale = np.sqrt(np.maximum(np.diagonal(together), 1e-12))
    together /= scale[:, None] * scale
    np.fill_diagonal(together, 0.0)
    values, vectors = np.linalg.eigh(together)
    top = np.argsort(-values)[:groups]
    return np.asarray(vectors[:, top] * np.sqrt(np.maximum(values[top], 1e-9)), np.float64)


def _partition(places: Floats, groups: int, rng: np.random.Generator) -> Ints:
    """k-means, from raters drawn as centres one far from the other."""
    centres = places[rng.integers(len(places))][None]
    while len(centres) < groups:
        far = np.square(places[:, None] - centres).sum(axis=2).min(axis=1)
        chance = far / far.sum() if far.sum() > 0.0 else np.full(len(places), 1.0 / len(places))
        centres = np.concatenate([centres, places[rng.choice(len(places), p=chance)][None]])
    nearest = np.zeros(len(places), np.int64)
    for _ in range(20):
        nearest = np.square(places[:, None] - centres).sum(axis=2).argmin(axis=1)
        for g in range(groups):
            if (nearest == g).any():
                centres[g] = places[nearest == g].mean(axis=0)
    return nearest
