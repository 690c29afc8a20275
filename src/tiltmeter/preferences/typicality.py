"""Whether the more familiar wording wins: preference for what a base model would have written anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter.preferences.decided import (
    EXAMPLES,
    LOG_ODDS,
    Decided,
    Floats,
    judged,
    lengths,
    reach,
    rounded,
    too_few,
)
from tiltmeter.preferences.finding import Example, Finding
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.stats.logistic import Logistic, fit_logistic

#: Prompts and answers to the log-likelihood of each answer given its prompt, a sum over its tokens; NaN: not known.
Likelihood = Callable[[Sequence[str], Sequence[str]], Floats]

UNIT = "log-odds of winning for each nat of log-likelihood"
BETAS = (0.01, 0.05, 0.1, 0.5)  # penalties in common use, for what alpha does to the optimum
MATCHED = 50  # comparisons of equally rated answers from which a fit of their own is worth having


def check(pairs: Comparisons, *, alpha: float, seed: int, likelihood: Likelihood | None = None) -> Finding:
    """logit P(first wins) = a (log π(first) - log π(second)) + length, with π a base model, and rated quality and order
    where they are known.

    A policy trained on such labels with penalty β goes to π* ∝ π_ref^(1 + a/β) e^(r/β): what was likely becomes
    likelier by itself, before any reward for being right (arXiv 2510.01171). Found: the interval leaves out 0, and one
    standard deviation of log-likelihood, at equal length, is worth 55 wins in 100. Length is held equal by the number
    of words and its logarithm, since every further token lowers a log-likelihood. Good writing is also likelier: only
    with ratings, or among equally rated answers (`matched`), does this tell taste from habit.
    """
    if likelihood is None:
        said = "Typicality was not looked at: it needs a base model's log-likelihoods (`--base FOLDER`)."
        return Finding("typicality", "not asked", said, unit=UNIT)
    some = Decided.of(pairs)
    if why := too_few(some):
        return Finding("typicality", "cannot tell", f"Typicality: {why}", unit=UNIT, facts=some.counts)
    gap = _gap(some, likelihood)
    known = np.flatnonzero(np.isfinite(gap))
    lost = len(some) - len(known)
    if lost:
        some, gap = Decided.of(some.pairs.at(known)), gap[known]
    if why := too_few(some):
        return Finding("typicality", "cannot tell", f"Typicality: with a likelihood, {why}", unit=UNIT)
    fit = _fit(some, gap, quality=True)
    best, near = reach(fit, 0, alpha), reach(fit, 0, 0.1)
    spread = _spread(some, gap)
    state = judged(*best, (near[1], near[2]), 0.0, LOG_ODDS / spread if spread > 0.0 else np.inf)
    facts = {
        **some.counts,
        "without_likelihood": lost,
        "spread": round(spread, 4),
        "per_standard_deviation": rounded([end * spread for end in best]),
        "matters": round(LOG_ODDS / spread, 6) if spread > 0.0 else None,
        "separated": fit.separated,
        **_further(some, gap, alpha),
    }
    sure = state == "found"
    return Finding(
        "typicality",
        state,
        _sentence(state, best, spread, some),
        *best,
        UNIT,
        FIX if sure else "",
        facts,
        _sharpening(best),
        _examples(some, gap, best[0]) if sure else (),
    )


FIX = (
    "Compare answers of equal correctness in both a plain and an unusual wording, prefer a larger β, or take a · log "
    "π_ref off the reward that is learnt from these labels."
)


def _gap(some: Decided, likelihood: Likelihood) -> Floats:
    """First minus second, from one call: a model's function then makes its batches of equal lengths."""
    prompts, answers = list(some.pairs.prompts), [*some.pairs.first, *some.pairs.second]
    values = np.asarray(likelihood([*prompts, *prompts], answers), np.float64)
    if values.shape != (len(answers),):
        raise AttachError(
            f"the likelihood function gave {values.shape} values for {len(answers)} answers; give one each"
        )
    with np.errstate(invalid="ignore"):
        gap = values[: len(some)] - values[len(some) :]
    return np.where(np.isfinite(gap), gap, np.nan)


def _words(some: Decided) -> Floats:
    return np.asarray(lengths(tuple(some.pairs.first)) - lengths(tuple(some.pairs.second)), np.float64)


def _fit(some: Decided, gap: Floats, *, quality: bool) -> Logistic:
    words = _words(some)
    columns = [gap, words] if words.any() else [gap]
    return fit_logistic(some.table(*columns, quality=quality), some.won, clusters=some.prompt)


def _spread(some: Decided, gap: Floats) -> float:
    """Root mean square of the difference in log-likelihood that length does not explain."""
    words = np.column_stack((_words(some), some.doublings))
    rest = gap - words @ np.linalg.lstsq(words, gap, rcond=None)[0]
    return float(np.sqrt(np.square(rest).mean()))


def _further(some: Decided, gap: Floats, alpha: float) -> dict[str, Any]:
    """The same without ratings, and for equally rated answers alone."""
    found: dict[str, Any] = {"matched": None, "raw": rounded(reach(_fit(some, gap, quality=False), 0, alpha))}
    if some.better is not None:
        equal = np.flatnonzero(some.better == 0.0)
        if len(equal) >= MATCHED:
            part = Decided.of(some.pairs.at(equal))
            found["matched"] = rounded(reach(_fit(part, gap[equal], quality=False), 0, alpha))
            found["matched_comparisons"] = len(equal)
    return found


def _sharpening(best: tuple[float, float, float]) -> list[dict[str, Any]]:
    """The power of the reference policy in the optimum, for common penalties."""
    return [
        {
            "beta": beta,
            **dict(zip(("power", "low", "high"), rounded([1.0 + end / beta for end in best], 3), strict=True)),
        }
        for beta in BETAS
    ]


def _sentence(state: str, best: tuple[float, float, float], spread: float, some: Decided) -> str:
    power = 1.0 + best[0] / 0.1
    held = some.held
    if state == "found":
        side = "likelier" if best[0] > 0.0 else "unlikelier"
        return (
            f"The {side} wording wins ({best[0]:+.3g} log-odds a nat, {best[0] * spread:+.2f} a standard deviation, "
            f"{held} held equal): at β = 0.1 the optimum has π_ref to the power {power:.2f}."
        )
    if state == "clear":
        return f"Likelier wording hardly wins: {best[0]:+.3g} log-odds a nat, {held} held equal."
    return f"Whether likelier wording wins cannot be told from {len(some)} comparisons ({best[0]:+.3g} log-odds a nat)."


def _examples(some: Decided, gap: Floats, estimate: float) -> list[Example]:
    gain = gap * np.where(some.won == 1.0, 1.0, -1.0) * np.sign(estimate)
    more = "likelier" if estimate > 0.0 else "unlikelier"
    return [
        some.example(item, f"the preferred answer is {abs(gap[item]):.1f} nats {more}")
        for item in np.argsort(-gain, kind="stable")[:EXAMPLES].tolist()
    ]
