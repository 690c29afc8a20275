"""Check: whether labels have the same biases for every kind of prompt."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter.stats.word_hashes import Texts
from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.checks.copies import example
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.themes import Themes, themes

Floats = NDArray[np.float64]

NAME = "balance"
MOST = 12  # kinds of prompts
FEW = 60  # distinct prompts needed for kinds; the number of kinds grows with the square root of their number
FEWEST = 20  # decided comparisons of a kind that is tested
MATTERS = 0.1  # difference of shares from which a kind is named
LARGE = 0.25  # difference that must be ruled out for every kind before labels are called even

EVEN = "Labels pull much the same way for every kind of prompt."
UNSURE = "No kind of prompt differs beyond doubt, but some have too few labels to rule out a large difference."


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Per kind of prompt: how often the longer answer won, and the first one where the order is known.

    A kind is named when its share differs from that of all the others beyond doubt (score test with correction for
    continuity, wider where comparisons share a prompt, divided by the number of tests) and by a tenth at least.
    """
    if not (any(pairs.first) or any(pairs.second)):
        return Check(NAME, "cannot tell", "There are no texts, so kinds of prompts cannot be told.")
    prompt_kinds = kinds(pairs, seed)
    longer, first = directions(pairs)
    sides = {"longer": longer} | ({"first": first} if pairs.order_known else {})
    rows = [_row(pairs, prompt_kinds, kind, sides) for kind in range(len(prompt_kinds.words))]
    tests = [
        (kind, side, *_share_difference(values, prompt_kinds.labels == kind, pairs))
        for side, values in sides.items()
        for kind in range(len(prompt_kinds.words))
        if _enough(values, prompt_kinds.labels == kind)
    ]
    facts = {
        "kinds": len(prompt_kinds.words),
        "tested": len(tests),
        "without_kind": int((prompt_kinds.labels < 0).sum()),
    }
    if not tests:
        sentence = (
            "Too few prompts to tell kinds of them apart."
            if len(prompt_kinds.words) < 2
            else "Too few labels per kind."
        )
        return Check(NAME, "cannot tell", sentence, facts=facts, rows=rows)
    level = alpha / len(tests)
    z = NormalDist().inv_cdf(1.0 - level / 2.0)
    off = [test for test in tests if abs(test[2]) > MATTERS and test[4] < level]
    _, side, gap, error, _ = max(off or tests, key=lambda test: abs(test[2]))
    even = all(abs(test[2]) + z * test[3] < LARGE for test in tests)
    for number, where, *_ in off:
        rows[number]["differs"] = where
    return Check(
        NAME,
        "found" if off else "clear" if even else "cannot tell",
        _sentence(off, rows) if off else EVEN if even else UNSURE,
        estimate=gap,
        low=gap - z * error,
        high=gap + z * error,
        unit=f"share of labels for the {side} answer, minus that of the other kinds",
        fix="Look at these prompts; balance them by themselves (--balanced does), or judge the kinds apart."
        if off
        else "",
        facts=facts,
        rows=rows,
        examples=[
            item for test in off[:3] for item in _examples(pairs, prompt_kinds, sides[test[1]], test[0], test[2])
        ],
    )


@shared()
def kinds(pairs: Comparisons, seed: int) -> Themes:
    """The kind of each comparison's prompt; equal prompts are of one kind."""
    prompt_numbers: dict[str, int] = {}
    number = np.array([prompt_numbers.setdefault(prompt, len(prompt_numbers)) for prompt in pairs.prompts], np.int64)
    count = min(MOST, round(math.sqrt(len(prompt_numbers) / 15.0)))
    if len(prompt_numbers) < FEW:
        return Themes(np.full(len(pairs), -1, np.int64), ())
    result = themes(Texts.of(list(prompt_numbers)), count, seed=seed)
    return Themes(result.labels[number], result.words)


def directions(pairs: Comparisons) -> tuple[Floats, Floats]:
    """Per comparison 1.0 where the longer answer won and 0.0 where the shorter did, and the same for the first;
    NaN where neither won or, for length, both are equally long."""
    gap = np.array([len(a) - len(b) for a, b in zip(pairs.first, pairs.second, strict=True)], np.float64)
    won = np.where(pairs.winner == 0.5, np.nan, pairs.winner)
    longer = np.where(gap > 0.0, won, np.where(gap < 0.0, 1.0 - won, np.nan))
    return longer, won


def _enough(values: Floats, here: NDArray[np.bool_]) -> bool:
    finite = np.isfinite(values)
    return bool((finite & here).sum() >= FEWEST and (finite & ~here).sum() >= FEWEST)


def _share_difference(values: Floats, here: NDArray[np.bool_], pairs: Comparisons) -> tuple[float, float, float]:
    """Share here minus share elsewhere, its standard error, and the chance of one as large if there were none."""
    finite = np.isfinite(values)
    inside, outside = values[finite & here], values[finite & ~here]
    n, m = len(inside), len(outside)
    whole = float(values[finite].mean())
    spread = whole * (1.0 - whole)
    gap = float(inside.mean() - outside.mean())
    if not spread:
        return gap, 0.0, 1.0
    prompt_numbers: dict[str, int] = {}
    prompt = [
        prompt_numbers.setdefault(pairs.prompts[at], len(prompt_numbers)) for at in np.flatnonzero(finite).tolist()
    ]
    crowd = max(1.0, float(np.square(np.bincount(prompt, values[finite] - whole)).sum()) / ((n + m) * spread))
    error = math.sqrt(crowd * spread * (1.0 / n + 1.0 / m))
    z = max(abs(gap) - 0.5 * (1.0 / n + 1.0 / m), 0.0) / error
    return gap, error, math.erfc(z / math.sqrt(2.0))


def _row(pairs: Comparisons, prompt_kinds: Themes, kind: int, sides: dict[str, Floats]) -> dict[str, object]:
    here = prompt_kinds.labels == kind
    rated = here & np.isfinite(pairs.winner)
    row: dict[str, object] = {"kind": ", ".join(prompt_kinds.words[kind]), "pairs": int(here.sum())}
    for side, values in sides.items():
        finite = values[here & np.isfinite(values)]
        row[f"{side}_chosen"] = float(finite.mean()) if len(finite) else None
        row[f"{side}_of"] = len(finite)
    row["ties"] = float((pairs.winner[rated] == 0.5).mean()) if rated.any() else None
    row["differs"] = None
    return row


def _sentence(off: list[tuple[int, str, float, float, float]], rows: list[dict[str, object]]) -> str:
    kind, side, gap, _, _ = max(off, key=lambda test: abs(test[2]))
    share = 100.0 * cast(float, rows[kind][f"{side}_chosen"])
    more = f"; {len(off) - 1} more" if len(off) > 1 else ""
    return (
        f"For prompts about {rows[kind]['kind']} the {side} answer won in {share:.0f} %, {abs(100 * gap):.0f} points "
        f"{'more' if gap > 0.0 else 'less'} than elsewhere{more}."
    )


def _examples(pairs: Comparisons, prompt_kinds: Themes, values: Floats, kind: int, gap: float) -> list[Example]:
    towards = np.flatnonzero((prompt_kinds.labels == kind) & (values == float(gap > 0.0)))
    return [example(pairs, at, "labels of this kind pull another way") for at in towards[:1].tolist()]
