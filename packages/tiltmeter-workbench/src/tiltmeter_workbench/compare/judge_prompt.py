"""Asks a judge model which of two answers is better."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiltmeter.data.batches import replace_surrogates
from tiltmeter.models.chat.endpoint import ChatError
from tiltmeter.models.judge_prompts import PAIRS, JudgeError, read_share
from tiltmeter_workbench.common.chat_model import ChatModel, Turns

#: One order: for each duel the first's share of the win (1, 0.5 or 0), or why there is none.
Ask = Callable[[Sequence["AnswerPair"]], Sequence[float | Exception | None]]

VERDICT_TOKENS = 32


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers to one prompt; `columns` are the prompt's other columns, for a function that needs them."""

    prompt: str
    first: str
    second: str
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def swapped(self) -> AnswerPair:
        return AnswerPair(self.prompt, self.second, self.first, self.columns)


def ask_with(speaker: ChatModel, guide: str) -> Ask:
    """A function that asks a chat model which of two answers is better."""

    def ask(pairs: Sequence[AnswerPair]) -> list[float | Exception]:
        replies: dict[int, float | Exception] = {}
        missing: Exception = ChatError("no answer came")
        try:
            questions = [judge_question(pair, guide) for pair in pairs]
            for number, (answer, *_) in speaker.answers(questions, limit=VERDICT_TOKENS, temperature=0.0):
                replies[number] = _read_share(answer.text)
        except ChatError as error:
            missing = error
        return [replies.get(number, missing) for number in range(len(pairs))]

    return ask


def judge_question(pair: AnswerPair, guide: str) -> Turns:
    """The messages for the judge. The random lines around the data cannot be guessed by whoever wrote it."""
    mark = secrets.token_hex(16)
    payload = {
        "task": replace_surrogates(pair.prompt),
        "A": replace_surrogates(pair.first),
        "B": replace_surrogates(pair.second),
    }
    return [
        {"role": "system", "content": PAIRS.format(guide=guide, mark=mark)},
        {"role": "user", "content": f"{mark}\n{json.dumps(payload, ensure_ascii=False)}\n{mark}"},
    ]


def _read_share(text: str) -> float | Exception:
    try:
        return read_share(text)
    except JudgeError as error:
        return error
