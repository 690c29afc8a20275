"""Answers of a policy, sampled, scored and kept line by line, so that nothing finished is made twice."""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.chat import Answer
from tiltmeter.durable import sync_folder
from tiltmeter.errors import AttachError
from tiltmeter.rewards.parts import Made
from tiltmeter.rows import Row
from tiltmeter.train.method import Progress
from tiltmeter.train.recipe import Stage

AT_ONCE = 16  # answers that are generated together


@dataclass(frozen=True)
class Sampling:
    """How a policy is asked: answers to a prompt, the most tokens of one, and the temperature."""

    samples: int
    limit: int
    temperature: float
    seed: int


def whole(stage: Stage, name: str, default: int, least: int = 1) -> int:
    """An option that is a whole number. Raises `AttachError` for anything else."""
    value = stage.options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AttachError(f"stage {stage.name}: options: {name} is a whole number of at least {least}, not {value!r}")
    return value


def kept(path: Path) -> list[Row]:
    """The rows of a file that is written as they come; what a kill tore off at the end was never finished."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def keep(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a file, durably; a torn line at its end is overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("ab+") as file:
        file.seek(0)
        held = file.read()
        file.truncate(held.rfind(b"\n") + 1)
        file.write("".join(json.dumps(row) + "\n" for row in found).encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def replaced(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """A whole file of rows in the place of another, or of none."""
    other = path.with_name(f".{path.name}")
    other.unlink(missing_ok=True)
    keep(other, found)
    other.replace(path)
    sync_folder(path.parent)


def once(path: Path, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What a piece of work said when it was done; it is done where nothing was said yet."""
    from tiltmeter.train import processes

    if not path.exists():
        said = work()
        if processes.main():
            path.parent.mkdir(parents=True, exist_ok=True)
            replaced(path, [said])
        processes.wait()
        gc.collect()  # a trainer holds on to its models through cycles, and the next one needs the room
    (told,) = kept(path)
    return told


def drawn(count: int, most: int | None, seed: object) -> list[int]:
    """Numbers of rows in an order of chance, at most so many, the same for the same seed.

    >>> drawn(3, None, "0/1") == drawn(3, None, "0/1"), sorted(drawn(3, None, 1)), len(drawn(9, 2, 1))
    (True, [0, 1, 2], 2)
    """
    return random.Random(f"tiltmeter/{seed}").sample(range(count), count if most is None else min(most, count))


def sampled(
    path: Path, policy: Path, rows: Sequence[Row], order: Sequence[int], how: Sampling, reward: Made, tell: Progress
) -> list[Row]:
    """Answers to the prompts of these rows, in `path`, each with its reward; what is there already is not asked again.

    The last line of each batch says what the reward had learnt by then: a batch without that was not finished.
    """
    from tiltmeter.chat.local import LocalModel

    done = kept(path)
    ends = [at for at, row in enumerate(done) if "learnt" in row]
    done = done[: ends[-1] + 1] if ends else []
    if done:
        reward.restore(done[-1]["learnt"])
    replaced(path, done)
    # Plain: as TRL, which gives a prompt that is text to the model as it is, and only a conversation to its template.
    model = LocalModel(policy, plain=True, batch=max(AT_ONCE, how.samples))
    each = max(1, AT_ONCE // how.samples)
    for first in range(len(done), len(order), each):
        numbers = list(order[first : first + each])
        asked = [rows[number]["prompt"] for number in numbers]
        seed = how.seed * 1_000_003 + first
        told = model.answers(
            asked, samples=how.samples, limit=how.limit, temperature=how.temperature, seed=seed % (1 << 31)
        )
        answers = dict(told)
        made = _scored(reward, [rows[number] for number in numbers], [answers[at] for at in range(len(numbers))])
        made = [{"row": number, **row} for number, row in zip(numbers, made, strict=True)]
        made[-1]["learnt"] = reward.state()
        keep(path, made)
        done += made
        tell("sampling", len(done), len(order))
    return done


def _scored(reward: Made, rows: Sequence[Row], answers: Sequence[Sequence[Answer]]) -> list[Row]:
    """One line for each prompt: its answers, what they were paid and what each part said."""
    each = len(answers[0])
    flat = [answer for part in answers for answer in part]
    prompts = [row["prompt"] for row in rows for _ in range(each)]
    names = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    columns = {name: [row.get(name) for row in rows for _ in range(each)] for name in names}
    scores = reward(
        prompts=prompts,
        completions=[spoken(answer.text, prompt) for answer, prompt in zip(flat, prompts, strict=True)],
        completion_ids=[list(answer.tokens) for answer in flat],
        **columns,
    )
    return [
        {
            "prompt": row["prompt"],
            "completions": [answer.text for answer in part],
            "ended": [answer.ended for answer in part],
            "lengths": [len(answer.tokens) for answer in part],
            "rewards": scores[at * each : (at + 1) * each],
            "parts": {name: said[at * each : (at + 1) * each] for name, said in reward.told.items()},
        }
        for at, (row, part) in enumerate(zip(rows, answers, strict=True))
    ]


def spoken(text: str, prompt: object) -> Any:
    """An answer in the form of its prompt: text, or a turn of the conversation."""
    return [{"role": "assistant", "content": text}] if isinstance(prompt, list) else text
