"""A reward for final answers to mathematical questions: read by rules, compared exactly, and hard to hedge.

No answer is evaluated as code. What counts is one final answer, as a whole: an answer among others, an empty box and a
term that only repeats the question (`17+25` for 42) are worth 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tiltmeter.rewards import Scores, texts
from tiltmeter.rewards.answers import Answer, answers_in, equal, read_answer

Form = Literal["boxed", "hashes", "answer", "number"]
FORMS: tuple[Form, ...] = ("boxed", "hashes", "answer")


class Maths:
    """A verifier of mathematical answers, as a reward function: 1.0 if the final answer is the reference's, else 0.0.

    A policy that is paid for matches learns to offer many answers; this one pays for exactly one. A row whose reference
    is missing or cannot be read is None, because nobody knows what it is worth.

    >>> reward = maths()
    >>> reward(completions=["So it is \\\\boxed{\\\\frac12}.", "\\\\boxed{0.5} or \\\\boxed{1}"], answer=["1/2", "1/2"])
    [1.0, 0.0]
    """

    bounds: tuple[float | None, float | None] = (0.0, 1.0)
    components: tuple[str, ...] = ()

    def __init__(self, column: str, forms: Sequence[Form], several: Literal["refuse", "last"], worked: bool) -> None:
        self.__name__ = "maths"
        self.column, self.forms, self.several, self.worked = column, tuple(forms), several, worked
        self.told: dict[str, Scores] = {}
        self.infra: list[bool] = []

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.column, self.forms, self.several, self.worked)

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        if self.column not in columns:
            raise ValueError(f"maths() needs the column {self.column!r}; name yours: maths(column=...)")
        said, known = texts(completions), columns[self.column]
        if len(known) != len(said):
            raise ValueError(f"the column {self.column!r} has {len(known)} rows for {len(said)} completions")
        scores: Scores = [self.score(text, reference) for text, reference in zip(said, known, strict=True)]
        self.infra = [score is None for score in scores]
        return scores

    def score(self, text: str, reference: Any) -> float | None:
        """What one completion is worth; None if the reference is not an answer."""
        gold = reference_answer(reference)
        if gold is None:
            return None
        given = answers_in(text, self.forms)
        if not given:
            return 0.0
        if self.several == "last":
            given = given[-1:]
        answer = read_answer(given[0]) if len(set(given)) == 1 else _together(given, gold)
        return float(answer is not None and equal(answer, gold, worked=self.worked))


def maths(
    column: str = "answer",
    *,
    forms: Sequence[Form] = FORMS,
    several: Literal["refuse", "last"] = "refuse",
    worked: bool = True,
) -> Maths:
    """A reward that compares final answers with a column of the dataset.

    `forms`: where the final answer may stand; the first of them that the completion has counts: `boxed` (LaTeX),
    `hashes` (`#### 42`), `answer` (a line `Answer: 42`), `number` (the last number of the text, which is lenient).
    `several`: what several answers that differ are worth: `refuse` is 0, `last` lets the last one count, and then a
    policy may change its mind in public. `worked`: whether the answer must be worked out as far as the reference is.
    """
    if unknown := [form for form in forms if form not in (*FORMS, "number")]:
        raise ValueError(f"no such form: {unknown[0]!r}; there are {(*FORMS, 'number')}")
    return Maths(column, forms, several, worked)


def reference_answer(reference: Any) -> Answer | None:
    """The answer of a reference: bare, or the last line of a worked solution as GSM8K has it."""
    if reference is None or isinstance(reference, (bool, list, dict)):
        return None
    text = str(reference)
    found = answers_in(text, ("boxed", "hashes"))
    return read_answer(found[-1] if found else text)


def _together(given: list[str], gold: Answer) -> Answer | None:
    """Several answers that differ are one only if the reference is a list and they are that list.

    The same answer in two notations is still one answer.
    """
    read = [read_answer(text) for text in dict.fromkeys(given)]
    known = [answer for answer in read if answer is not None]
    if len(known) < len(read) or len(known) > 20:
        return None
    if all(equal(answer, known[0], worked=False) for answer in known):
        return known[-1]
    return read_answer(",".join(dict.fromkeys(given))) if gold.listed else None
