"""Self-consistency: the same question several times, at temperature 1 (Wang et al. 2022, arXiv 2203.11171)."""

from __future__ import annotations

from tiltmeter.models.judge_prompts import SCORE
from tiltmeter.models.oversight.method import AnswerToGrade, Asking, JudgeQuestion, mean_grade


class SelfConsistency:
    """The mean of several samples. It removes what chance does to one reply, and nothing that the judge believes.

    The paper takes the majority of answers; of scores the mean is taken here, and the majority is the confidence.
    """

    name = "self_consistency"
    about = "the mean of several samples of the judge"
    least_calls = 2
    needs_helper = False

    def ask(self, case: AnswerToGrade) -> Asking:
        data = {"task": case.task, "answer": case.answer}
        return mean_grade((yield [JudgeQuestion(SCORE, data, sample=number) for number in range(1, case.calls + 1)]))
