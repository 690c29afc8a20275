"""A parser and evaluator for numbers and terms in LaTeX or plain notation; nothing is evaluated as code.

What is rational stays exact (`Fraction`); what is not is a complex number. Everything is bounded: the length of a term,
its nesting, and the size of any power or factorial, so that a hostile answer costs no more than an honest one.
"""

from __future__ import annotations

import cmath
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 600  # characters of a term
DEEPEST = 40
BITS = 20_000  # of any exact number
CLOSE = 1e-9  # relative; two terms that agree so far at every point are the same
POINTS = 4

Number = Fraction | complex


class UnreadableTerm(ValueError):  # noqa: N818  # a finding about a text
    """Not a term that can be read."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a term: what it does, to which parts, and its number or name if it is one."""

    does: str  # num sym add mul div pow neg fact abs mixed base, or the name of a function
    parts: tuple[Node, ...] = ()
    number: Fraction = Fraction(0)
    name: str = ""

    def __iter__(self) -> Iterator[Node]:
        """This part and every part below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.parts

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(node.name for node in self if node.does == "sym")


FUNCTIONS = {
    **{name: getattr(cmath, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp")},
    **{f"arc{name}": getattr(cmath, f"a{name}") for name in ("sin", "cos", "tan")},
    "ln": cmath.log,
    "log": cmath.log10,
    "sec": lambda value: 1 / cmath.cos(value),
    "csc": lambda value: 1 / cmath.sin(value),
    "cot": lambda value: 1 / cmath.tan(value),
    "sqrt": cmath.sqrt,
}
CONSTANTS = {"pi": complex(math.pi), "e": complex(math.e), "i": 1j}
GREEK = ("alpha", "beta", "gamma", "delta", "theta", "phi", "lambda", "mu", "omega", "rho", "sigma", "tau", "varphi")
_COMMANDS = sorted((*FUNCTIONS, *GREEK, "pi", "frac"), key=len, reverse=True)
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}


def parse_term(text: str) -> Node:
    """A term from a text without spaces or commas. Raises `UnreadableTerm`.

    >>> evaluate(parse_term("1\\\\frac{4}{5}")), evaluate(parse_term("2^{10}-24"))
    (Fraction(9, 5), Fraction(1000, 1))
    """
    if not text or len(text) > LONGEST:
        raise UnreadableTerm("empty or too long")
    reader = _TermParser(text)
    node = reader.sum()
    if reader.at != len(text):
        raise UnreadableTerm(f"{text[reader.at : reader.at + 20]!r} is not part of a term")
    return node


class _TermParser:
    """Recursive descent over the characters; LaTeX's `\\frac43` has no tokens."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, *words: str) -> str:
        for word in words:
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return word
        return ""

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableTerm("too deep")
        terms = [self.product()]
        while sign := self.take("+", "-"):
            term = self.product()
            terms.append(term if sign == "+" else Node("neg", (term,)))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def product(self) -> Node:
        left = self.signed_factor()
        while self.peek() and self.peek() not in "+-)]}|,=<>":
            if self.take("/", "\\div"):
                left = Node("div", (left, self.signed_factor()))
            elif self.take("*"):
                left = _times(left, self.signed_factor())
            else:
                left = _juxtapose(left, self.power())
        return left

    def signed_factor(self) -> Node:
        minus = False
        while sign := self.take("+", "-"):
            minus ^= sign == "-"
        factor = self.power()
        return Node("neg", (factor,)) if minus else factor

    def power(self) -> Node:
        base = self.atom()
        while self.take("!"):
            base = Node("fact", (base,))
        return Node("pow", (base, self.exponent())) if self.take("^") else base

    def exponent(self) -> Node:
        if self.peek() == "{":
            return self.group()
        return Node("neg", (self.atom(),)) if self.take("-") else self.atom()

    def group(self) -> Node:
        close = _CLOSING.get(self.peek())
        if close is None:
            raise UnreadableTerm("a bracket is missing")
        self.at += 1
        inside = self.sum()
        if not self.take(close):
            raise UnreadableTerm("a bracket is not closed")
        return inside

    def atom(self) -> Node:
        first = self.peek()
        if first.isascii() and (first.isdigit() or first == "."):
            return self.numeral()
        if first in "([{" and first:
            return self.group()
        if first == "|":
            return Node("abs", (self.group(),))
        if first == "\\":
            return self.command()
        if first.isascii() and first.isalpha():
            if word := self.take("sqrt", "pi", *(name for name in FUNCTIONS if len(name) > 2)):
                return Node("sym", name=word) if word == "pi" else self.apply_function(word)
            self.at += 1
            return self.symbol(first)
        raise UnreadableTerm(f"{first!r} is not the beginning of a term")

    def numeral(self) -> Node:
        start = self.at
        while self.peek().isascii() and self.peek().isdigit():
            self.at += 1
        if self.text[self.at : self.at + 1] == "." and self.text[self.at + 1 : self.at + 2].isdigit():
            self.at += 1
            while self.peek().isascii() and self.peek().isdigit():
                self.at += 1
        digits = self.text[start : self.at]
        if not digits:
            raise UnreadableTerm("a point is not a number")
        if self.take("_"):
            base = self.group() if self.peek() == "{" else self.numeral()
            return Node("base", name=f"{digits.lstrip('0')}_{evaluate(base)}")
        return Node("num", number=Fraction(digits))

    def symbol(self, name: str) -> Node:
        if self.take("_"):
            start = self.at
            self.group() if self.peek() == "{" else self.atom()
            name = f"{name}_{self.text[start : self.at].strip('{}')}"
        return Node("sym", name=name)

    def command(self) -> Node:
        self.at += 1
        # By the names that are known, longest first: the space in `\\cot x` is gone by now.
        name = self.take(*_COMMANDS)
        if name == "frac":
            return Node("div", (self.argument(), self.argument()))
        if name == "sqrt" and self.take("["):
            root = self.sum()
            if not self.take("]"):
                raise UnreadableTerm("a root is not closed")
            return Node("pow", (self.argument(), Node("div", (Node("num", number=Fraction(1)), root))))
        if name in FUNCTIONS:
            return self.apply_function(name)
        if name == "pi" or name in GREEK:
            return self.symbol(name)
        raise UnreadableTerm("a command that is not known")

    def apply_function(self, name: str) -> Node:
        if name == "sqrt":
            return Node("sqrt", (self.argument(),))
        exponent = self.exponent() if self.take("^") else None
        operand = self.group() if self.peek() in "({[" and self.peek() else self.power()
        call = Node(name, (operand,))
        return call if exponent is None else Node("pow", (call, exponent))

    def argument(self) -> Node:
        """A group, or one character: `\\frac43` is four thirds."""
        if self.peek() in "{(" and self.peek():
            return self.group()
        if self.peek().isascii() and self.peek().isdigit():
            self.at += 1
            return Node("num", number=Fraction(self.text[self.at - 1]))
        return self.atom()


