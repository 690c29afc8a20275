"""Which of two answers a model gives: the likelier one as its next words, or the one that its own words name."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tiltmeter.chat import Turns
from tiltmeter.compare.samples import Material, Which

if TYPE_CHECKING:
    from tiltmeter.chat.local import LocalModel


class Asked(NamedTuple):
    """A prompt with the two answers to choose from."""

    prompt: Turns
    right: str
    other: str


def preferences(model: LocalModel, asked: Sequence[Asked]) -> list[float]:
    """log p(right) - log p(other), in nats, of the answers as the next words after each prompt.

    Sums over tokens, not means: the question is which of the two the model would say. NaN where an answer has no token.
    """
    prompts = [one.prompt for one in asked for _ in range(2)]
    tokens = [_tokens(model, one.prompt, answer) for one in asked for answer in (one.right, one.other)]
    there = [at for at, row in enumerate(tokens) if row]
    sums = [math.nan] * len(tokens)
    values = model.log_likelihoods([prompts[at] for at in there], [tokens[at] for at in there])
    for at, value in zip(there, values, strict=True):
        sums[at] = float(value.sum())
    return [sums[at] - sums[at + 1] for at in range(0, len(sums), 2)]


def spoken(material: Material, which: Which, name: str, asked: Sequence[Asked]) -> list[float]:
    """1 where the model's most likely answer names the right one, -1 where it names the other, else NaN."""
    told = material.answers(which, f"{name}-spoken", [one.prompt for one in asked], 1, 0.0)
    return [named(answers[0].text, one.right, one.other) for answers, one in zip(told, asked, strict=True)]


def named(text: str, right: str, other: str) -> float:
    """Which of two answers a text names: 1, -1, or NaN for neither or both.

    >>> named("It is Canberra.", "Canberra", "Sydney"), named("sydney!", "Canberra", "Sydney")
    (1.0, -1.0)
    >>> named("Not Sydney but Canberra", "Canberra", "Sydney"), named("Seaweed", "sea", "land")
    (nan, nan)
    """
    found = [bool(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE)) for answer in (right, other)]
    return math.nan if found[0] == found[1] else 1.0 if found[0] else -1.0


def _tokens(model: LocalModel, prompt: Turns, answer: str) -> list[int]:
    # After a chat template an answer begins a line; after plain text it goes on, and a word is told from the last one.
    ends = isinstance(prompt, str) and not model.chats and not prompt[-1:].isspace()
    told = model.tokenizer(f" {answer}" if ends else answer, add_special_tokens=False)["input_ids"]
    return [int(token) for token in told]
