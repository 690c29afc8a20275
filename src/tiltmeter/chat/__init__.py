"""Models that are talked to: one in a folder here, or one behind a server that speaks OpenAI's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tiltmeter.errors import AttachError, TiltmeterError

#: A prompt, or the turns of a conversation, each with `role` and `content`.
Turns = str | Sequence[Mapping[str, str]]
#: What is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


class ChatError(TiltmeterError):
    """A model could not be asked, and why. Whatever it did say stays said."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said. `tokens` is empty where it does not tell; `ended` is False where the limit cut it off."""

    text: str
    tokens: tuple[int, ...] = ()
    ended: bool = True


@runtime_checkable
class Speaker(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str: ...

    def answers(
        self,
        asked: Sequence[Turns],
        *,
        samples: int = 1,
        limit: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> Iterator[tuple[int, list[Answer]]]:
        """The number of a question with its answers, as soon as they are there, in any order.

        What failed for good is left out, and `ChatError` is raised once everything else was given: whoever keeps what
        comes loses nothing. Temperature 0 is the most likely answer.
        """
        ...


def all_answers(
    speaker: Speaker,
    asked: Sequence[Turns],
    *,
    samples: int = 1,
    limit: int = 256,
    temperature: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
    what: str = "asking",
) -> list[list[Answer]]:
    """The answers to all questions, in their order."""
    found: dict[int, list[Answer]] = {}
    told = speaker.answers(asked, samples=samples, limit=limit, temperature=temperature, seed=seed)
    for number, answers in told:
        found[number] = answers
        if progress is not None:
            progress(what, len(found), len(asked))
    return [found[number] for number in range(len(asked))]


def speaker(source: str | Path) -> Speaker:
    """The model that a folder holds or a TOML file describes. Raises `AttachError` with the fix."""
    path = Path(source)
    if path.suffix == ".toml":
        from tiltmeter.chat.described import read_endpoint

        return read_endpoint(path)
    if path.is_dir():
        from tiltmeter.chat.local import LocalModel

        return LocalModel(path)
    raise AttachError(f"{source}: give a folder that transformers can load, or a .toml file that describes a server")
