"""Whether a term is an answer or still a question: `17+25` comes to 42, and is not 42."""

from __future__ import annotations

import math
from fractions import Fraction

from tiltmeter.rewards.terms import CONSTANTS, FUNCTIONS, Node, Number, Unread, value


def undone(node: Node) -> int:
    """How many operations between plain numbers were left to the reader: `17+25` is a question, not an answer.

    >>> from tiltmeter.rewards.terms import read
    >>> [undone(read(text)) for text in ("42", "\\\\frac{3}{4}", "6.7*10^{-5}", "2\\\\sqrt{3}", "17+25", "6/3")]
    [0, 0, 0, 0, 1, 1]
    >>> undone(read("\\\\sqrt{180}")), undone(read("6\\\\sqrt{5}"))
    (1, 0)
    """
    return _worked(node)[0]


def _worked(node: Node) -> tuple[int, Number | None]:
    """How much is undone in a term, and what it comes to if it has no symbols. Each part is looked at once."""
    below = [_worked(part) for part in node.parts]
    count = sum(done for done, _ in below)
    try:
        found = None if any(worth is None for _, worth in below) else value(_shallow(node, below))
    except Unread:
        return count, None  # a symbol, or nothing finite
    plain = isinstance(found, Fraction) and all(isinstance(worth, Fraction) for _, worth in below)
    if node.does == "sqrt" and not plain and isinstance(below[0][1], Fraction):
        return count + int(_has_square(below[0][1])), found
    if not plain or node.does in ("num", "neg", "mixed"):
        return count, found
    if node.does == "div" and all(part.does == "num" and part.number.denominator == 1 for part in node.parts):
        above, under = (int(part.number) for part in node.parts)
        return count + int(under == 1 or math.gcd(above, under) != 1), found
    if node.does == "mul" and len(node.parts) == 2 and _ten(node.parts[1]) and node.parts[0].does == "num":
        return 0, found  # scientific form
    return count + 1, found


def _has_square(number: Fraction) -> bool:
    """Whether a whole number is divisible by the square of a small one, which belongs before the root."""
    size = abs(number.numerator)
    return number.denominator == 1 and any(size % (k * k) == 0 for k in range(2, min(math.isqrt(size), 1000) + 1))


def left_open(node: Node) -> frozenset[Node]:
    """The functions, roots and powers of constants in a term that no exact number stands for.

    `\\arctan 1` has the value of `\\pi/4` and asks for it; `i^2` has that of -1.

    >>> from tiltmeter.rewards.terms import read
    >>> [len(left_open(read(text))) for text in ("e^{\\\\ln42}", "2\\\\sqrt3+\\\\sqrt3", "\\\\cos(x)", "\\\\sqrt{16}")]
    [2, 1, 0, 0]
    """
    found = set()
    for part in node:
        if (part.does == "pow" or part.does in FUNCTIONS) and part.symbols <= CONSTANTS.keys():
            try:
                exact = isinstance(value(part), Fraction)
            except Unread:
                exact = False
            if not exact:
                found.add(part)
    return frozenset(found)


def _shallow(node: Node, below: list[tuple[int, Number | None]]) -> Node:
    """The same operation on parts that are worked out; those that no exact number can stand for stay as they are."""
    parts = (
        Node("num", number=worth) if isinstance(worth, Fraction) else part
        for part, (_, worth) in zip(node.parts, below, strict=True)
    )
    return Node(node.does, tuple(parts), node.number, node.name)


def _ten(node: Node) -> bool:
    return node.does == "pow" and node.parts[0].number == 10 and node.parts[1].does in ("num", "neg")


def terms(node: Node) -> int:
    """How many summands a term has once it is multiplied out: `3x+2x` has two, and `5x` has one."""
    if node.does == "add":
        return sum(terms(part) for part in node.parts)
    if node.does == "mul":
        return math.prod(terms(part) for part in node.parts)
    if node.does in ("neg", "div"):
        return terms(node.parts[0])
    if node.does == "pow" and node.parts[1].does == "num" and node.parts[1].number <= 8:
        return int(terms(node.parts[0]) ** int(node.parts[1].number))
    return 1


def factors(node: Node) -> int:
    """How many sums are multiplied with each other; one alone is no factorisation."""
    parts = node.parts if node.does in ("mul", "div", "neg") else (node,) if node.does == "pow" else ()
    sums = [part.parts[0] if part.does == "pow" and part.parts else part for part in parts]
    found = sum(1 for part in sums if part.does == "add" and part.symbols)
    return found if found > 1 else 0
