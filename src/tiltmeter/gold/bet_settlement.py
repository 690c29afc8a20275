"""Computes the values of one step's bets from its labels, and the facts of its `labels_closed` event."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType, to_builtins

from tiltmeter.data.records import SHARED_STEP, Reading, RolloutBatch
from tiltmeter.data.slices import bets_by_slice, means_by_slice, with_single_readings
from tiltmeter.gold import INDEPENDENT, CanaryError
from tiltmeter.gold.closer_looks import look_readings
from tiltmeter.gold.label_files import Label, LabelRequest
from tiltmeter.gold.level_labels import answers_by_slice, gives_same_label_again, gold_by_row, level_draw
from tiltmeter.gold.level_sampler import level_readings
from tiltmeter.rundir.payloads import LabelCounts
from tiltmeter.stats.gold_counts import count_gold

SUSPECT = CanaryError.__name__  # begins the reason of a label that a judge was not trusted with


@dataclass(frozen=True)
class SettledStep:
    """The u of a step's bets, in the logged order, by purpose; and the facts about its labels."""

    attempt: int
    step: int
    slopes: tuple[float, ...]
    duels: tuple[float, ...]
    facts: Mapping[str, Any]
    levels: tuple[float, ...] = ()  # mean gold of each slope pair of which both labels came
    gold: tuple[float | None, ...] = ()  # of every row, where all were asked about
    batch: RolloutBatch | None = None  # with that gold: what is measured of it is this step's readings
    of_level: tuple[Reading, ...] = ()  # of labels that were asked for the level of gold
    against: str = ""  # of its bets: `SHARED_STEP` if whoever gave the labels may have had a mood at this step
    slices: tuple[tuple[str, ...], ...] = ((), (), ())  # of slopes, of duels and of levels
    of_looks: tuple[Reading, ...] = ()  # of labels that were asked for closer looks
    groups: tuple[tuple[tuple[str, float], ...], ...] = ((), ())  # of slopes and of duels: whose raters', and their u
    unknown: tuple[int, int] = (0, 0)  # slopes and duels of which a label did not come

    def readings(self) -> list[Reading]:
        """`gold.slope` and `gold.duel`, where there was a bet: the mean of u, every u as what is bet on, and how many
        have both labels. And `gold.level`, which nothing bets on: how good the answers are, the mean of
        (g(up) + g(down)) / 2.

        The level is not mean gold. Pairs are of prompts whose rewards differ, so prompts that all answers solve or
        none does are left out; sides are drawn by advantage, so answers of average reward hardly count; pairs with a
        missing label are left out, and those may be the bad ones. Compare it with itself, over steps.
        """
        purposes = (("gold.slope", self.slopes, self.unknown[0]), ("gold.duel", self.duels, self.unknown[1]))
        of_bets = [(_reading(self.attempt, self.step, name, us, self.against), no) for name, us, no in purposes if us]
        readings = [replace(one, n=one.n - unknown) for one, unknown in of_bets]
        slices = {"gold.slope": self.slices[0], "gold.duel": self.slices[1]}
        groups = {"gold.slope": self.groups[0], "gold.duel": self.groups[1]}
        for of_all in list(readings):
            # A label may count for an environment and for a group of raters: each has a test of its own.
            us = [*of_all.values, *(u for _, u in groups[of_all.name])]
            whose = [*(slices[of_all.name] or [""] * len(of_all.values)), *(name for name, _ in groups[of_all.name])]
            readings += with_single_readings(bets_by_slice(of_all, us, whose if any(whose) else ()))
        if self.levels:
            readings.append(replace(_reading(self.attempt, self.step, "gold.level", self.levels), values=()))
            if len(self.slices[2]) == len(self.levels):
                means = means_by_slice(readings[-1], np.asarray(self.levels), self.slices[2], None)
                readings += [] if means is None else [means]
        return [*self.of_level, *self.of_looks, *readings]


