"""Pairs on which a check is tried, as a page to label them, and the answers that the page saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.label_page import PageItem, render_items
from tiltmeter_workbench.gold_check.person_labels import CHOICES, Ask, Choice, ScoredPair


def render_pairs(pairs: Sequence[ScoredPair]) -> str:
    """The page, which does not know what the check prefers."""
    return render_items([_item(one) for one in pairs])


def saved_answers(rows: Iterable[Mapping[str, Any]], pairs: Sequence[ScoredPair]) -> Ask:
    """Answers that the page saved, given in the order of the pairs; a pair without one is skipped."""
    answers: dict[str, Choice] = {}
    for row in rows:
        if row.get("person") in CHOICES and isinstance(row.get("key"), str):
            answers[row["key"]] = row["person"]
    if not answers.keys() & {_item(pair).key for pair in pairs}:
        raise AttachError(
            "none of these labels is about these pairs: give the check, rows, --pairs and --seed that made the page"
        )

    def ask(pair: ScoredPair, number: int, count: int) -> Choice:
        return answers.get(_item(pair).key, "skip")

    return ask


def _item(pair: ScoredPair) -> PageItem:
    return PageItem(pair.prompt, pair.first, pair.second)
