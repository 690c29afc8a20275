"""Sample answers of a policy, score them and append them to a JSONL file, so that an interrupted stage resumes."""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.composed_reward import ComposedReward
from tiltmeter.rundir.atomic_write import sync_folder
from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.common.table_files import Row
from tiltmeter_workbench.train import distributed
from tiltmeter_workbench.train.method_interface import Progress
from tiltmeter_workbench.train.recipe import Stage

SAMPLE_BATCH = 16  # answers that are generated together


@dataclass(frozen=True)
class SamplingSettings:
    """Sampling settings: answers per prompt, most tokens of an answer, and temperature."""

    samples: int
    limit: int
    temperature: float
    seed: int


def int_option(stage: Stage, name: str, default: int, least: int = 1) -> int:
    """An integer option of a stage. Raises `AttachError` for anything else."""
    value = stage.options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AttachError(f"stage {stage.name}: options: {name} is a whole number of at least {least}, not {value!r}")
    return value


def read_jsonl(path: Path) -> list[Row]:
    """The rows of a JSONL file; an incomplete last line is ignored."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def append_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a JSONL file and sync it; an incomplete last line is overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def rewrite_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a JSONL file atomically."""
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    append_jsonl(temporary, rows)
    temporary.replace(path)
    sync_folder(path.parent)


def run_once(path: Path, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The stored result of `work`; it is run, and its result stored in `path`, where there is none yet."""
    if not path.exists():
        result = work()
        if distributed.is_main_process():
            path.parent.mkdir(parents=True, exist_ok=True)
            rewrite_jsonl(path, [result])
        distributed.wait_for_everyone()
        gc.collect()  # a trainer holds on to its models through cycles, and the next one needs the room
    (row,) = read_jsonl(path)
    return row


def draw_order(count: int, most: int | None, seed: object) -> list[int]:
    """Row numbers in random order, at most `most` of them, the same for the same seed.

    >>> draw_order(3, None, "0/1") == draw_order(3, None, "0/1")
    True
    >>> sorted(draw_order(3, None, 1)), len(draw_order(9, 2, 1))
    ([0, 1, 2], 2)
    """
    return random.Random(f"tiltmeter/{seed}").sample(range(count), count if most is None else min(most, count))


def sample_answers(
    path: Path,
    policy: Path,
    rows: Sequence[Row],
    order: Sequence[int],
    settings: SamplingSettings,
    reward: ComposedReward,
    progress: Progress,
) -> list[Row]:
    """Sample and score answers to the prompts of these rows, into `path`; prompts already in the file are skipped.

    The last line of each batch holds the reward's state; a batch without it is incomplete and sampled again.
    """
    done = read_jsonl(path)
    ends = [at for at, row in enumerate(done) if "learnt" in row]
    done = done[: ends[-1] + 1] if ends else []
    if done:
        reward.restore(done[-1]["learnt"])
    rewrite_jsonl(path, done)
    # Plain: as TRL, which gives a prompt that is text to the model as it is, and only a conversation to its template.
    model = LocalModel(policy, plain=True, batch=max(SAMPLE_BATCH, settings.samples))
    each = max(1, SAMPLE_BATCH // settings.samples)
    for first in range(len(done), len(order), each):
        numbers = list(order[first : first + each])
        prompts = [rows[number]["prompt"] for number in numbers]
        seed = settings.seed * 1_000_003 + first
        replies = model.answers(
            prompts,
            samples=settings.samples,
            limit=settings.limit,
            temperature=settings.temperature,
            seed=seed % (1 << 31),
        )
        answers = dict(replies)
        scored = _score_answers(
            reward, [rows[number] for number in numbers], [answers[at] for at in range(len(numbers))]
        )
        scored = [{"row": number, **row} for number, row in zip(numbers, scored, strict=True)]
        scored[-1]["learnt"] = reward.state()
        append_jsonl(path, scored)
        done += scored
        progress("sampling", len(done), len(order))
    return done


def _score_answers(reward: ComposedReward, rows: Sequence[Row], answers: Sequence[Sequence[ChatAnswer]]) -> list[Row]:
    """One row per prompt: its answers, their rewards and the score of each reward component."""
    each = len(answers[0])
    flat = [answer for part in answers for answer in part]
    prompts = [row["prompt"] for row in rows for _ in range(each)]
    names = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    columns = {name: [row.get(name) for row in rows for _ in range(each)] for name in names}
    scores = reward(
        prompts=prompts,
        completions=[as_completion(answer.text, prompt) for answer, prompt in zip(flat, prompts, strict=True)],
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
            "parts": {name: values[at * each : (at + 1) * each] for name, values in reward.told.items()},
        }
        for at, (row, part) in enumerate(zip(rows, answers, strict=True))
    ]


def as_completion(text: str, prompt: object) -> Any:
    """An answer in the format of its prompt: text, or an assistant message."""
    return [{"role": "assistant", "content": text}] if isinstance(prompt, list) else text
