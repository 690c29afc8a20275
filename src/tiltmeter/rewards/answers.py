"""The final answer of a text, in the notations people use, and when two answers are the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tiltmeter.rewards.terms import CONSTANTS, Node, Unread, agree, points, read, value
from tiltmeter.rewards.worked import factors, left_open, terms, undone

LONGEST_TEXT = 1 << 20  # characters; no honest answer is longer, and every one is read in time linear in it
LONGEST_ANSWER = 600
HEDGED = "⁇"  # stands before words that leave a door open
MOST = 60  # elements of a list, set or matrix

_HASHES = re.compile(r"####[ \t]*([^\n]{0,600})")
_ANSWER = re.compile(r"\banswer[ \t*]{0,4}:[ \t*]{0,4}([^\n]{0,600})", re.I)
_SAID = re.compile(r"\banswer is:?[ \t]{0,4}([^\n]{1,600})", re.I)
_NUMBER = re.compile(r"(?<![\w.])-?\$?\d[\d,]{0,40}(?:\.\d{1,40})?")
_WORDS = re.compile(
    r"\\(?:text|mbox|mathrm|textbf|textit|mathbf|operatorname|textnormal|textrm|rm)\s{0,3}\{([^{}]{0,200})\}"
)
_HEDGE = re.compile(
    r"\d|\b(?:or|and|either|not|nor|to|between|maybe|possibly|but|else|unless|versus|vs|plus|minus|"
    r"hundred|thousand|million|billion|trillion)\b",
    re.I,
)
_UNIT = re.compile(r"(?<=[\d}!)\w])\s*(?:[A-Za-z]{2,15}[ .]*){1,4}(?:\^\{?[23]\}?)?$")
#: Two letters, or three that touch a number, are a product (`6ab`, `6xyz`) unless they are one of these.
_SHORT_UNIT = re.compile(
    r"[cmk]m|[km]g|[mcd]l|lbs?|oz|ft|in|yd|mi|hrs?|[ap]m|[kmg]b|hz|db|min|sec|[mk]ph|usd|deg|rad|cal", re.I
)
_KNOWN = re.compile(r"(?<![A-Za-z])(?:pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d])")
_NAMED = re.compile(r"^(?:[A-Za-z](?:_\{?\w{1,3}\}?)?(?:\([a-z]\))?)$")
_RELATIONS = re.compile(r"(<=|>=|<|>|=|~)")
_MATRIX = re.compile(r"^\\begin\{([pbv]?matrix)\}(.*)\\end\{\1\}$")

#: Notations that mean the same, longest first.
_SAME = (
    ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\cfrac", "\\frac"), ("\\left", ""), ("\\right", ""),
    ("\\leqslant", "<="), ("\\geqslant", ">="), ("\\leq", "<="), ("\\geq", ">="), ("\\le", "<="), ("\\ge", ">="),
    ("\\lt", "<"), ("\\gt", ">"), ("\\approx", "~"), ("\\cdot", "*"), ("\\times", "*"), ("\\div", "/"),
    ("\\infty", "∞"), ("infinity", "∞"), ("\\cup", "∪"), ("\\pm", "±"), ("\\mp", "∓"), ("\\in", "∈"),
    ("^{\\circ}", ""), ("^\\circ", ""), ("\\circ", ""), ("\\degree", ""), ("°", ""), ("\\displaystyle", ""),
    ("\\%", "%"), ("\\$", ""), ("$", ""), ("\\(", ""), ("\\)", ""), ("\\[", ""), ("\\]", ""),
    ("\\!", ""), ("\\,", ""), ("\\;", " "), ("\\:", " "), ("\\ ", " "), ("~", "~"), ("\\quad", " "), ("\\qquad", " "),
    ("{,}", ","), ("−", "-"), ("–", "-"), ("×", "*"), ("·", "*"), ("÷", "/"), ("**", "^"), ("π", "\\pi "),
    ("≤", "<="), ("≥", ">="), ("≈", "~"), ("\\{", "⦃"), ("\\}", "⦄"), ("\\lbrace", "⦃"), ("\\rbrace", "⦄"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer as it was read: its words, and every way its notation can be understood.

    >>> equal(read_answer("10,\\\\!080"), read_answer("10080")), equal(read_answer("12 or 13"), read_answer("12"))
    (True, False)
    """

    plain: str  # without spaces and notation, for answers that are words
    readings: tuple[Reading, ...]

    @property
    def listed(self) -> bool:
        return any(reading.kind == "list" for reading in self.readings)


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to understand an answer: a term, a list, a tuple or interval, a matrix, or a relation."""

    kind: str  # term, list, group, matrix, relation, edge (an infinity)
    parts: tuple[Reading, ...] = ()
    node: Node | None = None
    name: str = ""  # brackets, signs of relation
    percent: bool = False


def answers_in(text: str, forms: Sequence[str]) -> list[str]:
    """The final answers of a text in the first form that it has, in order; none if the form is there but empty.

    A box that only holds a `\\phantom` is a picture of a box, which questions have, and no answer.


    >>> answers_in("first \\\\boxed{1}, then \\\\boxed{\\\\frac{1}{2}}", ("boxed", "hashes"))
    ['1', '\\\\frac{1}{2}']
    """
    if len(text) > LONGEST_TEXT:
        return []
    for form in forms:
        if form == "boxed":
            found = _boxes(text)
        elif form == "number":
            found = _NUMBER.findall(text)[-1:]
        else:
            found = _HASHES.findall(text) if form == "hashes" else _ANSWER.findall(text) or _SAID.findall(text)
        if found:
            return [one.strip() for one in found if one.strip()]
    return []


def _boxes(text: str) -> list[str]:
    """What stands in the outermost boxes; one that is not closed is empty."""
    found, at = [], 0
    while (at := text.find("\\boxed", at)) >= 0:
        at += len("\\boxed")
        start = at + (text[at : at + 1] == " ")
        if text[start : start + 1] != "{":
            found.append(text[start : start + 1] if text[start : start + 1].isalnum() else "")
            continue
        depth, end = 0, start
        for end in range(start, min(len(text), start + 4 * LONGEST_ANSWER)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                break
        inside = text[start + 1 : end] if depth == 0 else ""
        found.append("" if inside.lstrip().startswith("\\phantom") else inside)
        at = end
    return found


def read_answer(text: str) -> Answer | None:
    """An answer from its text; None if there is nothing in it or it is longer than any answer."""
    if len(text) > LONGEST_ANSWER:
        return None
    tidy = _tidied(text)
    plain = re.sub(r"\s+", " ", _WORDS.sub(r"\1", tidy.replace(HEDGED, ""))).strip().rstrip(" .")
    if not plain:
        return None
    if not re.search(r"[\d\\^]", plain):  # words, where capitals do not matter
        plain = plain.casefold()
        plain = plain.strip("()") if len(plain) <= 3 else plain
    math = re.sub(r"\s+", " ", _without_units(tidy)).strip().rstrip(" .")
    if not math:
        return Answer(plain, ())
    readings = []
    for form in dict.fromkeys((_THOUSANDS.sub(lambda found: found[0].replace(",", ""), math), math)):
        try:
            readings.append(_reading(form))
        except (Unread, RecursionError):
            continue
    return Answer(plain, tuple(readings))


def _tidied(text: str) -> str:
    text = text.replace("\\\\", "⏎")
    for theirs, ours in _SAME:
        text = text.replace(theirs, ours)
    # "or" and "and" between answers make a list, which is right only as a whole; other words with them a hedge.
    text = _WORDS.sub(_joining, text)
    text = re.sub(r"(?<=[\d\s})])\s*\b(?:or|and)\b\s*", ",", text)
    text = re.sub(r",\s*,", ",", text)
    text = re.sub(r"(?<=\d),\s+(?=\d{3}(?:\D|$))", lambda found: ",\u200b", text)
    return text.replace(",\u200b", ", ").strip().rstrip(".").strip()


def _joining(found: re.Match[str]) -> str:
    if found[1].strip(" ,") in ("or", "and"):
        return ","
    return HEDGED + found[0] if _HEDGE.search(found[1]) else found[0]


def _is_unit(words: str) -> bool:
    """Whether words behind a number say what was counted, and are no product and no doubt."""
    first = re.findall(r"[A-Za-z]+", words)[0]
    touching = not words[:1].isspace()
    if len(first) <= (3 if touching else 2) and not _SHORT_UNIT.fullmatch(first):
        return False
    return not _HEDGE.search(words.rstrip("^{}23"))


def _without_units(text: str) -> str:
    """The text without the words that say what was counted. A text that is all words keeps them."""
    if HEDGED in text:
        return ""
    bare = re.sub(_WORDS.pattern + r"(?:\^\{?\d\}?)?", " ", text)
    if re.search(r"[\dπ∞]|\\(?:frac|sqrt|pi)", bare):
        text = bare
    elif _WORDS.search(text):
        return ""
    stripped = text.rstrip(" .")
    if re.search(r"\d", stripped) and not _KNOWN.search(stripped):
        unit = _UNIT.search(stripped)
        stripped = stripped[: unit.start()] if unit and _is_unit(unit[0]) else stripped
    return stripped


def _reading(text: str) -> Reading:
    text = text.strip()
    pieces = list(_split(text, ","))
    if len(pieces) > 1:
        return _listed(pieces)
    if text.startswith("⦃") and text.endswith("⦄"):
        return _listed(list(_split(text[1:-1], ",")))
    if "±" in text or "∓" in text:
        if sum(map(text.count, "±∓")) > 2:
            raise Unread("too many signs")
        swapped = (text.replace("±", sign).replace("∓", other) for sign, other in ("+-", "-+"))
        return _listed(list(swapped))
    if "∪" in text:
        return Reading("list", tuple(_reading(piece) for piece in _split(text, "∪")), name="union")
    if matrix := _MATRIX.match(text.replace(" ", "")):
        return _matrix(matrix[2])
    if "∈" in text:
        name, _, rest = text.partition("∈")
        if not _NAMED.match(name.strip()):
            raise Unread("not a membership")
        return _reading(rest)
    sides = _RELATIONS.split(text)
    if len(sides) > 1:
        return _relation([side.strip() for side in sides])
    inside = list(_split(text[1:-1], ",")) if text[:1] in "([" and text[-1:] in ")]" and text else []
    if len(inside) > 1 and len(inside) <= MOST:
        return Reading("group", tuple(_reading(piece) for piece in inside), name=text[0] + text[-1])
    if (bare := text.replace(" ", "")).lstrip("+-") == "∞":
        return Reading("edge", name=bare.lstrip("+"))
    percent = text.endswith("%")
    return Reading("term", node=read(_closed_up(text.rstrip("% "))), percent=percent)


def _closed_up(text: str) -> str:
    """Without spaces; digits that only a space kept apart are a mixed number or no number."""
    text = re.sub(r"(?<=\d) +(\d{1,6})/(\d{1,6})$", r"\\frac{\1}{\2}", text)
    if re.search(r"\d \d", text) and not re.fullmatch(r"-?\d{1,3}( \d{3})+(\.\d+)?", text):
        raise Unread("two numbers side by side")
    return text.replace(" ", "")


def _split(text: str, mark: str) -> Iterator[str]:
    """The parts of a text between marks that stand in no bracket."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{⦃") - (letter in ")]}⦄")
        if letter == mark and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _listed(pieces: list[str]) -> Reading:
    if len(pieces) > MOST:
        raise Unread("too many")
    parts: list[Reading] = []
    for piece in pieces:
        part = _reading(piece)
        parts += part.parts if part.kind == "list" and part.name != "union" else [part]
    return Reading("list", tuple(parts)) if len(parts) != 1 else parts[0]


