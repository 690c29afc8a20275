"""How far a term is worked out: counts operations, summands and factors left open, so that `17+25` is not an answer."""

from __future__ import annotations

import math
from fractions import Fraction

from tiltmeter.gold.checks.math_terms import CONSTANTS, FUNCTIONS, Node, Number, UnreadableTerm, evaluate


def count_open_operations(node: Node) -> int:
    """How many operations between plain numbers are not carried out: `17+25` is not simplified.

    >>> from tiltmeter.gold.checks.math_terms import parse_term
    >>> texts = ("42", "\\\\frac{3}{4}", "6.7*10^{-5}", "2\\\\sqrt{3}", "17+25", "6/3")
    >>> [count_open_operations(parse_term(text)) for text in texts]
    [0, 0, 0, 0, 1, 1]
    >>> count_open_operations(parse_term("\\\\sqrt{180}")), count_open_operations(parse_term("6\\\\sqrt{5}"))
    (1, 0)
    """
    return _count_and_evaluate(node)[0]


def _count_and_evaluate(node: Node) -> tuple[int, Number | None]:
    """The number of open operations in a term, and its value if it has no symbols, in one pass."""
    below = [_count_and_evaluate(part) for part in node.parts]
    count = sum(done for done, _ in below)
    try:
        result = None if any(worth is None for _, worth in below) else evaluate(_shallow(node, below))
    except UnreadableTerm:
        return count, None  # a symbol, or nothing finite
    plain = isinstance(result, Fraction) and all(isinstance(worth, Fraction) for _, worth in below)
    if node.does == "sqrt" and not plain and isinstance(below[0][1], Fraction):
        return count + int(_has_square(below[0][1])), result
    if not plain or node.does in ("num", "neg", "mixed"):
        return count, result
    if node.does == "div" and all(part.does == "num" and part.number.denominator == 1 for part in node.parts):
        above, under = (int(part.number) for part in node.parts)
        return count + int(under == 1 or math.gcd(above, under) != 1), result
    if node.does == "mul" and len(node.parts) == 2 and _ten(node.parts[1]) and node.parts[0].does == "num":
        return 0, result  # scientific form
    return count + 1, result


def _has_square(number: Fraction) -> bool:
    """Whether a whole number is divisible by the square of a small one, which belongs before the root."""
    size = abs(number.numerator)
    return number.denominator == 1 and any(size % (k * k) == 0 for k in range(2, min(math.isqrt(size), 1000) + 1))


def unevaluated_parts(node: Node) -> frozenset[Node]:
    """The functions, roots and powers of constants in a term whose value is not an exact number.

    `\\arctan 1` has the value of `\\pi/4` and asks for it; `i^2` has that of -1.

    >>> from tiltmeter.gold.checks.math_terms import parse_term
    >>> texts = ("e^{\\\\ln42}", "2\\\\sqrt3+\\\\sqrt3", "\\\\cos(x)", "\\\\sqrt{16}")
    >>> [len(unevaluated_parts(parse_term(text))) for text in texts]
    [2, 1, 0, 0]
    """
    open_parts = set()
    for part in node:
        if (part.does == "pow" or part.does in FUNCTIONS) and part.symbols <= CONSTANTS.keys():
            try:
                exact = isinstance(evaluate(part), Fraction)
            except UnreadableTerm:
                exact = False
            if not exact:
                open_parts.add(part)
    return frozenset(open_parts)


def _shallow(node: Node, below: list[tuple[int, Number | None]]) -> Node:
    """The same operation with each part replaced by its exact value, where it has one."""
    parts = (
        Node("num", number=worth) if isinstance(worth, Fraction) else part
        for part, (_, worth) in zip(node.parts, below, strict=True)
    )
    return Node(node.does, tuple(parts), node.number, node.name)


def _ten(node: Node) -> bool:
    return node.does == "pow" and node.parts[0].number == 10 and node.parts[1].does in ("num", "neg")


def count_summands(node: Node) -> int:
    """How many summands a term has once expanded: `3x+2x` has two, and `5x` has one."""
    if node.does == "add":
        return sum(count_summands(part) for part in node.parts)
    if node.does == "mul":
        return math.prod(count_summands(part) for part in node.parts)
    if node.does in ("neg", "div"):
        return count_summands(node.parts[0])
    if node.does == "pow" and node.parts[1].does == "num" and node.parts[1].number <= 8:
        return int(count_summands(node.parts[0]) ** int(node.parts[1].number))
    return 1


def count_factors(node: Node) -> int:
    """How many sums are multiplied with each other; one alone is no factorisation."""
    parts = node.parts if node.does in ("mul", "div", "neg") else (node,) if node.does == "pow" else ()
    sums = [part.parts[0] if part.does == "pow" and part.parts else part for part in parts]
    count = sum(1 for part in sums if part.does == "add" and part.symbols)
    return count if count > 1 else 0
