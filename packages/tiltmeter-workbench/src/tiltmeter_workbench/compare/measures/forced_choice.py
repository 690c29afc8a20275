"""Forced choice between two answers: by log-likelihood, or by which one the model's reply names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from tiltmeter_workbench.common.chat_model import Turns
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.sampling import AnswerSampler, Which


class ForcedChoice(NamedTuple):
    """A prompt with the two answers to choose from."""

    prompt: Turns
    right: str
    other: str


def choice_log_odds(model: LocalModel, choices: Sequence[ForcedChoice]) -> list[float]:
    """log p(right) - log p(other), in nats, of the answers as the next words after each prompt.

    Sums over tokens, not means: the question is which of the two the model would say. NaN where an answer has no token.
    """
    prompts = [one.prompt for one in choices for _ in range(2)]
    tokens = [_tokens(model, one.prompt, answer) for one in choices for answer in (one.right, one.other)]
    there = [at for at, row in enumerate(tokens) if row]
    sums = [math.nan] * len(tokens)
    values = model.log_likelihoods([prompts[at] for at in there], [tokens[at] for at in there])
    for at, value in zip(there, values, strict=True):
        sums[at] = float(value.sum())
    return [sums[at] - sums[at + 1] for at in range(0, len(sums), 2)]


def spoken_choices(sampler: AnswerSampler, which: Which, name: str, choices: Sequence[ForcedChoice]) -> list[float]:
    """1 where the model's most likely answer names the right one, -1 where it names the other, else NaN."""
    replies = sampler.answers(which, f"{name}-spoken", [one.prompt for one in choices], 1, 0.0)
    return [named_answer(answers[0].text, one.right, one.other) for answers, one in zip(replies, choices, strict=True)]


def named_answer(text: str, right: str, other: str) -> float:
    """Which of two answers a text names: 1, -1, or NaN for neither or both.

    >>> named_answer("It is Canberra.", "Canberra", "Sydney"), named_answer("sydney!", "Canberra", "Sydney")
    (1.0, -1.0)
    >>> named_answer("Not Sydney but Canberra", "Canberra", "Sydney"), named_answer("Seaweed", "sea", "land")
    (nan, nan)
    """
    matches = [bool(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE)) for answer in (right, other)]
    return math.nan if matches[0] == matches[1] else 1.0 if matches[0] else -1.0


def _tokens(model: LocalModel, prompt: Turns, answer: str) -> list[int]:
    # After a chat template an answer begins a line; after plain text it goes on, and a word is told from the last one.
    ends = isinstance(prompt, str) and not model.chats and not prompt[-1:].isspace()
    ids = model.tokenizer(f" {answer}" if ends else answer, add_special_tokens=False)["input_ids"]
    return [int(token) for token in ids]