def _matrix(text: str) -> Reading:
    rows = [[_reading(cell) for cell in row.split("&")] for row in text.split("⏎") if row]
    if len(rows) > MOST or len({len(row) for row in rows}) != 1:
        raise Unread("not a matrix")
    return Reading("matrix", tuple(Reading("row", tuple(row)) for row in rows))


def _relation(sides: list[str]) -> Reading:
    """`x = 5`, `y = 2x + 3`, `2 < x <= 7`; signs and sides alternate."""
    signs = tuple(sides[1::2])
    held = list(sides[::2])
    if all(sign in "=~" for sign in signs):
        # A name in front says what the answer is an answer for.
        named = len(held) > 1 and _NAMED.match(held[0].replace(" ", "")) is not None
        parts = tuple(_reading(side) for side in held)
        return Reading("relation", parts, name="".join(signs) + (":" if named else ""))
    if len(held) == 3 and _NAMED.match(held[1]) and len({sign[0] for sign in signs}) == 1:
        low, high = (held[0], held[2]) if signs[0][0] == "<" else (held[2], held[0])
        first, last = signs if signs[0][0] == "<" else signs[::-1]
        brackets = ("[" if first[1:] else "(") + ("]" if last[1:] else ")")
        return Reading("group", (_reading(low), _reading(high)), name=brackets)
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "~": "~"}
    if signs[0][0] == ">":
        held, signs = held[::-1], tuple(turned[sign] for sign in signs[::-1])
    return Reading("relation", tuple(_reading(side) for side in held), name=" ".join(signs))


