"""Check: duplicates, contradictions, preference cycles, and prompts that leak from one split into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter.stats.word_hashes import Texts, Words
from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.finding import example_pair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.near_copies import ALIKE, families, near_copies
from tiltmeter_workbench.stats.strong_components import strong_components

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAME = "copies"
MATTERS = 0.01  # share of comparisons from which copies or contradictions are worth a repair
SHOWN = 3  # examples of each kind


@dataclass(frozen=True, eq=False)
class Copies:
    """Per comparison, what else in the data it repeats or contradicts.

    A copy counts twice in training, a contradiction teaches nothing, and a copy in the test split makes every figure
    of that split too good.

    >>> pairs = Comparisons(["p", "p"], ["a", "b"], ["b", "a"], np.array([[1.0], [1.0]]))
    >>> find_copies(pairs).duplicate.tolist(), find_copies(pairs).contradiction.tolist()
    ([False, True], [True, True])
    """

    duplicate: Bools  # the same prompt and answers, in any order, stand further up
    contradiction: Bools  # the same prompt and answers, another winner
    cycle: Bools  # part of a ring such as A > B > C > A among answers to one prompt
    same: Bools  # both answers are the same text
    leaked: Bools  # its prompt, or nearly, stands in another split
    near: Bools  # a prompt stands further up that is nearly the same, but not the same
    twin: Ints  # the first comparison with the same prompt and answers
    other: Ints  # a comparison of another split with nearly the same prompt; -1: none
    texts: bool  # whether there are texts at all

    @property
    def any(self) -> Bools:
        return np.asarray(self.duplicate | self.contradiction | self.cycle | self.same | self.leaked)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Counts are exact and near-copies compared in full, so neither `alpha` nor `seed` is used."""
    repeats = find_copies(pairs)
    if not repeats.texts:
        return Check(NAME, "cannot tell", "There are no texts, so copies cannot be told.")
    kinds = _kinds(repeats, pairs)
    total = max(len(pairs), 1)
    shares = {name: float(here.sum()) / total for name, (here, _, _) in kinds.items()}
    # Of a small test split a large part may leak without being much of the whole.
    leaks = _leaks(repeats, pairs)
    shares["leak"] = max((row["share"] for row in leaks), default=0.0)
    worst = [name for name in kinds if shares[name] >= MATTERS and name != "near-copy of a prompt"]
    counts = [f"{int(kinds[name][0].sum())} {kinds[name][1]}" for name in kinds if kinds[name][0].any()]
    return Check(
        NAME,
        "found" if worst else "clear",
        f"Of {len(pairs)} comparisons: {', '.join(counts)}." if counts else "No copies, contradictions or leaks.",
        estimate=float(repeats.any.sum()) / total,
        unit="share of comparisons that repeat, contradict or leak",
        fix=_fix(worst),
        facts={
            "duplicates": int(repeats.duplicate.sum()),
            "contradictions": int(repeats.contradiction.sum()),
            "in_cycles": int(repeats.cycle.sum()),
            "same_answers": int(repeats.same.sum()),
            "near_prompts": int(repeats.near.sum()),
            "leaked": int(repeats.leaked.sum()) if len(pairs.splits) else None,
            "leaked_share": shares["leak"] if len(pairs.splits) else None,
            "alike_from": ALIKE,
        },
        rows=leaks,
        examples=_examples(kinds, pairs),
    )


@shared()
def find_copies(pairs: Comparisons) -> Copies:
    """Duplicates and contradictions of every comparison; memoised, because several checks need them."""
    prompt, first, second = _codes(pairs)
    winner = pairs.winner
    low, high = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((np.arange(len(pairs)), high, low, prompt))
    same_pair = np.ones(len(pairs), bool)
    same_pair[1:] = np.any([key[order][1:] != key[order][:-1] for key in (prompt, low, high)], axis=0)
    begins = np.maximum.accumulate(np.where(same_pair, np.arange(len(order)), 0))
    twin = np.empty(len(pairs), np.int64)
    twin[order] = order[begins]
    # Winners by text, not by place: the same two answers may stand the other way round.
    chosen = np.where(winner == 0.5, -1, np.where(winner > 0.5, first, second))
    decided = np.isfinite(winner) & (chosen >= 0) & (first != second)
    against = _contradictions(twin, chosen, decided)
    texts = any(pairs.first) or any(pairs.second)
    family, near = _prompts(pairs, prompt)
    leaked, other = _leaked(pairs, family)
    again = twin != np.arange(len(pairs))
    same = first == second
    cycle = _cycles(prompt, first, second, winner, decided & ~against)
    return Copies(again, against, cycle, same, leaked, near, twin, other, texts)


def _codes(pairs: Comparisons) -> tuple[Ints, Ints, Ints]:
    """A number per different text, for prompts and for answers; leading and trailing space is ignored."""
    codes: dict[str, int] = {}

    def encode(texts: Sequence[str]) -> Ints:
        return np.array([codes.setdefault(text.strip(), len(codes)) for text in texts], np.int64)

    return encode(pairs.prompts), encode(pairs.first), encode(pairs.second)


