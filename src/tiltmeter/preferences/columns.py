"""Which columns of a file hold what: by their names, or as the operator says."""

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
    """Where a file keeps its comparisons, so that one reading serves every form.

    >>> found = layout(["instruction", "input", "response1", "response2", "annotator1", "annotator2"], {}, "x.jsonl")
    >>> found.prompt, found.first, found.votes
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


def layout(names: Sequence[str], given: Mapping[str, str], path: object) -> Layout:
    """The layout of a file with these columns. Raises `AttachError` with the fix where it cannot be told."""
    _check(names, given, path)
    first, second, decided = _answers(names, given, path)
    swapped = _listed(given.get("swapped", "")) or (("winner_swapped",) if "winner_swapped" in names else ())
    sides = next((pair for pair in SIDES if set(pair) <= set(names)), None) if not first else None
    two_sided = bool(first or sides or swapped)
    votes = _listed(given.get("votes", "")) or (() if decided else _votes(names, {first, second, *swapped}, two_sided))
    rater = _listed(given.get("rater", "")) or (() if len(votes) > 1 else _rater(names, {first, second, *votes}))
    if not decided and not votes:
        raise AttachError(
            f"{path} has no votes that are recognised among its columns {_some(names)}. Name them: --map chosen=COLUMN,"
            "rejected=COLUMN for answers that were chosen, or votes=COLUMN+COLUMN for one column per rater"
        )
    if len(votes) > 1 and rater:
        raise AttachError(f"{path}: with a rater column each row is one vote; give one column of votes")
    used = {first, second, *votes, *swapped, *rater}
    return Layout(
        prompt=_listed(given.get("prompt", "")) or _prompt([name for name in names if name not in used]),
        first=first,
        second=second,
        decided=decided,
        sides=sides,
        votes=votes,
        rater=rater,
        item=_listed(given.get("item", "")) or (_item(names, used) if rater and not first else ()),
        swapped=swapped,
        quality=_quality(names, given, decided),
        split=given.get("split", "split" if "split" in names else ""),
        answers=given.get("answers", ""),
        order_known=bool(swapped or {"first", "second"} <= set(given) or (first, second) == ("first", "second")),
    )


def _check(names: Sequence[str], given: Mapping[str, str], path: object) -> None:
    if strange := sorted(set(given) - set(KEYS)):
        raise AttachError(f"a map of columns has the keys {', '.join(KEYS)}; not {', '.join(strange)}")
    for key, value in given.items():
        for name in _listed(value) if key != "answers" else ():
            if name not in names:
                raise AttachError(f"{path} has no column {name!r} for {key}; it has {_some(names)}")
    for pair in (("first", "second"), ("chosen", "rejected"), ("first_quality", "second_quality")):
        if len(set(pair) & set(given)) == 1:
            raise AttachError(f"a map that names {' or '.join(pair)} must name both")
    if "chosen" in given and "first" in given:
        raise AttachError("a map names chosen and rejected, or first and second, not both")


def _answers(names: Sequence[str], given: Mapping[str, str], path: object) -> tuple[str, str, bool]:
    if "first" in given:
        return given["first"], given["second"], False
    if "chosen" in given:
        return given["chosen"], given["rejected"], True
    if {"chosen", "rejected"} <= set(names):
        return "chosen", "rejected", True
    if "chosen" in names or "rejected" in names:
        raise AttachError(f"{path} has only one of chosen and rejected; it has {_some(names)}")
    first, second = next((pair for pair in ANSWERS if set(pair) <= set(names)), ("", ""))
    return first, second, False


def _votes(names: Sequence[str], used: set[str], two_sided: bool) -> tuple[str, ...]:
    numbered = tuple(name for name in names if NUMBERED.fullmatch(name) and name not in used)
    if len(numbered) > 1:
        return numbered
    wanted = ("winner_unswapped", *VERDICTS) if two_sided else LABELS
    found = next((name for name in wanted if name in names and name not in used), None)
    return (found,) if found else numbered


def _rater(names: Sequence[str], used: set[str]) -> tuple[str, ...]:
    found = next((name for stem in RATERS for name in (stem, f"{stem}_id") if name in names and name not in used), None)
    if found == "judge":  # the same model under another prompt, or asked again, is another judge
        return tuple(name for name in ("judge", "prompting", "run") if name in names)
    return (found,) if found else ()


def _item(names: Sequence[str], used: set[str]) -> tuple[str, ...]:
    ends = [name for stem in IDENTITIES for name in (stem, f"{stem}_id") if name in names and name not in used]
    ends = ends or [name for name in ("id",) if name in names]
    return (*(name for name in WITHIN if name in names and name not in used), *ends) if ends else ()


def _prompt(names: Sequence[str]) -> tuple[str, ...]:
    if {"instruction", "input"} <= set(names):
        return ("instruction", "input")
    found = next((name for name in PROMPTS if name in names), None)
    return (found,) if found else ()


def _quality(names: Sequence[str], given: Mapping[str, str], decided: bool) -> tuple[str, str] | None:
    if "first_quality" in given:
        return given["first_quality"], given["second_quality"]
    pairs = ((form.format("chosen"), form.format("rejected")) for form in SCORES) if decided else ()
    return next((pair for pair in pairs if set(pair) <= set(names)), None)


def _listed(value: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[+,]", value) if name)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])
    return shown + (" and more" if len(names) > 20 else "")
