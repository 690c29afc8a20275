"""People as the judge of models: a page with what is still to be judged, and the files that it saved.

They see neither which model wrote an answer nor any score, in an order that only the texts decide. Each person saves a
file of their own; what it holds is never asked of them again, so that labelling goes on where it ended.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter.gold import LATER, CompletionToLabel, GoldAnswer
from tiltmeter.gold.people import UnjudgedError
from tiltmeter_workbench.common.chat_model import Progress
from tiltmeter_workbench.common.label_page import PageItem, render_items
from tiltmeter_workbench.compare.judge_prompt import AnswerPair

Floats = NDArray[np.float64]
PAGE, SAVED = "people.html", "labels*.jsonl"
MOST_BYTES = 64 << 20  # of a file of answers
#: What each answer is worth to the first of two, or to the one that is shown.
WORTH = {"first": 1.0, "second": 0.0, "tie": 0.5, "0": 0.0, "0.25": 0.25, "0.5": 0.5, "0.75": 0.75, "1": 1.0}
SKIP = "skip"


class PeopleLabels:
    """What people said about items, from every `labels*.jsonl` in a folder, each one person's; what is still to ask."""

    def __init__(self, work: Path, raters: int = 1) -> None:
        self.work, self.raters = work, raters
        self.waiting: dict[str, PageItem] = {}  # by key, in the order of being asked
        self._answers: dict[str, list[str]] = {}
        digest = hashlib.sha256()
        for path in sorted(work.glob(SAVED)):
            text = _read_text(path)
            digest.update(text.encode())
            for key, answer in _read_answers(path, text).items():
                self._answers.setdefault(key, []).append(answer)
        self.mark = digest.hexdigest()[:8]  # another after every label: nothing that rests on older ones is reused

    def ask(self, item: PageItem) -> GoldAnswer:
        """The mean of what the first raters said; LATER while there are fewer."""
        answers = self._answers.get(item.key, [])[: self.raters]
        if len(answers) < self.raters:
            self.waiting.setdefault(item.key, item)
            return LATER
        values = [WORTH[answer] for answer in answers if answer != SKIP]
        return sum(values) / len(values) if values else UnjudgedError("everybody who saw it skipped it")

    def write_page(self) -> Path:
        """The page with what is still to be judged, in an order that says nothing of the models."""
        path = self.work / PAGE
        self.work.mkdir(parents=True, exist_ok=True)
        path.write_text(render_items([self.waiting[key] for key in sorted(self.waiting)]), "utf-8")
        return path


@dataclass(frozen=True)
class PeopleGrades:
    """People who grade each answer by itself, from useless to flawless in five steps: a source of gold."""

    labels: PeopleLabels
    judged: ClassVar[bool] = False
    name: ClassVar[str] = "people"
    timeout: ClassVar[float] = math.inf

    @property
    def identity(self) -> str:
        return f"{_many(self.labels.raters)} who graded each answer, labels {self.labels.mark}"

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        return [self.labels.ask(PageItem(str(one.prompt or ""), one.completion)) for one in requests]


@dataclass
class PeopleReferee:
    """People who are shown two answers, once, on sides that only the texts decide. Of several, most of them win."""

    labels: PeopleLabels
    judged: ClassVar[bool] = False
    costly: ClassVar[bool] = True
    faults: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def identity(self) -> str:
        return f"{_many(self.labels.raters)} who compared two answers, labels {self.labels.mark}"

    def outcomes(self, pairs: Sequence[AnswerPair], progress: Progress | None = None) -> Floats:
        return np.array([self._outcome(pair) for pair in pairs], np.float64)

    def by_order(self, pairs: Sequence[AnswerPair]) -> int:
        return 0  # each is shown in one order

    def _outcome(self, pair: AnswerPair) -> float:
        if pair.first == pair.second:
            return 0.5
        texts = sorted((pair.first, pair.second))
        coin = hashlib.sha256(json.dumps([pair.prompt, *texts]).encode()).digest()[0] & 1
        first, second = texts[::-1] if coin else texts
        answer = self.labels.ask(PageItem(pair.prompt, first, second))
        if not isinstance(answer, float):
            why = str(answer) if isinstance(answer, UnjudgedError) else "nobody has judged it yet"
            self.faults[why] = self.faults.get(why, 0) + 1
            return math.nan
        won = float(np.sign(answer - 0.5) / 2 + 0.5)
        return won if first == pair.first else 1.0 - won


def _many(raters: int) -> str:
    return "a person" if raters == 1 else f"{raters} people"


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise AttachError(f"{path} is too large for a file that the page saved")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AttachError(f"{path} cannot be read: {error}") from error


def _read_answers(path: Path, text: str) -> dict[str, str]:
    """By key, a person's last answer."""
    answers: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise AttachError(f"{path}, line {number} is not what the page saved") from error
        answer = row.get("person") if isinstance(row, Mapping) else None
        if not isinstance(answer, str) or answer not in (*WORTH, SKIP) or not isinstance(row.get("key"), str):
            raise AttachError(f"{path}, line {number} is not what the page saved")
        answers[row["key"]] = answer
    return answers
