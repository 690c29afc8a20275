"""Parses vote columns: which values mean the first answer, the second, or a tie."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from tiltmeter.errors import AttachError

_SIDE = re.compile(
    r"(?:(?:model|response|output|answer|completion|assistant|option|candidate|summary)[ _-]?)?"
    r"(?P<side>a|b|1|2|first|second|left|right)"
    r"(?:[ _-]is)?(?:[ _-](?:clearly|slightly|much|significantly|definitely))?(?:[ _-](?:better|wins?|preferred))?"
)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_TIES = {"tie", "tied", "ties", "draw", "equal", "same", "both", "neither", "no preference", "0.5", "tie (bothbad)"}
_TIES |= {"both bad", "both good", "both_bad", "equally good", "about the same", "both-bad", "both-good"}
UNKNOWN = 0.1  # share of votes that may be unreadable, such as a judge's stray text, before the file is refused


def normalise_vote(value: object) -> str:
    """A cell as it is compared: "" for no vote, numbers without a trailing .0, words in lower case.

    >>> [normalise_vote(value) for value in (2.0, "2.0", " A ", None, float("nan"), True)]
    ['2', '2', 'a', '', '', 'true']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip().lower()
    return re.sub(r"^(-?\d+)\.0+$", r"\1", "" if text in ("nan", "none", "null") else text)


def vote_meanings(
    values: Iterable[object], names: tuple[str, str], answers: str = "", where: str = ""
) -> tuple[Mapping[str, float], str, int]:
    """Vote by value, a sentence on what was assumed, and the number of votes that were not understood.

    1 and 2 are the first and the second answer, and 0 beside them a tie. 0 or 1 without a 2 can be read in two ways,
    unless the answers' columns are numbered from 0; then, and whenever more than a tenth of the votes is unknown, the
    file is refused and the message says how to tell (`answers`: the values for first, second and tie, or -/+ where
    the sign of a number tells the side).

    >>> votes, sentence, _ = vote_meanings([0, 1, 2, 2], ("response1", "response2"))
    >>> votes, sentence
    ({'0': 0.5, '1': 1.0, '2': 0.0}, '1 is the first answer, 2 the second, 0 a tie')
    """
    counts = Counter(filter(None, map(normalise_vote, values)))
    if answers in ("-/+", "+/-"):
        meanings = {value: _signed_vote(value, answers) for value in counts if _NUMBER.fullmatch(value)}
    elif answers:
        sides = dict(zip(map(normalise_vote, answers.split("/")), (1.0, 0.0, 0.5), strict=False))
        if len(sides) < 2 or "" in sides:
            raise AttachError(f"{where}: answers must be the values for first and second, as answers=0/1 or 1/2/0")
        meanings = {value: sides[value] for value in counts if value in sides}
    else:
        meanings = _recognise_votes(counts, names, where)
    strange = {value: count for value, count in counts.items() if value not in meanings}
    lost = sum(strange.values())
    if lost > UNKNOWN * sum(counts.values()):
        examples = ", ".join(repr(value[:20]) for value in sorted(strange, key=lambda value: -strange[value])[:4])
        raise AttachError(f"{where}: votes such as {examples} are neither answer. {_fix()}")
    return meanings, _describe_meanings(meanings), lost


def _signed_vote(value: str, answers: str) -> float:
    side = (float(value) > 0.0) - (float(value) < 0.0)
    return 0.5 + 0.5 * (side if answers == "+/-" else -side)


def _recognise_votes(counts: Mapping[str, int], names: tuple[str, str], where: str) -> dict[str, float]:
    meanings: dict[str, float] = {value: 0.5 for value in counts if value in _TIES}
    numerals = sorted(value for value in counts if value in ("0", "1", "2", "-1"))
    from_zero = names[0].endswith("0") and names[1].endswith("1")
    if from_zero and set(numerals) <= {"0", "1"}:
        meanings.update({value: 1.0 - float(value) for value in numerals})
    elif "-1" in numerals or (numerals and "2" not in numerals):
        several = " and ".join(numerals)
        raise AttachError(f"{where}: votes of {several} can be read in more than one way. {_fix()}")
    else:
        meanings.update({value: {"1": 1.0, "2": 0.0, "0": 0.5}[value] for value in numerals})
    for value in counts:
        if value in meanings:
            continue
        side = _SIDE.fullmatch(value)
        if side is not None:
            meanings[value] = float(side["side"] in ("a", "1", "first", "left"))
        elif value in (normalise_vote(names[0]), normalise_vote(names[1])):
            meanings[value] = float(value == normalise_vote(names[0]))
    return meanings


def _fix() -> str:
    return (
        "Say which values mean the first answer, the second and, if any, a tie: --map answers=FIRST/SECOND/TIE, such "
        "as answers=0/1; answers=-/+ if negative numbers mean the first"
    )


def _describe_meanings(meanings: Mapping[str, float]) -> str:
    sides = {side: [value for value in sorted(meanings) if meanings[value] == side] for side in (1.0, 0.0, 0.5)}
    words = [f"{' or '.join(sides[1.0])} is the first answer"] if sides[1.0] else []
    words += [f"{' or '.join(sides[0.0])} the second"] if sides[0.0] else []
    words += [f"{' or '.join(sides[0.5])} a tie"] if sides[0.5] else []
    return ", ".join(words)
