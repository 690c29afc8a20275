"""What the bound of the gold alarm rests on, and what a run shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from tiltmeter.detectors.level_stakes import LevelStakes
from tiltmeter.detectors.repeated_rows import SLOPE
from tiltmeter.detectors.slice_tests import SliceTests
from tiltmeter.stats.checkpoint_falls import CheckpointFallTest
from tiltmeter.stats.trap_payments import CHANCE
from tiltmeter.stats.wealth import BLOCKS, COMPARED, Wealth


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that the bound rests on, and whether this run shows that it holds; None: the run cannot tell."""

    about: str
    holds: bool | None
    text: str


def about_bets(bets: Mapping[tuple[str, bool], int], wealth: Wealth) -> list[Assumption]:
    """Of slopes and duels. `bets`: their number by table, and by whether something may move those of a step at once."""
    lines = []
    opinions, certain = (sum(n for (_, is_shared), n in bets.items() if is_shared == kind) for kind in (1, 0))
    if opinions:
        lines.append(Assumption("labels", True, "a judge's or people's: one bet a step"))
    if certain:
        lines.append(Assumption("labels", None, "of code or a column: each bet counts; void if a judge made them"))
    table = wealth.tables.get(SLOPE)
    if table is not None and table.is_uneven:
        text = "they jump from one to the next, as with one task a batch: their bets count as one"
        lines.append(Assumption("steps are alike", False, text))
    elif table is not None and table.compared >= COMPARED:
        lines.append(Assumption("steps are alike", True, f"{table.compared} pairs of neighbours compared"))
    elif table is not None:
        text = f"{table.compared} of {COMPARED} pairs of neighbours compared: at most {BLOCKS} bets a step"
        lines.append(Assumption("steps are alike", None, text))
    return lines


def about_levels(stakes: LevelStakes) -> list[Assumption]:
    """Of the level of gold and of traps."""
    lines = []
    if stakes.level is not None and stakes.level[1].paired is not None:
        paired = "prompts come back, so each is compared with itself"
        new = "prompts are new at each step: the level of gold only warns, and is no part of the bound"
        lines.append(Assumption("level", True, paired if stakes.level[1].paired else new))
    if stakes.sampled is not None:
        text = "a part of the answers, and windows that are labelled later: void if code labels them otherwise then"
        lines.append(Assumption("level", None, text))
    if stakes.traps is not None:
        text = f"{stakes.traps[1].count} asked: void if honest work is paid for more than {CHANCE:.0%} of them"
        lines.append(Assumption("traps", None, text))
    return lines


def about_slices(slices: SliceTests) -> list[Assumption]:
    """Of what has a test of its own for each slice."""
    if not slices.alpha:
        return []
    text = f"{len(slices.tests)}, with {slices.alpha:.2g} of the bound: each by bets of its own"
    text += ", but not those that came after them" if slices.untested else ""
    return [Assumption("slices", not slices.untested, text)]


def about_evaluations(stakes: LevelStakes) -> list[Assumption]:
    """Of declared evaluations."""
    lines = []
    for name, (_, level) in stakes.evaluations.items():
        if isinstance(level, CheckpointFallTest):
            text = f"{name}: each prompt compared with itself; void if they are no random draw of those you mean"
            lines.append(Assumption("evaluations", None, text))
    for name, wander in stakes.wander.items():
        text = f"{name}: checkpoints that differ by {sqrt(wander.variance) / 2:.1%} at a level of 50 % are no fall"
        lines.append(Assumption("evaluations", None, text))
    return lines