def _times(left: Node, right: Node) -> Node:
    return Node("mul", (*(left.parts if left.does == "mul" else (left,)), right))


def _juxtapose(left: Node, right: Node) -> Node:
    """Two terms side by side: a mixed number if that is what they look like, else a product."""
    whole = left.does == "num" and left.number.denominator == 1
    fraction = right.does == "div" and all(part.does == "num" and part.number.denominator == 1 for part in right.parts)
    if whole and fraction:
        return Node("mixed", (left, right))
    if right.does == "num" and left.does in ("num", "mixed"):
        raise UnreadableTerm("two numbers side by side")
    return _times(left, right)


def evaluate(node: Node, at: Mapping[str, Fraction] | None = None) -> Number:
    """The value of a term with its symbols at these values. Raises `UnreadableTerm` where there is no finite value."""
    try:
        result = _evaluate(node, at or {})
    except (ZeroDivisionError, OverflowError, ValueError, KeyError, RecursionError) as error:
        raise UnreadableTerm(str(error)) from None
    if isinstance(result, complex) and not (cmath.isfinite(result) and abs(result) < 1e100):
        raise UnreadableTerm("not finite")
    if isinstance(result, Fraction) and _bits(result) > BITS:
        raise UnreadableTerm("too large")
    return result


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _evaluate(node: Node, at: Mapping[str, Fraction]) -> Number:
    if node.does == "num":
        return node.number
    if node.does == "sym":
        return CONSTANTS[node.name] if node.name in CONSTANTS and node.name not in at else at[node.name]
    parts = [evaluate(part, at) for part in node.parts]
    first = parts[0] if parts else Fraction(0)
    if node.does in ("add", "mixed"):
        return _fold(parts, lambda one, other: one + other)
    if node.does == "mul":
        return _fold(parts, lambda one, other: one * other)
    if node.does == "neg":
        return -first
    if node.does == "div":
        return _fold(parts, lambda one, other: one / other)
    if node.does == "pow":
        return _power(first, parts[1])
    if node.does == "abs":
        return abs(first) if isinstance(first, Fraction) else complex(abs(first))
    if node.does == "fact":
        if not isinstance(first, Fraction) or first.denominator != 1 or not 0 <= first <= 500:
            raise UnreadableTerm("not a factorial")
        return Fraction(math.factorial(int(first)))
    if node.does == "sqrt":
        return _power(first, Fraction(1, 2))
    if node.does not in FUNCTIONS:
        raise UnreadableTerm(f"{node.does} has no value")
    return complex(FUNCTIONS[node.does](complex(first)))


