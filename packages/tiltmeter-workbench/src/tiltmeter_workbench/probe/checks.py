"""Checks of a reward: deterministic, independent of batch order and neighbours, and no crash on hostile texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.probe.reward_target import Floats, Target

LEAST = 1e-3  # of the standard deviation: padding in a batch changes a model's last digits, which is not a finding
NOISE = "the same score twice"
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
class RewardCheck:
    """One property that a reward must have; `passed` is None where it could not be tested."""

    name: str
    passed: bool | None
    message: str


def run_checks(target: Target, items: Sequence[ProbeItem], spread: float) -> list[RewardCheck]:
    """Determinism, order, neighbours, hostile texts."""
    few = list(items)[:TEXTS]
    prompts, texts, columns = [i.prompt for i in few], [i.right for i in few], [i.columns for i in few]
    once = target.fresh(prompts, texts, columns)
    again = target.fresh(prompts, texts, columns)
    back = target.fresh(prompts[::-1], texts[::-1], columns[::-1])[::-1]
    alone = np.concatenate([target.fresh([p], [t], [c]) for p, t, c in zip(prompts, texts, columns, strict=True)])
    noise = _largest_gap(once, again, spread)
    results = [noise_check(noise)]
    for name, other, why in (
        ("order in the batch", back, "the position changes a score: rollouts of a group are not compared fairly"),
        ("neighbours in the batch", alone, "other texts change a score: rewards of a step are not comparable"),
    ):
        apart = _largest_gap(once, other, spread)
        if apart is None:
            results.append(RewardCheck(name, None, "no scores to compare"))
        elif apart <= max(LEAST, 2.0 * (noise or 0.0)):
            results.append(RewardCheck(name, True, "scores do not depend on it"))
        else:
            results.append(RewardCheck(name, False, f"scores differ by up to {apart:.2g} standard deviations; {why}"))
    return [*results, check_hostile_texts(target, few[0] if few else ProbeItem("Hello?", "Hello."))]


def noise_check(noise: float | None) -> RewardCheck:
    if noise is None:
        return RewardCheck(NOISE, None, "no scores to compare")
    if noise <= LEAST:
        return RewardCheck(NOISE, True, "asked again, it answers the same")
    message = f"asked again, scores differ by up to {noise:.2g} standard deviations: effects below that are noise"
    return RewardCheck(NOISE, False, message)


def check_hostile_texts(target: Target, item: ProbeItem) -> RewardCheck:
    """Which hostile texts are answered with no number, and why; none of this counts as a fault of the other scores."""
    before = dict(target.faults)
    bad: list[str] = []
    for name, text in HOSTILE:
        faults_before = dict(target.faults)
        if not np.isfinite(target.fresh([item.prompt], [text], [item.columns])).all():
            reason = next(
                (why for why, count in target.faults.items() if count > faults_before.get(why, 0)), "no number"
            )
            bad.append(f"{name}: {reason}")
    target.faults.clear()
    target.faults.update(before)
    broke = [line for line in bad if ": infrastructure" in line]
    if len(broke) == len(bad) and bad:
        return RewardCheck("hostile texts", None, "; ".join(broke[:2]))
    return RewardCheck("hostile texts", not bad, "; ".join(bad) or f"{len(HOSTILE)} of them are scored")


def _largest_gap(first: Floats, second: Floats, spread: float) -> float | None:
    """The largest difference, in standard deviations of the scores."""
    gap = np.abs(first - second)
    if not np.isfinite(gap).any() or not spread > 0.0:
        return None
    return float(np.nanmax(gap)) / spread
