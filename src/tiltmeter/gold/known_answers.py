"""Texts whose worth is known before anybody is asked: a row's own answer, another row's, and none at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiltmeter.gold.answers.answer_columns import ANSWER_COLUMNS, LONGEST_ANSWER
from tiltmeter.gold.checks.math_answers import extract_answers

#: Columns with a text that could be a completion, best first.
COMPLETION_COLUMNS = ("completion", "chosen", "response", "canonical_solution", *ANSWER_COLUMNS)
#: What a row has once it was generated, and a dataset does not.
MEASURED = ("length", "truncated")
OF_AGENTS = ("turns", "agent", "env", "task", "stop", "artifacts")


def own_answer(row: Mapping[str, Any]) -> str:
    """The text of a row that is likest to a right completion; empty if it has none.

    >>> own_answer({"level": 3, "answer": 42}), own_answer({"reward_model": {"ground_truth": "7"}}), own_answer({})
    ('42', '7', '')
    """
    for name in COMPLETION_COLUMNS:
        value = row.get(name)
        value = value.get("ground_truth") if isinstance(value, Mapping) else value
        if isinstance(value, (str, int, float)) and str(value).strip():
            return str(value)
    return ""


def written_answers(answer: str) -> tuple[str, ...]:
    """An answer as it stands, and as a completion in the forms that checks look for.

    >>> written_answers("6 * 7 = 42 #### 42")[1].splitlines()[:2]
    ['The answer is 42.', '\\\\boxed{42}']
    >>> len(written_answers("a long text " * 30))
    1
    """
    final = (extract_answers(answer, ("boxed", "hashes")) or [answer.strip()])[-1]
    if len(final) > LONGEST_ANSWER or "\n" in final:
        return (answer,)
    forms = (f"The answer is {final}.", f"\\boxed{{{final}}}", f"#### {final}", f"<answer>{final}</answer>")
    return answer, "\n".join((*forms, f"Answer: {final}"))


def other_answer(answers: Sequence[str], row: int) -> str:
    """The answer of the next row whose answer is another one; empty if all are alike.

    >>> other_answer(["A", "a ", "", "C"], 0), other_answer(["A", "A"], 1)
    ('C', '')
    """
    own = answers[row].strip().casefold()
    later = (answers[(row + step) % len(answers)] for step in range(1, len(answers)))
    return next((one for one in later if one.strip().casefold() not in ("", own)), "")


def columns_of_text(text: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a function may ask for beside a text that no policy wrote."""
    return {"length": len(text), "truncated": False, **facts}
