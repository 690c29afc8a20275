"""Extract the final answer of a maths solution (LaTeX, `####`, `Answer:`), parse it, and compare two answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tiltmeter.gold.checks.math_terms import (
    CONSTANTS,
    Node,
    UnreadableTerm,
    evaluate,
    parse_term,
    sample_points,
    terms_agree,
)
from tiltmeter.gold.checks.simplification import (
    count_factors,
    count_open_operations,
    count_summands,
    unevaluated_parts,
)

LONGEST_TEXT = 1 << 20  # characters; no honest answer is longer, and every one is read in time linear in it
LONGEST_ANSWER = 600
HEDGE_MARK = "⁇"  # marks words that hedge ("or", "not", a second number)
MAX_ELEMENTS = 60  # elements of a list, set or matrix

_HASHES = re.compile(r"####[ \t]*([^\n]{0,600})")
_ANSWER = re.compile(r"\banswer[ \t*]{0,4}:[ \t*]{0,4}([^\n]{0,600})", re.I)
_ANSWER_IS = re.compile(r"\banswer is:?[ \t]{0,4}([^\n]{1,600})", re.I)
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
_FUNCTION_WORD = re.compile(r"(?<![A-Za-z])(?:pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d])")
_SYMBOL_NAME = re.compile(r"^(?:[A-Za-z](?:_\{?\w{1,3}\}?)?(?:\([a-z]\))?)$")
_RELATIONS = re.compile(r"(<=|>=|<|>|=|~)")
_MATRIX = re.compile(r"^\\begin\{([pbv]?matrix)\}(.*)\\end\{\1\}$")

#: Notations that mean the same, longest first.
_NOTATIONS = (
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
class MathAnswer:
    """A final answer: its plain text, and every way its notation can be parsed.

    >>> equal(read_answer("10,\\\\!080"), read_answer("10080")), equal(read_answer("12 or 13"), read_answer("12"))
    (True, False)
    """

    plain: str  # without spaces and notation, for answers that are words
    parses: tuple[AnswerParse, ...]

    @property
    def is_list(self) -> bool:
        return any(parse.kind == "list" for parse in self.parses)


@dataclass(frozen=True, slots=True)
class AnswerParse:
    """One parse of an answer: a term, a list, a tuple or interval, a matrix, or a relation."""

    kind: str  # term, list, group, matrix, relation, edge (an infinity)
    parts: tuple[AnswerParse, ...] = ()
    node: Node | None = None
    name: str = ""  # brackets, signs of relation
    percent: bool = False


def extract_answers(text: str, forms: Sequence[str]) -> list[str]:
    """The final answers of a text in the first form that it has, in order; none if the form is there but empty.

    A box that holds only a `\\phantom` is an empty placeholder and not an answer.

    >>> extract_answers("first \\\\boxed{1}, then \\\\boxed{\\\\frac{1}{2}}", ("boxed", "hashes"))
    ['1', '\\\\frac{1}{2}']
    """
    if len(text) > LONGEST_TEXT:
        return []
    for form in forms:
        if form == "boxed":
            answers = _boxes(text)
        elif form == "number":
            answers = _NUMBER.findall(text)[-1:]
        else:
            answers = _HASHES.findall(text) if form == "hashes" else _ANSWER.findall(text) or _ANSWER_IS.findall(text)
        if answers:
            return [one.strip() for one in answers if one.strip()]
    return []


def _boxes(text: str) -> list[str]:
    """What stands in the outermost boxes; one that is not closed is empty."""
    boxes, at = [], 0
    while (at := text.find("\\boxed", at)) >= 0:
        at += len("\\boxed")
        start = at + (text[at : at + 1] == " ")
        if text[start : start + 1] != "{":
            boxes.append(text[start : start + 1] if text[start : start + 1].isalnum() else "")
            continue
        depth, end = 0, start
        for end in range(start, min(len(text), start + 4 * LONGEST_ANSWER)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                break
        inside = text[start + 1 : end] if depth == 0 else ""
        boxes.append("" if inside.lstrip().startswith("\\phantom") else inside)
        at = end
    return boxes


def read_answer(text: str) -> MathAnswer | None:
    """An answer from its text; None if there is nothing in it or it is longer than any answer."""
    if len(text) > LONGEST_ANSWER:
        return None
    tidy = _normalise(text)
    plain = re.sub(r"\s+", " ", _WORDS.sub(r"\1", tidy.replace(HEDGE_MARK, ""))).strip().rstrip(" .")
    if not plain:
        return None
    if not re.search(r"[\d\\^]", plain):  # words, where capitals do not matter
        plain = plain.casefold()
        plain = plain.strip("()") if len(plain) <= 3 else plain
    math = re.sub(r"\s+", " ", _without_units(tidy)).strip().rstrip(" .")
    if not math:
        return MathAnswer(plain, ())
    parses = []
    for form in dict.fromkeys((_THOUSANDS.sub(lambda match: match[0].replace(",", ""), math), math)):
        try:
            parses.append(_parse(form))
        except (UnreadableTerm, RecursionError):
            continue
    return MathAnswer(plain, tuple(parses))


def _normalise(text: str) -> str:
    text = text.replace("\\\\", "⏎")
    for theirs, ours in _NOTATIONS:
        text = text.replace(theirs, ours)
    # "or" and "and" between answers make a list, which is right only as a whole; other words with them a hedge.
    text = _WORDS.sub(_join_words, text)
    text = re.sub(r"(?<=[\d\s})])\s*\b(?:or|and)\b\s*", ",", text)
    text = re.sub(r",\s*,", ",", text)
    text = re.sub(r"(?<=\d),\s+(?=\d{3}(?:\D|$))", lambda match: ",\u200b", text)
    return text.replace(",\u200b", ", ").strip().rstrip(".").strip()


def _join_words(match: re.Match[str]) -> str:
    if match[1].strip(" ,") in ("or", "and"):
        return ","
    return HEDGE_MARK + match[0] if _HEDGE.search(match[1]) else match[0]


def _is_unit(words: str) -> bool:
    """Whether the words after a number are a unit, and neither a product of symbols nor a hedge."""
    first = re.findall(r"[A-Za-z]+", words)[0]
    touching = not words[:1].isspace()
    if len(first) <= (3 if touching else 2) and not _SHORT_UNIT.fullmatch(first):
        return False
    return not _HEDGE.search(words.rstrip("^{}23"))


def _without_units(text: str) -> str:
    """The text without units. A text of words only stays as it is."""
    if HEDGE_MARK in text:
        return ""
    bare = re.sub(_WORDS.pattern + r"(?:\^\{?\d\}?)?", " ", text)
    if re.search(r"[\dπ∞]|\\(?:frac|sqrt|pi)", bare):
        text = bare
    elif _WORDS.search(text):
        return ""
    stripped = text.rstrip(" .")
    if re.search(r"\d", stripped) and not _FUNCTION_WORD.search(stripped):
        unit = _UNIT.search(stripped)
        stripped = stripped[: unit.start()] if unit and _is_unit(unit[0]) else stripped
    return stripped


def _parse(text: str) -> AnswerParse:
    text = text.strip()
    pieces = list(_split(text, ","))
    if len(pieces) > 1:
        return _parse_list(pieces)
    if text.startswith("⦃") and text.endswith("⦄"):
        return _parse_list(list(_split(text[1:-1], ",")))
    if "±" in text or "∓" in text:
        if sum(map(text.count, "±∓")) > 2:
            raise UnreadableTerm("too many signs")
        swapped = (text.replace("±", sign).replace("∓", other) for sign, other in ("+-", "-+"))
        return _parse_list(list(swapped))
    if "∪" in text:
        return AnswerParse("list", tuple(_parse(piece) for piece in _split(text, "∪")), name="union")
    if matrix := _MATRIX.match(text.replace(" ", "")):
        return _parse_matrix(matrix[2])
    if "∈" in text:
        name, _, rest = text.partition("∈")
        if not _SYMBOL_NAME.match(name.strip()):
            raise UnreadableTerm("not a membership")
        return _parse(rest)
    sides = _RELATIONS.split(text)
    if len(sides) > 1:
        return _parse_relation([side.strip() for side in sides])
    inside = list(_split(text[1:-1], ",")) if text[:1] in "([" and text[-1:] in ")]" and text else []
    if len(inside) > 1 and len(inside) <= MAX_ELEMENTS:
        return AnswerParse("group", tuple(_parse(piece) for piece in inside), name=text[0] + text[-1])
    if (bare := text.replace(" ", "")).lstrip("+-") == "∞":
        return AnswerParse("edge", name=bare.lstrip("+"))
    percent = text.endswith("%")
    return AnswerParse("term", node=parse_term(_remove_spaces(text.rstrip("% "))), percent=percent)


def _remove_spaces(text: str) -> str:
    """Remove spaces; digits separated only by a space are a mixed number, thousands, or an error."""
    text = re.sub(r"(?<=\d) +(\d{1,6})/(\d{1,6})$", r"\\frac{\1}{\2}", text)
    if re.search(r"\d \d", text) and not re.fullmatch(r"-?\d{1,3}( \d{3})+(\.\d+)?", text):
        raise UnreadableTerm("two numbers side by side")
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


def _parse_list(pieces: list[str]) -> AnswerParse:
    if len(pieces) > MAX_ELEMENTS:
        raise UnreadableTerm("too many")
    parts: list[AnswerParse] = []
    for piece in pieces:
        part = _parse(piece)
        parts += part.parts if part.kind == "list" and part.name != "union" else [part]
    return AnswerParse("list", tuple(parts)) if len(parts) != 1 else parts[0]


def _parse_matrix(text: str) -> AnswerParse:
    rows = [[_parse(cell) for cell in row.split("&")] for row in text.split("⏎") if row]
    if len(rows) > MAX_ELEMENTS or len({len(row) for row in rows}) != 1:
        raise UnreadableTerm("not a matrix")
    return AnswerParse("matrix", tuple(AnswerParse("row", tuple(row)) for row in rows))


def _parse_relation(sides: list[str]) -> AnswerParse:
    """`x = 5`, `y = 2x + 3`, `2 < x <= 7`; signs and sides alternate."""
    signs = tuple(sides[1::2])
    expressions = list(sides[::2])
    if all(sign in "=~" for sign in signs):
        # A symbol on the left names the unknown that the answer is for.
        named = len(expressions) > 1 and _SYMBOL_NAME.match(expressions[0].replace(" ", "")) is not None
        parts = tuple(_parse(side) for side in expressions)
        return AnswerParse("relation", parts, name="".join(signs) + (":" if named else ""))
    if len(expressions) == 3 and _SYMBOL_NAME.match(expressions[1]) and len({sign[0] for sign in signs}) == 1:
        low, high = (expressions[0], expressions[2]) if signs[0][0] == "<" else (expressions[2], expressions[0])
        first, last = signs if signs[0][0] == "<" else signs[::-1]
        brackets = ("[" if first[1:] else "(") + ("]" if last[1:] else ")")
        return AnswerParse("group", (_parse(low), _parse(high)), name=brackets)
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "~": "~"}
    if signs[0][0] == ">":
        expressions, signs = expressions[::-1], tuple(turned[sign] for sign in signs[::-1])
    return AnswerParse("relation", tuple(_parse(side) for side in expressions), name=" ".join(signs))


def equal(answer: MathAnswer, gold: MathAnswer, *, worked: bool = True) -> bool:
    """Whether two answers are the same. `worked`: the given one must be worked out as far as the other is."""
    if answer.plain == gold.plain:
        return True
    return any(_matches(one, other, worked) for one in answer.parses for other in gold.parses)


def _matches(answer: AnswerParse, gold: AnswerParse, worked: bool) -> bool:
    try:
        return _equal(answer, gold, worked)
    except (UnreadableTerm, RecursionError, ArithmeticError):
        return False


def _equal(answer: AnswerParse, gold: AnswerParse, worked: bool) -> bool:
    if answer.kind == "relation" or gold.kind == "relation":
        return _relations_match(answer, gold, worked)
    if answer.kind != gold.kind or answer.name != gold.name or len(answer.parts) != len(gold.parts):
        return False
    if answer.kind == "list":
        return _same_elements(answer.parts, gold.parts, worked)
    if answer.kind != "term":
        return all(_equal(one, other, worked) for one, other in zip(answer.parts, gold.parts, strict=True))
    assert answer.node is not None and gold.node is not None
    return _same_term(answer, gold, answer.node, gold.node, worked)


def _same_term(answer: AnswerParse, gold: AnswerParse, one: Node, other: Node, worked: bool) -> bool:
    if worked and (
        count_open_operations(one) > count_open_operations(other)
        or count_summands(one) > count_summands(other)
        or count_factors(one) != count_factors(other)
    ):
        return False
    if worked and (
        len(unevaluated_parts(one)) > len(unevaluated_parts(other)) or one.symbols & CONSTANTS.keys() - other.symbols
    ):
        return False
    if terms_agree(one, other):
        return True
    if answer.percent == gold.percent or one.symbols - set(CONSTANTS):
        return False
    # A percentage may be asked for as a number or as a share.
    share, whole = (one, other) if answer.percent else (other, one)
    worth = evaluate(share)
    return isinstance(worth, Fraction) and worth / 100 == evaluate(whole)


def _same_elements(answers: Sequence[AnswerParse], gold: Sequence[AnswerParse], worked: bool) -> bool:
    unmatched = list(gold)
    for part in answers:
        match = next((number for number, other in enumerate(unmatched) if _matches(part, other, worked)), None)
        if match is None:
            return False
        del unmatched[match]
    return not unmatched


def _relations_match(answer: AnswerParse, gold: AnswerParse, worked: bool) -> bool:
    if answer.kind == gold.kind and not set(answer.name + gold.name) <= set("=~:"):
        pairs = zip(answer.parts, gold.parts, strict=False)
        alike = answer.name == gold.name and len(answer.parts) == len(gold.parts)
        return alike and all(_equal(one, other, worked) for one, other in pairs)
    if answer.kind == gold.kind and _proportional(answer, gold):
        return True
    if gold.kind == "relation":
        # `x = 5` may be answered by 5; another name in front is another answer.
        return gold.name == "=:" and answer.kind != "relation" and _equal(answer, gold.parts[1], worked)
    sides = answer.parts[1:] if answer.name.endswith(":") else answer.parts
    signs = answer.name.removesuffix(":")[-len(sides) + 1 :] if len(sides) > 1 else ""
    if not set(signs) <= set("=~"):
        return False
    exact = [side for number, side in enumerate(sides) if number == 0 or signs[number - 1] == "="]
    rounded = [side for side in sides if side not in exact]
    # Every side must be the answer: `41 = 42` offers two.
    return (
        _equal(exact[-1], gold, worked)
        and all(_equal(side, gold, False) for side in exact[:-1])
        and all(_approximately_equal(side, gold) for side in rounded)
    )


def _approximately_equal(one: AnswerParse, other: AnswerParse) -> bool:
    if one.node is None or other.node is None:
        return False
    near, exact = complex(evaluate(one.node)), complex(evaluate(other.node))
    return abs(near - exact) <= 0.01 * abs(exact)


def _proportional(answer: AnswerParse, gold: AnswerParse) -> bool:
    """Whether two equations say the same: their differences of sides are the same up to a factor that is not 0."""
    if any(len(side.parts) != 2 or any(part.node is None for part in side.parts) for side in (answer, gold)):
        return False
    nodes = [[part.node for part in side.parts if part.node is not None] for side in (answer, gold)]
    differences = [Node("add", (left, Node("neg", (right,)))) for left, right in nodes]
    names = [difference.symbols - set(CONSTANTS) for difference in differences]
    if names[0] != names[1] or not names[0]:
        return False
    ratios = []
    for at in sample_points(sorted(names[0]), repr(differences)):
        one, other = (evaluate(difference, at) for difference in differences)
        if one == 0 or other == 0:
            return False
        ratios.append(complex(one) / complex(other))
    return all(abs(one - other) <= 1e-9 * abs(one) for one, other in pairwise(ratios))
