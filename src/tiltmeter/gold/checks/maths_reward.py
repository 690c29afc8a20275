"""`maths`: a rule-based verifier of final answers to maths questions, with exact comparison and no credit for hedging.

No answer is evaluated as code. What counts is one final answer, as a whole: an answer among others, an empty box and a
term that only repeats the question (`17+25` for 42) are worth 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tiltmeter.gold.checks.math_answers import MathAnswer, equal, extract_answers, read_answer
from tiltmeter.gold.guards.reward import Scores, texts

Form = Literal["boxed", "hashes", "answer", "number"]
FORMS: tuple[Form, ...] = ("boxed", "hashes", "answer")


class MathsReward:
    """A verifier of mathematical answers, as a reward function: 1.0 if the final answer is the reference's, else 0.0.

    A policy that is paid for any match learns to list many answers; this verifier accepts exactly one. A row whose
    reference is missing or cannot be parsed is None.

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
        completion_texts, references = texts(completions), columns[self.column]
        if len(references) != len(completion_texts):
            raise ValueError(
                f"the column {self.column!r} has {len(references)} rows for {len(completion_texts)} completions"
            )
        scores: Scores = [
            self.score(text, reference) for text, reference in zip(completion_texts, references, strict=True)
        ]
        self.infra = [score is None for score in scores]
        return scores

    def score(self, text: str, reference: Any) -> float | None:
        """The score of one completion; None if the reference cannot be parsed."""
        gold = reference_answer(reference)
        if gold is None:
            return None
        answers = extract_answers(text, self.forms)
        if not answers:
            return 0.0
        if self.several == "last":
            answers = answers[-1:]
        answer = read_answer(answers[0]) if len(set(answers)) == 1 else _merge_answers(answers, gold)
        return float(answer is not None and equal(answer, gold, worked=self.worked))


def maths(
    column: str = "answer",
    *,
    forms: Sequence[Form] = FORMS,
    several: Literal["refuse", "last"] = "refuse",
    worked: bool = True,
) -> MathsReward:
    """A reward that compares final answers with a column of the dataset.

    `forms`: where the final answer may stand; the first of them that the completion has counts: `boxed` (LaTeX),
    `hashes` (`#### 42`), `answer` (a line `Answer: 42`), `number` (the last number of the text, which is lenient).
    `several`: what several answers that differ are worth: `refuse` is 0, `last` scores the last one,
    so that a policy may correct itself. `worked`: whether the answer must be worked out as far as the reference is.

    >>> maths()(completions=["It is \\\\boxed{4}.", "Answer: 5"], answer=["4", "4"])
    [1.0, 0.0]
    """
    if unknown := [form for form in forms if form not in (*FORMS, "number")]:
        raise ValueError(f"no such form: {unknown[0]!r}; there are {(*FORMS, 'number')}")
    return MathsReward(column, forms, several, worked)


def reference_answer(reference: Any) -> MathAnswer | None:
    """The answer of a reference: bare, or the last line of a worked solution as GSM8K has it."""
    if reference is None or isinstance(reference, (bool, list, dict)):
        return None
    text = str(reference)
    answers = extract_answers(text, ("boxed", "hashes"))
    return read_answer(answers[-1] if answers else text)


def _merge_answers(answers: list[str], gold: MathAnswer) -> MathAnswer | None:
    """Merge several answers: differing ones count only if the reference is a list and they are that list.

    The same answer in two notations is still one answer.
    """
    parsed = [read_answer(text) for text in dict.fromkeys(answers)]
    valid = [answer for answer in parsed if answer is not None]
    if len(valid) < len(parsed) or len(valid) > 20:
        return None
    if all(equal(answer, valid[0], worked=False) for answer in valid):
        return valid[-1]
    return read_answer(",".join(dict.fromkeys(answers))) if gold.is_list else None
