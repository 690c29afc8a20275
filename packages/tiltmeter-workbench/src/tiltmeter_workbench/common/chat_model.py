"""What a chat model is: it takes turns and gives answers, one by one or many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

#: A prompt, or the turns of a conversation, each with `role` and `content`.
Turns = str | Sequence[Mapping[str, str]]
#: Called with the name of the work, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One answer of a model. `tokens` is empty if they are unknown; `ended` is False if the limit cut it off."""

    text: str
    tokens: tuple[int, ...] = ()
    ended: bool = True


@runtime_checkable
class ChatModel(Protocol):
    """A model that answers prompts."""

    @property
    def name(self) -> str: ...

    def answers(
        self,
        questions: Sequence[Turns],
        *,
        samples: int = 1,
        limit: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> Iterator[tuple[int, list[ChatAnswer]]]:
        """The number of a question with its answers, as soon as they are there, in any order.

        Questions that failed for good are left out, and `ChatError` is raised after all other answers, so a caller that
        stores each answer loses none. Temperature 0 is the most likely answer.
        """
        ...


def all_answers(
    model: ChatModel,
    questions: Sequence[Turns],
    *,
    samples: int = 1,
    limit: int = 256,
    temperature: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
    what: str = "asking",
) -> list[list[ChatAnswer]]:
    """The answers to all questions, in their order."""
    by_number: dict[int, list[ChatAnswer]] = {}
    results = model.answers(questions, samples=samples, limit=limit, temperature=temperature, seed=seed)
    for number, answers in results:
        by_number[number] = answers
        if progress is not None:
            progress(what, len(by_number), len(questions))
    return [by_number[number] for number in range(len(questions))]
