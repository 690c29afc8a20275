"""A column of answers is offered, and taken only where it earns it; what is refused is said with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gold.column_cases import GOOD, MISLEADING

from tiltmeter.gold.answers.answer_columns import answer_texts, find_answer_column
from tiltmeter.gold.answers.task_prompts import allows_any, asks_for_number, asks_for_text
from tiltmeter.gold.find_gold import TrainingSetup, find_gold


@pytest.mark.parametrize("name", GOOD)
def test_a_column_that_answers_its_prompts_is_taken(name: str) -> None:
    column, refused = find_answer_column(GOOD[name])
    assert column is not None, refused


@pytest.mark.parametrize("name", MISLEADING)
def test_a_column_that_does_not_is_refused_and_the_reason_said(name: str) -> None:
    by_rows, rows = MISLEADING[name]
    column, refused = find_answer_column(rows)
    assert (column is None) == by_rows
    if by_rows:
        found = find_gold(TrainingSetup({"mine": len}, rows=rows))
        said = next(line for line in found.lines if line.startswith("Found "))
        assert found.name == "" and len(found.lines) <= 6
        assert f"did not take it because {refused[0].why}" in said and f"gold='answers:{refused[0].name}" in said


@pytest.mark.parametrize(
    "manner",
    [
        "Respond in the following format: <think>...</think> <answer>...</answer>",
        "Please reason step by step, and put your final answer within \\boxed{}.",
        "Explain your reasoning. Write only the letter.",
    ],
)
def test_how_to_answer_is_no_task_of_writing(manner: str) -> None:
    assert not asks_for_text(f"What is 6 x 7? {manner}")
    assert asks_for_text(f"Write a poem about rain. {manner}")


def test_a_prompt_allows_any_answer_only_where_it_says_so() -> None:
    assert allows_any("Name a river in Spain.") and allows_any("What is a synonym for happy?")
    assert not allows_any("Find a + b if a = 3.") and not allows_any("Which of these is a prime? A) 4 B) 5")


def test_a_conversation_asks_what_the_user_said_last() -> None:
    rows = [
        {
            "prompt": [
                {"role": "system", "content": "Write like a poet. Describe what you do."},
                {"role": "user", "content": "What is 1 + 1?"},
                {"role": "assistant", "content": "2"},
                {"role": "user", "content": f"What is {k} + 2?"},
            ],
            "answer": k + 2,
        }
        for k in range(20)
    ]
    column, refused = find_answer_column(rows)
    assert column is not None and column.reading == "number", refused


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ({"ground_truth": "3.5", "style": "rule"}, ["3.5"]),
        (["Paris", "Paris, France"], ["Paris", "Paris, France"]),
        (True, ["yes"]),
        ("so\n#### 42", ["42"]),
        ("n/a", []),
        ("x" * 101, []),
        ([1, 2], []),
        (None, []),
    ],
)
def test_what_stands_in_a_row(value: Any, texts: list[str]) -> None:
    assert answer_texts(value) == texts


def test_hostile_rows_are_read_in_a_moment() -> None:
    for text in ("a" * 100_000, "(" * 50_000, "A) " * 30_000, "1, " * 30_000, "write " * 20_000, "\\frac" * 20_000):
        assert asks_for_text(text) in (True, False) and asks_for_number(text) in (True, False)
        find_answer_column([{"prompt": f"{text} {k}?", "answer": f"{k}"} for k in range(2)])
