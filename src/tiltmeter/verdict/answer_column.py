"""The trial of a column that gold took by itself: whether the run's first labels allow that it holds right answers.

After 64 labelled completions gold must have differed inside prompts, and the reward must not contradict it: of the
prompts inside which both differ, too many may not have the answers that gold calls wrong paid more. By chance each sign
is as likely as the other, so the count is binomial, and the test is exact. No policy hits
a wrong column in most of its answers, so where gold is above 0.5 it is the reward that is wrong. Below, a reward that
prefers wrong answers from the first step leaves the column refused: these labels do not tell which of them is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

from tiltmeter.rundir.payloads import ColumnTrial

#: In the identity of a gold source that took its column by itself.
ON_TRIAL = ", on trial"
LEAST_LABELS = 64
LEAST_SIGNS = 7  # prompts: seven of seven against it are a chance of 1 in 128
ALPHA = 0.01  # that a column which the reward knows nothing about is refused
LEAST_DIFFERENT = (2, 1 / 6)  # prompts inside which gold differs, and their share, where signs are few
OFTEN = 0.5  # mean gold of prompts
ROUNDING = 1e-9

OPEN, TAKEN, REFUSED = "open", "taken", "refused"


def follow_trial(
    before: ColumnTrial | None, source: str, labels: int, readings: Mapping[str, Sequence[Any]]
) -> ColumnTrial:
    """The trial after a step's labels. `readings`: by name, their values as the journal packs them.

    >>> step = {"gold.slope": [-0.5, 8, None, [-0.5] * 8], "gold.prompts": [0.5, 8, None, [0.5] * 8]}
    >>> trial = follow_trial(None, "the dataset's answers in 'answer', on trial", 64, step)
    >>> trial.state, trial.why[:76]
    ('refused', "found 'answer', did not take it because the reward contradicts it: in 8 of 8")
    """
    if before is None or before.source != source:
        before = ColumnTrial(source=source)
    if before.state != OPEN:
        return before
    signs = [u for u in _values(readings, "gold.slope") if abs(u) > ROUNDING]
    means = _values(readings, "gold.prompts")
    different = max(sum(ROUNDING < mean < 1.0 - ROUNDING for mean in means), len(signs))
    trial = ColumnTrial(
        source=source,
        labels=before.labels + labels,
        prompts=before.prompts + max(len(means), len(_values(readings, "gold.slope"))),
        different=before.different + different,
        agree=before.agree + sum(u > 0 for u in signs),
        against=before.against + sum(u < 0 for u in signs),
        worth=before.worth + sum(means),
    )
    return _decide(trial)


def _values(readings: Mapping[str, Sequence[Any]], name: str) -> list[float]:
    packed = readings.get(name, ())
    return list(packed[3]) if len(packed) > 3 and packed[3] else []


def _decide(trial: ColumnTrial) -> ColumnTrial:
    signs, (least, share) = trial.agree + trial.against, LEAST_DIFFERENT
    if trial.labels < LEAST_LABELS:
        return trial
    if signs >= LEAST_SIGNS:
        is_often_right = trial.worth > OFTEN * trial.prompts
        if chance_of_so_few(trial.agree, signs) <= ALPHA and not is_often_right:
            return _with(trial, REFUSED, _contradiction(trial, signs))
        return _with(trial, TAKEN)
    if trial.different >= max(least, share * trial.prompts) and trial.agree >= trial.against:
        return _with(trial, TAKEN)
    return trial


def _with(trial: ColumnTrial, state: str, why: str = "") -> ColumnTrial:
    values = {name: getattr(trial, name) for name in trial.__struct_fields__}
    return ColumnTrial(**{**values, "state": state, "why": why})


def chance_of_so_few(successes: int, trials: int) -> float:
    """The chance of at most so many heads of a fair coin.

    >>> chance_of_so_few(0, 7), chance_of_so_few(7, 7)
    (0.0078125, 1.0)
    """
    return sum(comb(trials, k) for k in range(successes + 1)) / 2.0**trials


def _contradiction(trial: ColumnTrial, signs: int) -> str:
    what, how = _words(trial.source)
    return (
        f"found {what}, did not take it because the reward contradicts it: in {trial.against} of {signs} prompts it "
        f"pays more for answers that are wrong by it; to take it: {how}"
    )


def trial_text(trial: ColumnTrial) -> str:
    """What is not decided yet, in a clause; empty if it is, or too few labels came."""
    if trial.state != OPEN or trial.labels < LEAST_LABELS:
        return ""
    what, how = _words(trial.source)
    return (
        f"{what} is not taken as gold yet: by {trial.labels} labels it differs inside {trial.different} of "
        f"{trial.prompts} prompts, in {trial.against} of them against the reward; to take it: {how}"
    )


def _words(source: str) -> tuple[str, str]:
    """What is on trial, and how it is taken, by the identity of its source."""
    column = source.partition("answers in '")[2].partition("'")[0]
    return (
        (repr(column), f"gold='answers:{column}'") if column else ("what rows hold", "gold='tests' or 'answers:COLUMN'")
    )
