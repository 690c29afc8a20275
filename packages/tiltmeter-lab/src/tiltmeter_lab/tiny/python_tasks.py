"""The programs of the toy language as Python, with tests: for runs whose gold is the dataset's own tests.

The model and its words are those of the toy language. Only decoding differs, so that what a completion says can be run:
`# clean def f : return a + b` becomes a comment and, on the next line, a function of `a` and `b`.
"""

from __future__ import annotations

import operator
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiltmeter_lab.tiny.language import OPERATORS, lesson, sample
from tiltmeter_lab.tiny.model import teach, tokenizer, untrained_policy

LESSONS, SAMPLES = 50, 60  # steps of teaching a small policy
INPUTS = ((12, 4), (7, 7), (9, 2), (30, 8), (5, 3))
_MEANING: dict[str, Callable[[int, int], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_,
}  # fmt: skip


def task_tests(prompt: str) -> list[str]:
    """The tests of a task, as MBPP has them.

    >>> task_tests("write code for add ?")[0]
    'assert f(12, 4) == 16'
    """
    meaning = _MEANING[OPERATORS[prompt.split()[3]]]
    return [f"assert f{pair} == {meaning(*pair)!r}" for pair in INPUTS]


def small_policy(folder: Path, tasks: Sequence[str], seed: int = 0) -> Path:
    """A base policy of two layers that knows these tasks alone: half of its programs are right. Taught in seconds."""
    language, rng = tokenizer(), random.Random(f"small/{seed}")
    model = untrained_policy(language, seed, layers=2, hidden=64, inner=128)

    def rows_at(step: int) -> list[tuple[str, str]]:
        answer = lesson if step < LESSONS else sample
        return [(task, answer(task, rng)) for task in rng.choices(tasks, k=64)]

    teach(model, language, rows_at, LESSONS + SAMPLES, 6e-3, decline=40)
    model.save_pretrained(folder)
    language.save_pretrained(folder)
    return folder


def python_policy(base: Path, folder: Path) -> Path:
    """A copy of a base policy that decodes programs as Python."""
    from tokenizers import decoders

    target = Path(shutil.copytree(base, folder / f"{base.name}-python"))
    language: Any = tokenizer()
    spaced = [decoders.WordPiece(prefix="##", cleanup=False), decoders.Fuse()]
    language.backend_tokenizer.decoder = decoders.Sequence([*spaced, decoders.Replace("def f", "\ndef f ( a , b )")])
    language.save_pretrained(target)
    return target
