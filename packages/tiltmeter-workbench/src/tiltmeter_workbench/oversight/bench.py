"""Asks a judge about the same answers by each method, at equal calls, and stores every grade as it comes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter.models.judge import Judge
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.models.oversight.all_methods import METHODS
from tiltmeter.models.oversight.method import Grade
from tiltmeter_workbench.common.chat_model import Progress
from tiltmeter_workbench.compare.sampling import JsonlCache
from tiltmeter_workbench.oversight.graded import GradedAnswers
from tiltmeter_workbench.oversight.known_answers import KnownAnswer

CALLS = 5  # about one answer
BATCH = 32  # answers that are asked about and stored at once


def judge_by(judge: Judge, name: str, calls: int = CALLS) -> Judge:
    """The same judge, asked by a method. The bare judge has one call: at temperature 0 more say the same."""
    if name not in METHODS:
        raise AttachError(f"there is no method {name!r}; there are {', '.join(METHODS)}")
    if name == "bare":
        return replace(judge, method="bare", calls=1, helpers=())
    if calls < METHODS[name].least_calls:
        raise AttachError(f"{name} needs at least {METHODS[name].least_calls} calls an answer: --calls N")
    return replace(judge, method=name, calls=calls)


def methods_for(judge: Judge, calls: int = CALLS) -> list[str]:
    """Every method that this judge and so many calls allow."""
    return [
        name
        for name, method in METHODS.items()
        if method.least_calls <= calls and (judge.helpers or not method.needs_helper)
    ]


def grade_by_method(
    judge: Judge, answers: Sequence[KnownAnswer], cache: JsonlCache, progress: Progress | None = None
) -> GradedAnswers:
    """The grades of all answers by the judge's method. One that failed is asked again next time, the others are not."""
    keys = [_key(judge, one) for one in answers]
    new = [at for at, key in enumerate(keys) if key not in cache]
    for start in range(0, len(new), BATCH):
        part = new[start : start + BATCH]
        grades = judge.grades([(answers[at].task, answers[at].answer) for at in part])
        pairs = zip(part, grades, strict=True)
        cache.put({keys[at]: [one.value, one.confidence] for at, one in pairs if isinstance(one, Grade)})
        if progress is not None:
            progress(judge.method, start + len(part), len(new))
    stored = [cache.get(key) for key in keys]
    missing = JudgeError("the judge gave no grade")
    return GradedAnswers.of_grades(judge.method, answers, [Grade(*one) if one else missing for one in stored])


def open_cache(work: Path) -> JsonlCache:
    return JsonlCache(work / "grades.jsonl")


def _key(judge: Judge, one: KnownAnswer) -> str:
    parts = [judge.endpoint, judge.model, judge.mark, one.task, one.answer]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