def settle_bets(request: LabelRequest, labels: Sequence[Label]) -> SettledStep:
    """u = weight (g(up) - g(down)); a label that never came is 1 on the side that is paid and 0 on the other.

    Leaving such a bet out would be a choice made by its outcome: a source that fails on bad answers would hide them.
    """
    numbers = {row: number for number, row in enumerate(request.rows)}
    us: dict[str, list[float]] = {"slope": [], "duel": []}
    slices: dict[str, list[str]] = {"slope": [], "duel": [], "level": []}
    levels: list[float] = []
    unknown = {"slope": 0, "duel": 0}
    for bet in (one for one in request.bets if one.purpose in us):
        up, down = labels[numbers[bet.up]].value, labels[numbers[bet.down]].value
        if bet.purpose == "slope" and up is not None and down is not None:
            levels.append((up + down) / 2.0)
            slices["level"].append(bet.slice)
        unknown[bet.purpose] += up is None or down is None
        slices[bet.purpose].append(bet.slice)
        us[bet.purpose].append(bet.weight * ((1.0 if up is None else up) - (0.0 if down is None else down)))
    pairs = [(label.value, reward) for label, reward in zip(labels, request.paid, strict=True)]
    differs = any(g is not None and r is not None and not np.isclose(g, r, rtol=1e-4, atol=1e-6) for g, r in pairs)
    independent = request.source.get("identity", "").startswith(INDEPENDENT)
    reasons = [label.why for label in labels if label.value is None]
    facts = {
        "asked": len(labels),
        "answered": len(labels) - len(reasons),
        "missing": len(reasons),
        "why": f"{len(reasons)} of {len(labels)} labels are missing: {reasons[0]}" if reasons else "",
        "requests": request.digest,
        "values": hashlib.sha256(json.dumps([label.value for label in labels]).encode()).hexdigest(),
        "gold_differs": differs or (independent and len(reasons) < len(labels)),
        "whole": bool(request.whole),
        "canaries_pass": not any(why.startswith(SUSPECT) for why in reasons),
    }
    if not request.whole:
        facts = with_source(facts, _count_source(request, labels))
    against = "" if gives_same_label_again(request.source.get("identity", "")) else SHARED_STEP
    gold = tuple(label.value for label in labels) if request.whole else ()
    us_by_kind = tuple(us["slope"]), tuple(us["duel"])
    draw = level_draw(request)
    of_level = []
    if draw is not None:
        by_row = gold_by_row(request, labels)
        parts = answers_by_slice(request, by_row)
        of_level = [*level_readings(draw, request.attempt, request.step, by_row), *([] if parts is None else [parts])]
    return SettledStep(
        request.attempt, request.step, *us_by_kind, facts, tuple(levels), gold, None, tuple(of_level), against,
        tuple(map(tuple, slices.values())), tuple(look_readings(request, labels)),
        unknown=(unknown["slope"], unknown["duel"]),
    )  # fmt: skip


def with_source(facts: Mapping[str, Any], counts: LabelCounts | UnsetType) -> dict[str, Any]:
    """The facts of a step's labels, with what they say of their source; as they are where they say nothing."""
    return {**facts} if counts is UNSET else {**facts, "source": to_builtins(counts)}


def _count_source(request: LabelRequest, labels: Sequence[Label]) -> LabelCounts | UnsetType:
    """Of the pairs and groups of this step: answers to one prompt. Those whose rewards are equal may be one answer."""
    here, draw = (request.attempt, request.step), level_draw(request)
    slopes = [(bet.up, bet.down) for bet in request.bets if bet.purpose == "slope"]
    levels = [] if draw is None else [[(*here, row) for row in group.rows] for group in draw.groups]
    units = [list(dict.fromkeys(unit)) for unit in (*slopes, *levels)]
    number = {row: at for at, row in enumerate(request.rows)}
    rows = [number[row] for unit in units for row in unit]
    gold, reward = (
        np.array([np.nan if value is None else value for value in values], np.float64)
        for values in ([labels[at].value for at in rows], [request.paid[at] for at in rows])
    )
    counts = count_gold(gold, reward, np.cumsum([0, *map(len, units)]))
    return LabelCounts(**counts) if counts else UNSET  # type: ignore[arg-type]


def _reading(attempt: int, step: int, name: str, us: Sequence[float], against: str = "") -> Reading:
    values = np.asarray(us, np.float64)
    stderr = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Reading(attempt, step, name, float(values.mean()), len(values), stderr, tuple(map(float, values)), against)