def _contradictions(twin: Ints, chosen: Ints, decided: Bools) -> Bools:
    """Comparisons of a group of twins in which different answers won."""
    where = np.flatnonzero(decided)
    least, most = np.full(len(twin), np.iinfo(np.int64).max), np.full(len(twin), -1)
    np.minimum.at(least, twin[where], chosen[where])
    np.maximum.at(most, twin[where], chosen[where])
    return np.asarray(decided & (least[twin] != most[twin]))


def _cycles(prompt: Ints, first: Ints, second: Ints, winner: NDArray[np.float64], use: Bools) -> Bools:
    """Comparisons whose winner, by way of others for the same prompt, is beaten by their loser."""
    where = np.flatnonzero(use)
    won = np.where(winner[where] > 0.5, first[where], second[where])
    lost = np.where(winner[where] > 0.5, second[where], first[where])
    ends = np.stack((np.tile(prompt[where], 2), np.concatenate((won, lost))), 1)
    _, node = np.unique(ends, axis=0, return_inverse=True)
    node = node.reshape(2, -1)
    part = strong_components(node[0], node[1], int(node.max(initial=-1)) + 1)
    in_cycle = np.zeros(len(prompt), bool)
    in_cycle[where] = part[node[0]] == part[node[1]]
    return in_cycle


def _prompts(pairs: Comparisons, prompt: Ints) -> tuple[Ints, Bools]:
    """Per comparison the family of nearly equal prompts, and whether a near one (not the same) stands further up."""
    numbers, where, back = np.unique(prompt, return_index=True, return_inverse=True)
    words = Words.of(Texts.of([pairs.prompts[at] for at in where.tolist()]))
    close, _ = near_copies(words)
    family = families(close, len(numbers))
    # Prompts are numbered by their first place, so the first of a family stands furthest up.
    near = family != np.arange(len(numbers))
    family[np.diff(words.offsets) == 0] = -1
    return family[back], near[back]


def _leaked(pairs: Comparisons, family: Ints) -> tuple[Bools, Ints]:
    """Comparisons whose family of prompts has members in another split, and one of those."""
    other = np.full(len(pairs), -1, np.int64)
    if not len(pairs.splits):
        return other >= 0, other
    first_by_split: dict[int, dict[str, int]] = {}
    for at, (name, split) in enumerate(zip(family.tolist(), pairs.splits, strict=True)):
        if name >= 0:
            first_by_split.setdefault(name, {}).setdefault(split, at)
    for at, (name, split) in enumerate(zip(family.tolist(), pairs.splits, strict=True)):
        others = first_by_split.get(name, {})
        if len(others) > 1:
            other[at] = next(place for where, place in others.items() if where != split)
    return other >= 0, other


def _kinds(repeats: Copies, pairs: Comparisons) -> Mapping[str, tuple[Bools, str, str]]:
    """By kind: where it is, what a count of it is called, and what an example says."""
    return {
        "contradiction": (
            repeats.contradiction,
            "contradict another with the same answers",
            "the same two answers, another winner",
        ),
        "ring": (
            repeats.cycle,
            "lie on a ring (A beats B beats C beats A)",
            "its loser beats its winner by way of others",
        ),
        "same answer": (repeats.same, "have the same text twice", "both answers are the same"),
        "copy": (repeats.duplicate, "repeat an earlier one", "the same prompt and answers stand further up"),
        "leak": (
            repeats.leaked,
            "have a prompt that stands in another split, or nearly",
            "its prompt is in another split",
        ),
        "near-copy of a prompt": (
            repeats.near,
            "have a prompt nearly equal to an earlier one",
            "nearly an earlier prompt",
        ),
    }


def _fix(worst: Sequence[str]) -> str:
    fixes = {
        "contradiction": "rate contradictions again or drop them",
        "ring": "rate the rings again",
        "same answer": "drop comparisons of a text with itself",
        "copy": "keep one of each copy",
        "leak": "split by prompt, not by row",
    }
    text = "; ".join(fixes[name] for name in worst)
    return text[:1].upper() + text[1:] + ("." if text else "")


def _leaks(repeats: Copies, pairs: Comparisons) -> list[dict[str, Any]]:
    """Per split how much of it stands in another."""
    if not len(pairs.splits):
        return []
    splits = np.array(list(pairs.splits), object)
    rows = []
    for name in sorted(set(pairs.splits)):
        here = splits == name
        leaked = int(repeats.leaked[here].sum())
        rows.append({"split": name, "pairs": int(here.sum()), "leaked": leaked, "share": leaked / int(here.sum())})
    return rows


def _examples(kinds: Mapping[str, tuple[Bools, str, str]], pairs: Comparisons) -> list[Example]:
    return [
        example(pairs, int(at), why) for here, _, why in kinds.values() for at in np.flatnonzero(here)[:SHOWN].tolist()
    ]


def example(pairs: Comparisons, at: int, why: str) -> Example:
    """A comparison with the answer that won in the place of the chosen one."""
    one, other = pairs.first[at], pairs.second[at]
    chosen, rejected = (other, one) if pairs.winner[at] < 0.5 else (one, other)
    return example_pair(pairs.row(at), pairs.prompts[at], chosen, rejected, why)