def equal(given: Answer, gold: Answer, *, worked: bool = True) -> bool:
    """Whether two answers are the same. `worked`: the given one must be worked out as far as the other is."""
    if given.plain == gold.plain:
        return True
    return any(_matches(one, other, worked) for one in given.readings for other in gold.readings)


def _matches(given: Reading, gold: Reading, worked: bool) -> bool:
    try:
        return _equal(given, gold, worked)
    except (Unread, RecursionError, ArithmeticError):
        return False


def _equal(given: Reading, gold: Reading, worked: bool) -> bool:
    if given.kind == "relation" or gold.kind == "relation":
        return _related(given, gold, worked)
    if given.kind != gold.kind or given.name != gold.name or len(given.parts) != len(gold.parts):
        return False
    if given.kind == "list":
        return _same_elements(given.parts, gold.parts, worked)
    if given.kind != "term":
        return all(_equal(one, other, worked) for one, other in zip(given.parts, gold.parts, strict=True))
    assert given.node is not None and gold.node is not None
    return _same_term(given, gold, given.node, gold.node, worked)


def _same_term(given: Reading, gold: Reading, one: Node, other: Node, worked: bool) -> bool:
    if worked and (undone(one) > undone(other) or terms(one) > terms(other) or factors(one) != factors(other)):
        return False
    if worked and (len(left_open(one)) > len(left_open(other)) or one.symbols & CONSTANTS.keys() - other.symbols):
        return False
    if agree(one, other):
        return True
    if given.percent == gold.percent or one.symbols - set(CONSTANTS):
        return False
    # A percentage may be asked for as a number or as a share.
    share, whole = (one, other) if given.percent else (other, one)
    worth = value(share)
    return isinstance(worth, Fraction) and worth / 100 == value(whole)


