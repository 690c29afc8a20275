"""The answer that a completion states in the end, compared as what it is."""

from __future__ import annotations

import time

import pytest

from tiltmeter.gold.checks.prompt_options import read_options
from tiltmeter.gold.checks.stated_answers import score_stated

LETTERS = "Which? A) red wine B) green tea C) a car D) none"
NUMBERS = "Which?\n1) red\n2) green\n3) blue"


@pytest.mark.parametrize(
    ("reading", "prompt", "reference", "completion", "score"),
    [
        # numbers
        ("number", "", "42", "The answer is 42 because 6*7=42 (see step 3)", 1.0),
        ("number", "", "42", "The answer is 42, since 40 + 2 = 42.", 1.0),
        ("number", "", "42", "I get 42 in all (step 3 of 4).", 1.0),
        ("number", "", "42", "The answer is that he has 42 apples.", 1.0),
        ("number", "", "42", "**Answer:** 42", 1.0),
        ("number", "", "42", "So 6 * 7 = 42. #### 42", 1.0),
        ("number", "", "42", "The answer is 42 or 43.", 0.0),
        ("number", "", "42", "The answer is 41 because 42 is too many.", 0.0),
        ("number", "", "42", "<answer>41</answer> 42", 0.0),
        ("number", "", "(3,4)", "The answer is (3, 4).", 1.0),
        ("number", "", r"\frac{1}{2}", "The answer is 0.5, as can be seen.", 1.0),
        # units
        ("number", "", "12 km", "It is 12 km.", 1.0),
        ("number", "", "12 km", "The answer is 12000 m.", 1.0),
        ("number", "", "12 km", "It is 12.", 1.0),
        ("number", "", "12 km", "It is 12 m.", 0.0),
        ("number", "", "$5", "That is 500 cents.", 1.0),
        ("number", "", "25%", "The answer is 25%", 1.0),
        ("number", "", "7", "He has 7 apples.", 1.0),
        # options
        ("option", LETTERS, "B", "The answer is (B) green tea.", 1.0),
        ("option", LETTERS, "B", "I think it is B.", 1.0),
        ("option", LETTERS, "B", "\\boxed{\\text{B}}", 1.0),
        ("option", LETTERS, "B", "It must be green tea.", 1.0),
        ("option", LETTERS, "B", "A good question. It is B", 1.0),
        ("option", LETTERS, "B", "The answer is A or B.", 0.0),
        ("option", LETTERS, "A", "A green tea is what I would have.", 0.0),
        ("option", LETTERS, "green tea", "<answer>B</answer>", 1.0),
        ("option", LETTERS, "E", "E", None),
        ("index0", LETTERS, "1", "Answer: B", 1.0),
        ("index1", LETTERS, "1", "Answer: B", 0.0),
        ("index0", LETTERS, "4", "Answer: B", None),
        ("option", NUMBERS, "2", "The answer is 2.", 1.0),
        ("option", NUMBERS, "2", "I choose 3) blue", 0.0),
        # yes or no
        ("yes", "", "yes", "Yes, it is divisible.", 1.0),
        ("yes", "", "no", "It has rest 1. So the answer is no.", 1.0),
        ("yes", "", "no", "True", 0.0),
        ("yes", "", "yes", "Yes and no.", 1.0),
        # dates
        ("date", "", "2024-05-07", "It was signed on May 7, 2024.", 1.0),
        ("date", "", "2024-05-07", "<answer>7 May 2024</answer>", 1.0),
        ("date", "", "2024-05-07", "2024-05-08", 0.0),
        ("date", "", "2024-05-07", "2012", 0.0),
        ("date", "", "2024-05-07", "Either May 7, 2024 or May 8, 2024.", 0.0),
        # words
        ("words", "", "Paris", "The capital of France is Paris.", 1.0),
        ("words", "", "Paris", "Paris. It lies on the Seine.", 1.0),
        ("words", "", "Paris", "The answer is Paris, because it is.", 1.0),
        ("words", "", "Paris", "It is not Paris.", 0.0),
        ("words", "", "Paris", "Paris or Rome.", 0.0),
        ("words", "", "Paris", "Paris, Rome, Oslo, Bern", 0.0),
        ("words", "", "Paris", "Many say Paris. But it is Lyon.", 0.0),
        ("words", "", "Gabriel García Márquez", "It was Gabriel Garcia Marquez.", 1.0),
        ("words", "", "1969", "It was in 1969.", 1.0),
    ],
)  # fmt: skip
def test_the_stated_answer_is_compared(
    reading: str, prompt: str, reference: str, completion: str, score: float | None
) -> None:
    assert score_stated(reading, prompt, completion, [reference]) == score


def test_the_options_are_those_of_the_last_question() -> None:
    assert read_options("Q: a? A) x B) y\nA: x\n\nQ: b? A) v B) w") == {"A": "v", "B": "w"}


def test_hostile_completions_are_scored_in_time_linear_in_their_length() -> None:
    hostile = (
        "answer is " * 50_000,
        "(" * 300_000,
        "1," * 200_000,
        "\\boxed{" * 50_000,
        "a " * 200_000,
        "B) " * 100_000,
    )
    began = time.process_time()
    for text in hostile:
        for reading, reference in (("number", "42"), ("option", "B"), ("words", "Paris"), ("date", "2024-05-07")):
            score_stated(reading, LETTERS, text, [reference])
    assert time.process_time() - began < 12.0
