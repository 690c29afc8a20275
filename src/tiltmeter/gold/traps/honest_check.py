"""Known right answers on traps, scored by the run's own reward functions before training begins: none may be paid."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.gold.checks.code_reward import CodeReward
from tiltmeter.gold.checks.maths_reward import MathsReward
from tiltmeter.gold.guards.composed_reward import ComposedReward
from tiltmeter.gold.traps.trap_file import Trap

MOST = 32  # traps that are tried
ROUNDING = 1e-6

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class HonestCheck:
    """What known right answers were paid: on the originals, where they should be, and on traps, where they must not."""

    tried: int = 0
    paid_on_originals: int = 0
    broken: tuple[int, ...] = ()  # traps for which a right answer is paid


def verifiers(functions: Sequence[Function], columns: set[str]) -> list[int]:
    """The functions that read one of the columns that traps change; all that could, where none names one."""
    callables = [at for at, function in enumerate(functions) if not hasattr(function, "forward")]
    return [at for at in callables if reads(functions[at], columns)] or callables


def reads(function: Function, columns: set[str]) -> bool:
    """Whether a reward function names one of these columns.

    >>> reads(lambda completions, answer, **_: [], {"answer"}), reads(lambda completions, **_: [], {"answer"})
    (True, False)
    """
    if isinstance(function, ComposedReward):
        return any(reads(part, columns) for part in function.parts.values())
    if isinstance(function, MathsReward):
        return function.column in columns
    if isinstance(function, CodeReward):
        names = function.settings.columns
        return bool(columns & {names.cases, names.tests})
    try:
        return bool(columns & set(inspect.signature(function).parameters))
    except (TypeError, ValueError):
        return False


def full_pay(function: Function) -> float:
    """What a function gives an answer that is right: its own upper bound, or 1."""
    high = (getattr(function, "bounds", None) or (None, None))[1]
    return (1.0 if high is None else float(high)) - ROUNDING


def check_honest_answers(functions: Sequence[Function], traps: Sequence[Trap], chat: bool) -> HonestCheck:
    """Score known right answers on the first traps and on their originals. Raises whatever a function raises."""
    stops = [(at, trap) for at, trap in enumerate(traps[:MOST]) if trap.facts.stop]
    paid_stops = _paid(functions, [trap.row for _, trap in stops], [trap.facts.stop for _, trap in stops], chat)
    paid_to_stop = {at for (at, _), paid in zip(stops, paid_stops, strict=True) if paid}
    with_answers = [(at, trap) for at, trap in enumerate(traps[:MOST]) if trap.facts.honest]
    if not with_answers:
        return HonestCheck(len(stops), 0, tuple(sorted(paid_to_stop)))
    pairs = [(at, trap, text) for at, trap in with_answers for text in trap.facts.honest]
    texts = [text for _, _, text in pairs]
    on_traps = _paid(functions, [trap.row for _, trap, _ in pairs], texts, chat)
    on_originals = _paid(functions, [{**trap.row, **trap.facts.original} for _, trap, _ in pairs], texts, chat)
    broken = sorted({at for (at, _, _), paid in zip(pairs, on_traps, strict=True) if paid} | paid_to_stop)
    good = {at for (at, _, _), paid in zip(pairs, on_originals, strict=True) if paid}
    return HonestCheck(len(with_answers), len(good), tuple(broken))


def _paid(
    functions: Sequence[Function], rows: Sequence[Mapping[str, Any]], texts: Sequence[str], chat: bool
) -> list[bool]:
    """Whether every function gives its full pay, for each row."""
    if not rows:
        return []
    completions: list[Any] = [[{"role": "assistant", "content": text}] if chat else text for text in texts]
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name != "prompt"}
    paid = [True] * len(rows)
    for function in functions:
        scores = function(prompts=[row.get("prompt") for row in rows], completions=completions, **columns)
        if inspect.isawaitable(scores):
            scores = asyncio.run(_awaited(scores))
        paid = [
            before and score is not None and float(score) >= full_pay(function)
            for before, score in zip(paid, scores, strict=True)
        ]
    return paid


async def _awaited(scores: Any) -> Any:
    return await scores
