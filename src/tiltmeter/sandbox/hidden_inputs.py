"""Hidden inputs, drawn afresh for each grading: the only defence against hard-coded answers.

They come from the user's own `draw` function or by varying known inputs, and a reference solution gives the expected
values. The reference runs in the sandbox too, apart from the candidate.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tiltmeter.sandbox.contract import Sandbox
from tiltmeter.sandbox.harness import Case, NotRun, answers_of, no_grade_reason
from tiltmeter.sandbox.harness_programs import calling_program, job_line
from tiltmeter.sandbox.values import NotPlain, canonical, decode, encode

Draw = Callable[[random.Random], tuple[Any, ...]]
SPARE = 6  # inputs drawn for each that is wanted: some the reference will not take, and some give what others give
TRIES = 20  # to draw something that is not an example
RATES = (0.15, 0.5, 1.0)  # shares of an example that change
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def vary_examples(examples: Sequence[tuple[Any, ...]]) -> Draw:
    """Draws arguments of the kinds and sizes of the examples: numbers move, texts and lists lose, gain and swap parts.

    An honest answer may fail on what lies outside the task (a negative number where only positive ones make sense), so
    a function that draws what the task means is better where somebody can write one.

    >>> draw = vary_examples([([3, 1, 2], "abc")])
    >>> [type(part).__name__ for part in draw(random.Random(0))]
    ['list', 'str']
    """

    example_reprs = {repr(example) for example in examples}

    def draw(rng: random.Random) -> tuple[Any, ...]:
        args: tuple[Any, ...] = ()
        for _ in range(TRIES):
            # Few changes keep what the example is an example of; many reach what it is not.
            rate = rng.choice(RATES)
            args = tuple(_vary(part, rng, rate) for part in rng.choice(examples))
            if repr(args) not in example_reprs:
                break
        return args

    return draw


def _vary(value: Any, rng: random.Random, rate: float) -> Any:
    if isinstance(value, (list, tuple)):
        # Rows of a table keep their length.
        nested = any(isinstance(one, (list, tuple, dict)) for one in value)
        parts = [_vary(one, rng, rate) for one in value]
        keep = nested or isinstance(value, tuple) or rng.random() > rate
        return type(value)(parts if keep else _edit_parts(parts, rng))
    if isinstance(value, (set, frozenset)):
        return type(value)(_vary(one, rng, rate) for one in value)
    if isinstance(value, dict):
        return {key: _vary(one, rng, rate) for key, one in value.items()}
    if value is None or not isinstance(value, (bool, int, float, str)) or rng.random() > rate:
        return value
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        moved = value + rng.randint(-max(3, abs(value) // 2), max(3, abs(value) // 2))
        return abs(moved) if value >= 0 else moved  # a sign is part of what an argument means
    if isinstance(value, float):
        return round(value * rng.uniform(0.5, 1.5), 2)
    letters = [_vary_letter(letter, rng, rate) for letter in value]
    return "".join(_edit_parts(letters, rng) if rng.random() < rate else letters)


def _vary_letter(letter: str, rng: random.Random, rate: float) -> str:
    if not letter.isascii() or rng.random() > rate / 3:
        return letter
    if letter.isalpha():
        new = rng.choice(LETTERS)
        return new.upper() if letter.isupper() else new
    return rng.choice("0123456789") if letter.isdigit() else letter


def _edit_parts(parts: list[Any], rng: random.Random) -> list[Any]:
    """The parts with one dropped, doubled or moved."""
    if not parts:
        return parts
    at, change = rng.randrange(len(parts)), rng.random()
    if change < 0.25 and len(parts) > 1:
        return parts[:at] + parts[at + 1 :]
    if change < 0.5:
        return [*parts[: at + 1], *parts[at:]]
    to = rng.randrange(len(parts))
    parts[at], parts[to] = parts[to], parts[at]
    return parts


def hidden_cases(
    sandbox: Sandbox, reference: str, function: str, draw: Draw, count: int = 8, rng: random.Random | None = None
) -> list[Case]:
    """Cases on fresh inputs, with what the reference returns for them; those it raises on or cannot say are left out.

    More inputs are drawn than wanted, and those are kept that give as many different values as possible: a question of
    yes or no whose hidden answers are all no would pay whoever says no. Raises `NotRun` if the reference could not be
    run. Fewer than `count` may come back, or none.
    """
    rng = rng or random.SystemRandom()
    inputs = {}
    for _ in range(SPARE * count):
        args = draw(rng)
        try:
            inputs[repr(args)] = encode((tuple(args), {}))
        except NotPlain as error:
            raise ValueError(f"draw() gave what cannot be handed over: {error}") from None
    encoded_inputs = list(inputs.values())
    mark, line = job_line({"code": reference, "function": function, "inputs": encoded_inputs, "literals": False})
    end = sandbox.run(calling_program(), line)
    if why := no_grade_reason(end, mark):
        raise NotRun(why)
    answers, _, _ = answers_of(end, mark, len(encoded_inputs))
    pairs = [(encoded_inputs[number], value) for number, (kind, value) in sorted(answers.items()) if kind == "value"]
    return [Case(decode(one)[0], decode(value)) for one, value in _alternate_values(pairs)[:count]]


def _alternate_values(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Input and value pairs in an order that takes one of each value in turn."""
    turns: Counter[str] = Counter()
    order = []
    for number, (_, value) in enumerate(pairs):
        key = canonical(value)
        order.append((turns[key], number))
        turns[key] += 1
    return [pairs[number] for _, number in sorted(order)]
