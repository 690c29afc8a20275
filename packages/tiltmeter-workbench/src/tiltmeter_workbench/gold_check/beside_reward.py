"""Scores a check and a reward on the same texts, made of a dataset's own answers: where do they differ?

Of these texts it is known what they are worth, whatever the task: a row's own answer, another row's, the right answer
among others, no answer. A reward that pays where the check does not is what gold is for; a check that fails a row's own
answer is too strict, or expects another form.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldSource
from tiltmeter.gold.known_answers import COMPLETION_COLUMNS
from tiltmeter.gold.label_files import to_label
from tiltmeter.gold.try_gold import OTHER_TEXT
from tiltmeter_workbench.probe.reward_target import Target

ROWS = 16  # of the dataset
OTHERS = 4  # wrong answers beside the right one


@dataclass(frozen=True, slots=True)
class TextKind:
    """Texts of one kind: what the check and the reward gave them; NaN where they gave nothing, and why."""

    what: str
    check: tuple[float, ...]
    reward: tuple[float, ...]  # empty without one
    why: str = ""  # of the first label that is missing


@dataclass(frozen=True, slots=True)
class CheckTrial:
    """What a check said of every kind of text, and the seconds that a label takes."""

    name: str
    kinds: tuple[TextKind, ...]
    seconds: float

    @property
    def same(self) -> tuple[int, int]:
        """How many texts both put on the same side of one half, of those that both scored."""
        pairs = [pair for kind in self.kinds for pair in zip(kind.check, kind.reward, strict=False)]
        both = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        return sum((a > 0.5) == (b > 0.5) for a, b in both), len(both)


def try_check(source: GoldSource, rows: Sequence[Mapping[str, Any]], reward: Target | None = None) -> CheckTrial:
    """Ask a check, and a reward if there is one, about texts made of the first rows."""
    texts = make_texts(rows)
    kinds, seconds, count = [], 0.0, 0
    for what, items in texts.items():
        requests = [
            CompletionToLabel(f"try-{at}", 0, 0, at, "try", prompt, text, columns)
            for at, (prompt, text, columns) in enumerate(items)
        ]
        began = time.monotonic()
        labels = [to_label(answer) for answer in source.label(requests)]
        seconds, count = seconds + time.monotonic() - began, count + len(labels)
        paid: tuple[float, ...] = ()
        if reward is not None:
            prompts, completions, columns = zip(*items, strict=True)
            paid = tuple(reward.fresh(list(prompts), list(completions), list(columns)).tolist())
        values = tuple(math.nan if label.value is None else label.value for label in labels)
        kinds.append(TextKind(what, values, paid, next((one.why for one in labels if one.value is None), "")))
    return CheckTrial(source.name, tuple(kinds), seconds / max(count, 1))


def make_texts(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    """Prompt, text and columns, by kind of text."""
    usable = [(row, own) for row in rows if (own := _own_text(row))][:ROWS]
    if not usable:
        names = ", ".join(COMPLETION_COLUMNS)
        raise AttachError(f"no row has an answer to try the check on: one of the columns {names} is needed")
    texts: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    answers = list(dict.fromkeys(own for _, own in usable))
    for row, own in usable:
        prompt = plain_text(row.get("prompt")) or ""
        columns = {name: value for name, value in row.items() if name != "prompt"}
        others = [text for text in answers if text != own][:OTHERS]
        kinds = {"the row's own answer": own, "an empty text": "", f"{OTHER_TEXT!r}": OTHER_TEXT}
        if others:
            among = " ".join([*others, own, *others])
            kinds |= {"another row's answer": others[0], "the right answer among others": among}
        for what, text in kinds.items():
            texts.setdefault(what, []).append((prompt, text, columns))
    return texts


def _own_text(row: Mapping[str, Any]) -> str:
    return next((str(row[name]) for name in COMPLETION_COLUMNS if isinstance(row.get(name), (str, int, float))), "")
