"""What every reward owes whatever it pays for: the same text the same score, in any company, and no crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiltmeter.probe.pairs import Item
from tiltmeter.probe.target import Floats, Target

LEAST = 1e-3  # of the spread: padding in a batch moves a model's last digits, and that is no finding
TEXTS = 12  # answers on which this is tried
#: Texts that a policy writes sooner or later, and that break programs.
HOSTILE: tuple[tuple[str, str], ...] = (
    ("an empty text", ""),
    ("only spaces", "   \n"),
    ("a lone surrogate", "It is \ud800."),
    ("NUL and escape characters", "It is \x00\x1b[2J."),
    ("text written from right to left", "\u202eIt is so.\u202c"),
    ("an emoji of many parts", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466" * 8),
    ("100,000 characters", "very " * 20_000),
    ("unbalanced brackets", "(" * 3_000 + "[" * 3_000),
    ("half a template", "{{ completion }} %s {0} ${HOME}"),
)


@dataclass(frozen=True)
class Check:
    """Something a reward owes, and whether it keeps it; `kept` is None where it could not be tried."""

    name: str
    kept: bool | None
    told: str


def checks(target: Target, items: Sequence[Item], spread: float) -> list[Check]:
    """Determinism, order, neighbours, hostile texts."""
    few = list(items)[:TEXTS]
    prompts, texts, columns = [i.prompt for i in few], [i.right for i in few], [i.columns for i in few]
    once = target.fresh(prompts, texts, columns)
    again = target.fresh(prompts, texts, columns)
    back = target.fresh(prompts[::-1], texts[::-1], columns[::-1])[::-1]
    alone = np.concatenate([target.fresh([p], [t], [c]) for p, t, c in zip(prompts, texts, columns, strict=True)])
    noise = _apart(once, again, spread)
    found = [noise_check(noise)]
    for name, other, why in (
        ("order in the batch", back, "a text is scored by where it stands: no group of rollouts is compared fairly"),
        ("neighbours in the batch", alone, "a text is scored by its company: rewards of one step are not comparable"),
    ):
        apart = _apart(once, other, spread)
        if apart is None:
            found.append(Check(name, None, "no scores to compare"))
        elif apart <= max(LEAST, 2.0 * (noise or 0.0)):
            found.append(Check(name, True, "scores do not depend on it"))
        else:
            found.append(Check(name, False, f"scores differ by up to {apart:.2g} spreads; {why}"))
    return [*found, hostile(target, few[0] if few else Item("Hello?", "Hello."))]


def noise_check(noise: float | None) -> Check:
    if noise is None:
        return Check("the same score twice", None, "no scores to compare")
    if noise <= LEAST:
        return Check("the same score twice", True, "asked again, it answers the same")
    told = f"asked again, scores differ by up to {noise:.2g} spreads: effects below that are noise"
    return Check("the same score twice", False, told)


def hostile(target: Target, item: Item) -> Check:
    """Which hostile texts are answered with no number, and why; none of this counts as a fault of the other scores."""
    before = dict(target.faults)
    bad: list[str] = []
    for name, text in HOSTILE:
        known = dict(target.faults)
        if not np.isfinite(target.fresh([item.prompt], [text], [item.columns])).all():
            reason = next((why for why, count in target.faults.items() if count > known.get(why, 0)), "no number")
            bad.append(f"{name}: {reason}")
    target.faults.clear()
    target.faults.update(before)
    broke = [line for line in bad if ": infrastructure" in line]
    if len(broke) == len(bad) and bad:
        return Check("hostile texts", None, "; ".join(broke[:2]))
    return Check("hostile texts", not bad, "; ".join(bad) or f"{len(HOSTILE)} of them are scored")


def _apart(first: Floats, second: Floats, spread: float) -> float | None:
    """Largest difference in spreads."""
    gap = np.abs(first - second)
    if not np.isfinite(gap).any() or not spread > 0.0:
        return None
    return float(np.nanmax(gap)) / spread
