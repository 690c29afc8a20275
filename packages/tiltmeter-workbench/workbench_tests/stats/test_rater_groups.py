"""Groups of raters: planted ones are found again, one group stays one, and the bound that is raised never falls."""

from __future__ import annotations

import numpy as np
import pytest

from tiltmeter_workbench.stats.dawid_skene import dawid_skene
from tiltmeter_workbench.stats.rater_groups import adjusted_rand_index, choose_groups, fit_groups


def planted(
    seed: int, sizes: tuple[int, ...], *, items: int = 120, differ: float = 0.4, right: float = 0.9, each: int = 8
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratings, the group of each rater, and the items on which the first two groups differ."""
    rng = np.random.default_rng(seed)
    ours = rng.integers(0, 2, items)
    truths = [ours, *(np.where(rng.random(items) < differ, 1 - ours, ours) for _ in sizes[1:])]
    group = np.repeat(np.arange(len(sizes)), sizes)
    votes = np.stack([np.where(rng.random(items) < right, truths[g], 1 - truths[g]) for g in group], 1).astype(float)
    shown = rng.random(votes.shape).argsort(axis=1) < each
    return np.where(shown, votes, np.nan), group, truths[0] != truths[-1]


def test_two_groups_are_found_with_who_is_in_them_and_where_they_differ() -> None:
    ratings, group, differ = planted(0, (7, 5), items=100)
    choice = choose_groups(ratings, most=3)
    assert choice.count == 2
    assert adjusted_rand_index(group, choice.fit.group) == 1.0
    assert ((choice.fit.differ > 0.5) == differ).mean() > 0.85
    assert choice.fit.member.sum(axis=1) == pytest.approx(1.0)
    assert np.nansum(choice.fit.truth, axis=2) == pytest.approx(1.0)


def test_careless_raters_and_hard_items_are_no_group() -> None:
    ratings, _, _ = planted(1, (12,))
    rng = np.random.default_rng(5)
    ratings[:, :4] = np.where(np.isfinite(ratings[:, :4]), rng.integers(0, 2, (120, 4)), np.nan)
    hard = rng.random(120) < 0.3
    ratings[hard] = np.where(np.isfinite(ratings[hard]), rng.integers(0, 2, (int(hard.sum()), 12)), np.nan)
    assert choose_groups(ratings, most=2).count == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_the_bound_never_falls_and_more_groups_fit_no_worse(groups: int) -> None:
    ratings, _, _ = planted(2, (6, 4), items=80)
    fit = fit_groups(ratings, groups)
    assert (np.diff(fit.path) > -1e-9 * abs(fit.bound)).all()
    assert fit.bound > fit_groups(ratings, 1).bound - 8.0  # the priors of more groups cost a little


def test_one_group_is_dawid_and_skene_where_no_item_is_open() -> None:
    ratings, _, _ = planted(3, (8,), items=100)
    ours, theirs = fit_groups(ratings, 1), dawid_skene(ratings)
    assert (ours.truth[0].argmax(axis=1) == theirs.posterior.argmax(axis=1)).all()
    assert np.abs(ours.confusion - theirs.confusion).max() < 0.05


def test_nothing_to_fit_is_one_group() -> None:
    for ratings in (np.full((4, 3), np.nan), np.ones((40, 5)), np.zeros((0, 3)), np.array([[0.0, 1.0]])):
        choice = choose_groups(ratings)
        assert choice.count == 1
        assert choice.gains == ()


def test_items_without_ratings_have_no_truth() -> None:
    ratings, _, _ = planted(4, (5, 5), items=60, each=10)
    ratings[7] = np.nan
    fit = fit_groups(ratings, 2)
    assert np.isnan(fit.truth[:, 7]).all()
    assert np.isnan(fit.differ[7])
    assert np.isfinite(np.delete(fit.differ, 7)).all()


def test_partitions_agree_by_chance_about_zero() -> None:
    rng = np.random.default_rng(0)
    values = [adjusted_rand_index(rng.integers(0, 3, 30), rng.integers(0, 3, 30)) for _ in range(200)]
    assert abs(float(np.mean(values))) < 0.03
