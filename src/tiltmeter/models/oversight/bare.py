"""The bare judge: one score."""

from __future__ import annotations

from tiltmeter.models.judge_prompts import SCORE
from tiltmeter.models.oversight.method import AnswerToGrade, Asking, JudgeQuestion, single_grade


class Bare:
    """One call, at temperature 0."""

    name = "bare"
    about = "the judge is asked once"
    least_calls = 1
    needs_helper = False

    def ask(self, case: AnswerToGrade) -> Asking:
        (reply,) = yield [JudgeQuestion(SCORE, {"task": case.task, "answer": case.answer})]
        return single_grade(reply)
