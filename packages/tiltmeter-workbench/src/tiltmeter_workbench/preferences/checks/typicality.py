"""Check: typicality bias, whether the answer that a base model finds likelier wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiltmeter.data.memo import shared
from tiltmeter.errors import AttachError
from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.checks.decided_pairs import (
    EXAMPLES,
    LOG_ODDS,
    DecidedPairs,
    Floats,
    coefficient_interval,
    interval_state,
    round_values,
    too_few,
    word_counts,
)
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import Logistic, fit_logistic

#: Prompts and answers to the log-likelihood of each answer given its prompt, a sum over its tokens; NaN: not known.
Likelihood = Callable[[Sequence[str], Sequence[str]], Floats]

UNIT = "log-odds of winning for each nat of log-likelihood"
BETAS = (0.01, 0.05, 0.1, 0.5)  # penalties in common use, for what alpha does to the optimum
MATCHED = 50  # comparisons of equally rated answers from which a fit of their own is worth having


def check(pairs: Comparisons, *, alpha: float, seed: int, likelihood: Likelihood | None = None) -> Check:
    """logit P(first wins) = a (log π(first) - log π(second)) + length, with π a base model, and rated quality and order
    where they are known.

    A policy trained on such labels with penalty β goes to π* ∝ π_ref^(1 + a/β) e^(r/β): what was likely becomes
    likelier by itself, before any reward for being right (arXiv 2510.01171). Found: the interval leaves out 0, and one
    standard deviation of log-likelihood, at equal length, is worth 55 wins in 100. Length is held equal by the number
    of words and its logarithm, since every further token lowers a log-likelihood. Good writing is also likelier: only
    with ratings, or among equally rated answers (`matched`), can the two be separated.
    """
    if likelihood is None:
        sentence = "Typicality was not looked at: it needs a base model's log-likelihoods (`--base FOLDER`)."
        return Check("typicality", "not asked", sentence, unit=UNIT)
    decided = DecidedPairs.of(pairs)
    if why := too_few(decided):
        return Check("typicality", "cannot tell", f"Typicality: {why}", unit=UNIT, facts=decided.counts)
    gap = likelihood_gap(pairs, likelihood)[np.isin(pairs.winner, (0.0, 1.0))]
    finite = np.flatnonzero(np.isfinite(gap))
    lost = len(decided) - len(finite)
    if lost:
        decided, gap = DecidedPairs.of(decided.pairs.at(finite)), gap[finite]
    if why := too_few(decided):
        return Check("typicality", "cannot tell", f"Typicality: with a likelihood, {why}", unit=UNIT)
    fit = _fit(decided, gap, quality=True)
    best, near = coefficient_interval(fit, 0, alpha), coefficient_interval(fit, 0, 0.1)
    spread = _spread(decided, gap)
    state = interval_state(*best, (near[1], near[2]), 0.0, LOG_ODDS / spread if spread > 0.0 else np.inf)
    facts = {
        **decided.counts,
        "without_likelihood": lost,
        "spread": round(spread, 4),
        "per_standard_deviation": round_values([end * spread for end in best]),
        "matters": round(LOG_ODDS / spread, 6) if spread > 0.0 else None,
        "separated": fit.separated,
        **_other_fits(decided, gap, alpha),
    }
    sure = state == "found"
    return Check(
        "typicality",
        state,
        _sentence(state, best, spread, decided),
        *best,
        UNIT,
        FIX if sure else "",
        facts,
        _sharpening(best),
        _examples(decided, gap, best[0]) if sure else (),
    )


FIX = (
    "Train on a subset in which the likelier answer wins half of the time (`--balanced` with `--base`), compare "
    "answers of equal correctness in a plain and an unusual wording, or take a · log π_ref off the reward that is "
    "learnt."
)


@shared()  # a balanced subset needs the same, and a model takes its time
def likelihood_gap(pairs: Comparisons, likelihood: Likelihood) -> Floats:
    """First minus second where there is a winner, else NaN; in one call, for batches of equal lengths."""
    items = np.flatnonzero(np.isin(pairs.winner, (0.0, 1.0)))
    subset = pairs.at(items)
    prompts, answers = list(subset.prompts), [*subset.first, *subset.second]
    values = np.asarray(likelihood([*prompts, *prompts], answers), np.float64)
    if values.shape != (len(answers),):
        raise AttachError(
            f"the likelihood function gave {values.shape} values for {len(answers)} answers; give one each"
        )
    gap = np.full(len(pairs), np.nan)
    with np.errstate(invalid="ignore"):
        gap[items] = values[: len(items)] - values[len(items) :]
    return np.where(np.isfinite(gap), gap, np.nan)


def likelier_at_equal_length(pairs: Comparisons, likelihood: Likelihood) -> Floats:
    """By how many nats the first answer is likelier than length explains; NaN without a winner or a likelihood."""
    gap = likelihood_gap(pairs, likelihood).copy()  # that one is shared
    there = np.flatnonzero(np.isfinite(gap))
    if len(there):
        gap[there] = _beyond_length(DecidedPairs.of(pairs.at(there)), gap[there])
    return gap


def _words(decided: DecidedPairs) -> Floats:
    return np.asarray(word_counts(tuple(decided.pairs.first)) - word_counts(tuple(decided.pairs.second)), np.float64)


def _fit(decided: DecidedPairs, gap: Floats, *, quality: bool) -> Logistic:
    words = _words(decided)
    columns = [gap, words] if words.any() else [gap]
    return fit_logistic(decided.table(*columns, quality=quality), decided.won, clusters=decided.prompt)


def _beyond_length(decided: DecidedPairs, gap: Floats) -> Floats:
    """The difference in log-likelihood that length does not explain."""
    words = np.column_stack((_words(decided), decided.doublings))
    return np.asarray(gap - words @ np.linalg.lstsq(words, gap, rcond=None)[0])


def _spread(decided: DecidedPairs, gap: Floats) -> float:
    return float(np.sqrt(np.square(_beyond_length(decided, gap)).mean()))


def _other_fits(decided: DecidedPairs, gap: Floats, alpha: float) -> dict[str, Any]:
    """The same without ratings, and for equally rated answers alone."""
    facts: dict[str, Any] = {
        "matched": None,
        "raw": round_values(coefficient_interval(_fit(decided, gap, quality=False), 0, alpha)),
    }
    if decided.better is not None:
        equal = np.flatnonzero(decided.better == 0.0)
        if len(equal) >= MATCHED:
            part = DecidedPairs.of(decided.pairs.at(equal))
            facts["matched"] = round_values(coefficient_interval(_fit(part, gap[equal], quality=False), 0, alpha))
            facts["matched_comparisons"] = len(equal)
    return facts


def _sharpening(best: tuple[float, float, float]) -> list[dict[str, Any]]:
    """The power of the reference policy in the optimum, for common penalties."""
    return [
        {
            "beta": beta,
            **dict(zip(("power", "low", "high"), round_values([1.0 + end / beta for end in best], 3), strict=True)),
        }
        for beta in BETAS
    ]


def _sentence(state: str, best: tuple[float, float, float], spread: float, decided: DecidedPairs) -> str:
    power = 1.0 + best[0] / 0.1
    held_equal = decided.held_equal
    if state == "found":
        side = "likelier" if best[0] > 0.0 else "unlikelier"
        return (
            f"The {side} wording wins ({best[0]:+.3g} log-odds a nat, {best[0] * spread:+.2f} a standard deviation, "
            f"{held_equal} held equal): at β = 0.1 the optimum has π_ref to the power {power:.2f}."
        )
    if state == "clear":
        return f"Likelier wording hardly wins: {best[0]:+.3g} log-odds a nat, {held_equal} held equal."
    return (
        f"Whether likelier wording wins cannot be told from {len(decided)} comparisons ({best[0]:+.3g} log-odds a nat)."
    )


def _examples(decided: DecidedPairs, gap: Floats, estimate: float) -> list[Example]:
    gain = gap * np.where(decided.won == 1.0, 1.0, -1.0) * np.sign(estimate)
    more = "likelier" if estimate > 0.0 else "unlikelier"
    return [
        decided.example(item, f"the preferred answer is {abs(gap[item]):.1f} nats {more}")
        for item in np.argsort(-gain, kind="stable")[:EXAMPLES].tolist()
    ]
