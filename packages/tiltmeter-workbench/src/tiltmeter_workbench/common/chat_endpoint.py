"""A chat model behind a server with OpenAI's chat API, and the TOML file that describes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tiltmeter.data.batches import replace_surrogates
from tiltmeter.models.chat.endpoint import ChatError, Endpoint
from tiltmeter.models.chat.endpoint_file import check_endpoint, read_description
from tiltmeter_workbench.common.chat_model import ChatAnswer, Turns

MAX_FAILURES = 8  # questions in a row without an answer: the server is down

EXAMPLE = """url = "http://localhost:8000/v1"
model = "the model's name on that server"
key_env = "MODEL_KEY"  # the environment variable that holds the key; leave it out if none is needed
timeout = 60           # seconds for one try
retries = 3
"""


@dataclass(frozen=True)
class ChatEndpoint(Endpoint):
    """A server that answers as a `ChatModel` does."""

    @property
    def name(self) -> str:
        return self.model

    def answers(
        self,
        questions: Sequence[Turns],
        *,
        samples: int = 1,
        limit: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
        extra: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[int, list[ChatAnswer]]]:
        """As `ChatModel.answers`. Each sample is a request of its own, with a seed that depends on what is asked and
        not on what else is: a server that respects seeds answers the same again. `extra` goes into each request."""
        bodies = [
            {**self._body(turns, limit, temperature, f"{seed} {sample}"), **(extra or {})}
            for turns in questions
            for sample in range(samples)
        ]
        by_question: dict[int, dict[int, ChatAnswer]] = {}
        failed: dict[int, ChatError] = {}
        in_a_row = 0
        for number, reply in self.replies(bodies):
            question, sample = divmod(number, samples)
            try:
                if isinstance(reply, ChatError):
                    raise reply
                by_question.setdefault(question, {})[sample] = read_answer(reply)
            except ChatError as error:
                failed.setdefault(question, error)
                in_a_row += 1
                if in_a_row == MAX_FAILURES:
                    break
                continue
            in_a_row = 0
            if len(by_question[question]) == samples:
                yield question, [by_question[question][at] for at in range(samples)]
        if failed:
            unanswered = len(questions) - sum(len(answers) == samples for answers in by_question.values())
            rest = f", and after {MAX_FAILURES} in a row no more was asked" if in_a_row == MAX_FAILURES else ""
            why = next(iter(failed.values()))
            raise ChatError(
                f"{unanswered} of {len(questions)} questions to {self.host} have no answer{rest}; the first: {why}"
            )

    def _body(self, turns: Turns, limit: int, temperature: float, seed: str) -> dict[str, Any]:
        messages_in = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
        messages = [{"role": turn["role"], "content": replace_surrogates(turn["content"])} for turn in messages_in]
        digest = hashlib.sha256(f"{seed} {json.dumps(messages)}".encode()).digest()
        return {
            "model": self.model,
            "messages": messages,
            "max_tokens": limit,
            "temperature": temperature,
            "seed": int.from_bytes(digest[:4], "big") >> 1,
        }


def read_answer(body: bytes) -> ChatAnswer:
    """What a chat completion says. Raises `ChatError` for anything else.

    >>> read_answer(b'{"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}').text
    'Yes.'
    """
    try:
        choice = json.loads(body)["choices"][0]
        content = choice["message"]["content"]
        ended = choice.get("finish_reason") != "length"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise ChatError("the server's reply is not a chat completion") from None
    if not isinstance(content, str):
        raise ChatError("the server's reply holds no text")
    return ChatAnswer(replace_surrogates(content), (), ended)


def read_endpoint(path: str | Path) -> ChatEndpoint:
    """The server that a TOML file of the user describes. Raises `AttachError` with the fix."""
    facts = read_description(path, "server", EXAMPLE, {field.name for field in fields(ChatEndpoint)}, ("url", "model"))
    endpoint = ChatEndpoint(**facts)
    check_endpoint(path, endpoint)
    return endpoint