def _same_elements(given: Sequence[Reading], gold: Sequence[Reading], worked: bool) -> bool:
    left = list(gold)
    for part in given:
        found = next((number for number, other in enumerate(left) if _matches(part, other, worked)), None)
        if found is None:
            return False
        del left[found]
    return not left


def _related(given: Reading, gold: Reading, worked: bool) -> bool:
    if given.kind == gold.kind and not set(given.name + gold.name) <= set("=~:"):
        pairs = zip(given.parts, gold.parts, strict=False)
        alike = given.name == gold.name and len(given.parts) == len(gold.parts)
        return alike and all(_equal(one, other, worked) for one, other in pairs)
    if given.kind == gold.kind and _proportional(given, gold):
        return True
    if gold.kind == "relation":
        # `x = 5` may be answered by 5; another name in front is another answer.
        return gold.name == "=:" and given.kind != "relation" and _equal(given, gold.parts[1], worked)
    sides = given.parts[1:] if given.name.endswith(":") else given.parts
    signs = given.name.removesuffix(":")[-len(sides) + 1 :] if len(sides) > 1 else ""
    if not set(signs) <= set("=~"):
        return False
    exact = [side for number, side in enumerate(sides) if number == 0 or signs[number - 1] == "="]
    rounded = [side for side in sides if side not in exact]
    # Every side must be the answer: `41 = 42` offers two.
    return (
        _equal(exact[-1], gold, worked)
        and all(_equal(side, gold, False) for side in exact[:-1])
        and all(_roughly(side, gold) for side in rounded)
    )


def _roughly(one: Reading, other: Reading) -> bool:
    if one.node is None or other.node is None:
        return False
    near, exact = complex(value(one.node)), complex(value(other.node))
    return abs(near - exact) <= 0.01 * abs(exact)


def _proportional(given: Reading, gold: Reading) -> bool:
    """Whether two equations say the same: their differences of sides are the same up to a factor that is not 0."""
    if any(len(side.parts) != 2 or any(part.node is None for part in side.parts) for side in (given, gold)):
        return False
    nodes = [[part.node for part in side.parts if part.node is not None] for side in (given, gold)]
    differences = [Node("add", (left, Node("neg", (right,)))) for left, right in nodes]
    names = [difference.symbols - set(CONSTANTS) for difference in differences]
    if names[0] != names[1] or not names[0]:
        return False
    ratios = []
    for at in points(sorted(names[0]), repr(differences)):
        one, other = (value(difference, at) for difference in differences)
        if one == 0 or other == 0:
            return False
        ratios.append(complex(one) / complex(other))
    return all(abs(one - other) <= 1e-9 * abs(one) for one, other in pairwise(ratios))