def _fold(parts: list[Number], does: object) -> Number:
    total = parts[0]
    for part in parts[1:]:
        exact = isinstance(total, Fraction) and isinstance(part, Fraction)
        total = does(total, part) if exact else does(complex(total), complex(part))  # type: ignore[operator]
        if isinstance(total, Fraction) and _bits(total) > BITS:
            raise UnreadableTerm("too large")
    return total


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            if abs(exponent) * _bits(base) > BITS:
                raise UnreadableTerm("too large")
            return Fraction(base ** int(exponent))
        if base >= 0 and abs(exponent.numerator) <= 16 and exponent.denominator <= 16:
            root = Fraction(*(_root(part, exponent.denominator) for part in (base.numerator, base.denominator)))
            if root**exponent.denominator == base:
                return Fraction(root**exponent.numerator)
        if base < 0 and exponent.denominator % 2:
            return complex(-((-complex(base)) ** complex(exponent)).real)  # the real root, as taught in school
    return complex(base) ** complex(exponent)


def _root(number: int, degree: int) -> int:
    """The whole root nearest below, of a number of bounded size."""
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle)
    return low


def terms_agree(one: Node, other: Node) -> bool:
    """Whether two terms are equal for all values of their symbols, tested at fixed pseudo-random points.

    >>> terms_agree(parse_term("(a+5)(b+2)"), parse_term("ab+2a+5b+10"))
    True
    >>> terms_agree(parse_term("\\\\sqrt{8}"), parse_term("2\\\\sqrt2"))
    True
    """
    if any(node.does == "base" for part in (one, other) for node in part):
        return one == other
    names = sorted((one.symbols | other.symbols) - set(CONSTANTS))
    if one.symbols - set(CONSTANTS) != other.symbols - set(CONSTANTS):
        return False
    places = sample_points(names, repr((one, other)))
    if any(node.does == "abs" for part in (one, other) for node in part):
        places += [{name: -number for name, number in at.items()} for at in places]  # where |x| is not x
    return all(close(evaluate(one, at), evaluate(other, at)) for at in places)


def sample_points(names: list[str], seed: str) -> list[dict[str, Fraction]]:
    """The rational points at which terms are compared: from a hash of the pair, so that no answer can choose them."""
    places = []
    for number in range(POINTS if names else 1):
        at = {}
        for name in names:
            digest = hashlib.sha256(f"{number} {name} {seed}".encode("utf-8", "replace")).digest()
            at[name] = 1 + Fraction(int.from_bytes(digest[:2], "big"), 40_009)
        places.append(at)
    return places


def close(one: Number, other: Number) -> bool:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    one, other = complex(one), complex(other)
    return abs(one - other) <= max(CLOSE * max(abs(one), abs(other)), 1e-13)
