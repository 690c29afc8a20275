"""Divides the tests of a task: those that are paid on, and those that are kept back as gold."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tiltmeter.gold.checks.code_tasks import TaskTests
from tiltmeter.sandbox.values import canonical


def divide_tests(tests: TaskTests, share: float) -> tuple[TaskTests, TaskTests]:
    """The tests to pay on and the tests to keep back: of the inputs about this share, at least one of each.

    Which ones follows from a hash of the function's name and the input, so every rank, the monitor and a later process
    divide alike, and the order of the tests does not matter. Tests with one input, and tests that are a program and no
    list of cases, cannot be divided: nothing is kept back.

    >>> from tiltmeter.sandbox.harness import Case
    >>> paid, rest = divide_tests(TaskTests("f", tuple(Case((k,), k) for k in range(10))), 0.3)
    >>> len(paid.cases), len(rest.cases)
    (7, 3)
    """
    inputs = [canonical(case.encoded_input) for case in tests.cases]
    ranked = sorted(set(inputs), key=lambda text: _digest(tests.function, text))
    count = min(max(1, round(share * len(ranked))), len(ranked) - 1) if share > 0.0 and ranked else 0
    chosen = set(ranked[:count])
    kept_cases = tuple(case for case, text in zip(tests.cases, inputs, strict=True) if text in chosen)
    paid_cases = tuple(case for case, text in zip(tests.cases, inputs, strict=True) if text not in chosen)
    return replace(tests, cases=paid_cases), replace(tests, cases=kept_cases)


def _digest(function: str, text: str) -> bytes:
    return hashlib.sha256(f"{function} {text}".encode("utf-8", "surrogatepass")).digest()
