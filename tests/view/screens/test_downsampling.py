"""What a plot of a long series must still show, whatever the series looks like."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import size

from tiltmeter.data.records import Floats, Ints
from tiltmeter.view.screens.series import MOST_GAPS, WHOLE, gap_steps, json_numbers, select_steps, values_at

Line = tuple[Ints, Floats]


@st.composite
def lines(draw: st.DrawFn) -> list[Line]:
    """Up to four noisy lines of up to some thousand steps, each with its own spikes, holes and broken values."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(0, 4000))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        steps, values = np.arange(length), rng.normal(0.0, 1.0, length)
        for _ in range(draw(st.integers(0, 3))):
            if length:
                values[rng.integers(length)] = rng.choice([1e6, -1e6, 1e-12])
        for bad in draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf]), max_size=3)):
            if length:
                values[rng.integers(length)] = bad
        kept = np.ones(length, bool)
        for _ in range(draw(st.integers(0, 3))):
            start = int(rng.integers(max(length, 1)))
            kept[start : start + int(rng.integers(1, 300))] = False
        made.append((steps[kept] + draw(st.integers(0, 5)), values[kept]))
    return made


@settings(max_examples=size(50, 150), deadline=None)
@given(lines(), st.lists(st.integers(0, 4000), max_size=10), st.integers(10, 300))
def test_extremes_ends_forced_steps_gaps_and_broken_values_survive(
    given_lines: list[Line], wanted: list[int], points: int
) -> None:
    everywhere = set(np.concatenate([steps for steps, _ in given_lines]).tolist())
    forced = np.array(sorted(step for step in wanted if step in everywhere), np.int64)
    found = select_steps(given_lines, forced, points)
    shown = set(found.steps.tolist())
    assert np.all(np.diff(found.steps) > 0)
    assert found.of == len(everywhere)
    assert found.shown == len(shown & everywhere)
    assert set(forced.tolist()) <= shown
    if everywhere:
        assert {min(everywhere), max(everywhere)} <= shown
    if len(everywhere) <= WHOLE:
        assert everywhere <= shown
    for steps, values in given_lines:
        told = values_at(steps, values, found.steps)
        finite = np.isfinite(values)
        assert set(steps[~finite].tolist()) <= shown
        if len(steps):
            assert {int(steps[0]), int(steps[-1])} <= shown
        if finite.any():
            assert np.nanmin(told[np.isfinite(told)]) == values[finite].min()
            assert np.nanmax(told[np.isfinite(told)]) == values[finite].max()
        _gaps_are_open(steps[finite], found.steps, told)


def _gaps_are_open(known: Ints, shown: Ints, told: Floats) -> None:
    """Between the last value before a silence and the first after it stands something that is no value."""
    if len(known) < 3:
        return
    wide = np.flatnonzero(np.diff(known) > 1.5 * np.median(np.diff(known)))
    assert len(wide) <= MOST_GAPS
    for before, after in zip(known[wide], known[wide + 1], strict=True):
        assert before in shown
        assert after in shown
        inside = told[(shown > before) & (shown < after)]
        assert len(inside)
        assert not np.isfinite(inside).any()


@settings(max_examples=size(30, 100), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 2000))
def test_of_more_gaps_than_can_be_shown_the_widest_are(seed: int, length: int) -> None:
    steps = np.cumsum(np.random.default_rng(seed).geometric(0.3, length))
    marks = gap_steps(steps, np.ones(length))
    assert len(marks) <= 3 * MOST_GAPS
    apart = np.diff(steps)
    if apart.max() > 1.5 * np.median(apart):
        assert int(steps[int(np.argmax(apart))]) in marks.tolist()


@settings(max_examples=size(100, 300), deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20), st.integers(3, 8))
def test_numbers_for_json_are_short_and_right(values: list[float], digits: int) -> None:
    for value, short in zip(values, json_numbers(np.array(values, np.float64), digits), strict=True):
        if not np.isfinite(value):
            assert short is None
        else:
            assert short is not None
            assert np.isfinite(short)
            assert abs(short - value) <= abs(value) * 10.0 ** (1 - digits) + 5e-324
            assert (
                abs(value) > 1.79e308 or len(repr(short).split("e")[0].strip("-").replace(".", "").strip("0")) <= digits
            )
