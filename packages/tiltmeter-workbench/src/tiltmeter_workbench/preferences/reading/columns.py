"""Finds the columns of a preference file: prompt, answers, votes, raters; by their names or by `--map`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiltmeter.errors import AttachError

#: What can be said with a map; values are names of columns, several joined by + or a comma, and for `answers` values.
KEYS = (
    *("prompt", "first", "second", "chosen", "rejected", "votes", "rater", "item", "swapped"),
    *("first_quality", "second_quality", "split", "answers"),
)
PROMPTS = ("prompt", "question", "query", "instruction", "input", "post", "history", "context")
STEMS = ("response", "output", "answer", "completion", "conversation", "text", "summary", "candidate", "human_ref")
ENDS = (("1", "2"), ("_1", "_2"), ("_a", "_b"), ("_A", "_B"), ("A", "B"), ("_0", "_1"), ("0", "1"))
ANSWERS = (("first", "second"), *((stem + a, stem + b) for stem in STEMS for a, b in ENDS))
SIDES = (("model_a", "model_b"), ("model_1", "model_2"))
RATERS = ("rater", "annotator", "worker", "evaluator", "labeler", "labeller", "judge")
NUMBERED = re.compile(r"(?:annotator|annotation|rater|vote|label|labeler|worker|evaluator)_?\d+")
VERDICTS = (
    *("preference", "label", "labels", "winner", "choice", "vote", "verdict", "better", "better_response_id"),
    *("safer_response_id", "preference_strength"),
)
LABELS = ("answer", "label", "rating", "category", "annotation", "vote", "verdict")
WITHIN = ("subset", "batch", "category")  # an identity may only be unique inside these
IDENTITIES = ("item", "pair", "comparison", "example", "instance", "question", "prompt", "uid", "idx")
SCORES = ("score_{}", "{}_score", "{}_rating", "{}-rating", "rating_{}", "{}_reward")


@dataclass(frozen=True)
class Layout:
    """Which column holds what, so that one reader covers every file layout.

    >>> names = ["instruction", "input", "response1", "response2", "annotator1", "annotator2"]
    >>> where = find_layout(names, {}, "x.jsonl")
    >>> where.prompt, where.first, where.votes
    (('instruction', 'input'), 'response1', ('annotator1', 'annotator2'))
    """

    prompt: tuple[str, ...] = ()
    first: str = ""  # empty: there are no texts
    second: str = ""
    decided: bool = False  # `first` is the answer that was chosen
    sides: tuple[str, str] | None = None  # without texts: whose answer was which
    votes: tuple[str, ...] = ()
    rater: tuple[str, ...] = ()  # one row is one vote, by this rater
    item: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    quality: tuple[str, str] | None = None
    split: str = ""
    answers: str = ""
    order_known: bool = False

    @property
    def two_sided(self) -> bool:
        """Whether these are comparisons; else they are labels of single items."""
        return bool(self.first or self.sides or self.swapped)


def find_layout(names: Sequence[str], mapping: Mapping[str, str], path: object) -> Layout:
    """The layout of a file with these columns. Raises `AttachError` with the fix if the columns are not recognised."""
    _check(names, mapping, path)
    first, second, decided = _answers(names, mapping, path)
    swapped = _split_names(mapping.get("swapped", "")) or (("winner_swapped",) if "winner_swapped" in names else ())
    sides = next((pair for pair in SIDES if set(pair) <= set(names)), None) if not first else None
    two_sided = bool(first or sides or swapped)
    votes = _split_names(mapping.get("votes", "")) or (
        () if decided else _votes(names, {first, second, *swapped}, two_sided)
    )
    rater = _split_names(mapping.get("rater", "")) or (() if len(votes) > 1 else _rater(names, {first, second, *votes}))
    if not decided and not votes:
        raise AttachError(
            f"{path} has no votes that are recognised among its columns {_name_list(names)}. Name them: "
            "--map chosen=COLUMN,rejected=COLUMN for answers that were chosen, or "
            "votes=COLUMN+COLUMN for one column per rater"
        )
    if len(votes) > 1 and rater:
        raise AttachError(f"{path}: with a rater column each row is one vote; give one column of votes")
    used = {first, second, *votes, *swapped, *rater}
    return Layout(
        prompt=_split_names(mapping.get("prompt", "")) or _prompt([name for name in names if name not in used]),
        first=first,
        second=second,
        decided=decided,
        sides=sides,
        votes=votes,
        rater=rater,
        item=_split_names(mapping.get("item", "")) or (_item(names, used) if rater and not first else ()),
        swapped=swapped,
        quality=_quality(names, mapping, decided),
        split=mapping.get("split", "split" if "split" in names else ""),
        answers=mapping.get("answers", ""),
        order_known=bool(swapped or {"first", "second"} <= set(mapping) or (first, second) == ("first", "second")),
    )


def _check(names: Sequence[str], mapping: Mapping[str, str], path: object) -> None:
    if strange := sorted(set(mapping) - set(KEYS)):
        raise AttachError(f"a map of columns has the keys {', '.join(KEYS)}; not {', '.join(strange)}")
    for key, value in mapping.items():
        for name in _split_names(value) if key != "answers" else ():
            if name not in names:
                raise AttachError(f"{path} has no column {name!r} for {key}; it has {_name_list(names)}")
    for pair in (("first", "second"), ("chosen", "rejected"), ("first_quality", "second_quality")):
        if len(set(pair) & set(mapping)) == 1:
            raise AttachError(f"a map that names {' or '.join(pair)} must name both")
    if "chosen" in mapping and "first" in mapping:
        raise AttachError("a map names chosen and rejected, or first and second, not both")


def _answers(names: Sequence[str], mapping: Mapping[str, str], path: object) -> tuple[str, str, bool]:
    if "first" in mapping:
        return mapping["first"], mapping["second"], False
    if "chosen" in mapping:
        return mapping["chosen"], mapping["rejected"], True
    if {"chosen", "rejected"} <= set(names):
        return "chosen", "rejected", True
    if "chosen" in names or "rejected" in names:
        raise AttachError(f"{path} has only one of chosen and rejected; it has {_name_list(names)}")
    first, second = next((pair for pair in ANSWERS if set(pair) <= set(names)), ("", ""))
    return first, second, False


def _votes(names: Sequence[str], used: set[str], two_sided: bool) -> tuple[str, ...]:
    numbered = tuple(name for name in names if NUMBERED.fullmatch(name) and name not in used)
    if len(numbered) > 1:
        return numbered
    candidates = ("winner_unswapped", *VERDICTS) if two_sided else LABELS
    column = next((name for name in candidates if name in names and name not in used), None)
    return (column,) if column else numbered


def _rater(names: Sequence[str], used: set[str]) -> tuple[str, ...]:
    column = next(
        (name for stem in RATERS for name in (stem, f"{stem}_id") if name in names and name not in used), None
    )
    if column == "judge":  # the same model under another prompt, or asked again, is another judge
        return tuple(name for name in ("judge", "prompting", "run") if name in names)
    return (column,) if column else ()


def _item(names: Sequence[str], used: set[str]) -> tuple[str, ...]:
    ends = [name for stem in IDENTITIES for name in (stem, f"{stem}_id") if name in names and name not in used]
    ends = ends or [name for name in ("id",) if name in names]
    return (*(name for name in WITHIN if name in names and name not in used), *ends) if ends else ()


def _prompt(names: Sequence[str]) -> tuple[str, ...]:
    if {"instruction", "input"} <= set(names):
        return ("instruction", "input")
    column = next((name for name in PROMPTS if name in names), None)
    return (column,) if column else ()


def _quality(names: Sequence[str], mapping: Mapping[str, str], decided: bool) -> tuple[str, str] | None:
    if "first_quality" in mapping:
        return mapping["first_quality"], mapping["second_quality"]
    pairs = ((form.format("chosen"), form.format("rejected")) for form in SCORES) if decided else ()
    return next((pair for pair in pairs if set(pair) <= set(names)), None)


def _split_names(value: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[+,]", value) if name)


def _name_list(names: Sequence[str]) -> str:
    text = ", ".join(names[:20])
    return text + (" and more" if len(names) > 20 else "")
