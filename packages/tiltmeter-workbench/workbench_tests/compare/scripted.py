"""Models that say what a test wrote, in the place of a `LocalModel`: whatever asks them is real."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tiltmeter_workbench.common.chat_model import ChatAnswer, Turns
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.sampling import AnswerSampler, Which

Says = Callable[[str, random.Random], str]
#: How likely an answer is after a prompt, in nats.
Likes = Callable[[str, str], float]


def flat(asked: Turns) -> str:
    return asked if isinstance(asked, str) else "\n".join(turn["content"] for turn in asked)


class Scripted:
    """A model whose words are its tokens."""

    chats, batch = True, 16

    def __init__(self, folder: Path, says: Says, likes: Likes = lambda prompt, answer: 0.0) -> None:
        self.folder, self.says, self.likes = folder, says, likes
        self.words: list[str] = []

    def number(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def tokenizer(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [self.number(word) for word in text.split()]}

    def log_likelihoods(self, asked: Sequence[Turns], tokens: Sequence[Sequence[int]]) -> list[Any]:
        told = [" ".join(self.words[token] for token in row) for row in tokens]
        return [np.array([self.likes(flat(one), answer)]) for one, answer in zip(asked, told, strict=True)]

    def answers(
        self, asked: Sequence[Turns], *, samples: int = 1, limit: int = 256, temperature: float = 1.0, seed: int = 0
    ) -> Iterator[tuple[int, list[ChatAnswer]]]:
        for number, one in enumerate(asked):
            found = []
            for sample in range(samples):
                rng = random.Random(f"{seed} {number} {sample}" if temperature else flat(one))
                words = self.says(flat(one), rng).split()
                text, tokens = " ".join(words[:limit]), tuple(self.number(word) for word in words[:limit])
                found.append(ChatAnswer(text, tokens, len(words) <= limit))
            yield number, found


def material(folder: Path, base: Scripted | Says, checkpoint: Scripted | Says, **settings: Any) -> AnswerSampler:
    """The real material, between two scripted models."""
    models = [
        one if isinstance(one, Scripted) else Scripted(folder / name, one)
        for name, one in (("base", base), ("checkpoint", checkpoint))
    ]
    return AnswerSampler(cast(LocalModel, models[0]), cast(LocalModel, models[1]), folder / "work", **settings)


class Unkept(AnswerSampler):
    """Nothing is written: for hundreds of comparisons of which nobody wants to keep an answer."""

    def answers(
        self, which: Which, suite: str, asked: Sequence[Turns], samples: int = 1, temperature: float = 1.0
    ) -> list[list[ChatAnswer]]:
        seed = 2 * self.seed + (which == "base")
        told = self._sample(which, asked, samples, temperature, seed)
        return [told[number] for number in range(len(asked))]


def unkept(base: Says, checkpoint: Says, seed: int, **settings: Any) -> Unkept:
    models = [cast(LocalModel, Scripted(Path("nowhere"), says)) for says in (base, checkpoint)]
    return Unkept(models[0], models[1], Path("nowhere"), seed=seed, **settings)
