"""An ensemble: several models give a score each, and their disagreement is the doubt."""

from __future__ import annotations

from itertools import cycle, islice

from tiltmeter.models.judge_prompts import SCORE
from tiltmeter.models.oversight.method import AnswerToGrade, Asking, JudgeQuestion, mean_grade


class Ensemble:
    """The judge and its helpers in turn. It removes errors that they do not share: models of one family share many."""

    name = "ensemble"
    about = "several models give a score each"
    least_calls = 2
    needs_helper = True

    def ask(self, case: AnswerToGrade) -> Asking:
        models = ("", *case.helpers)
        data = {"task": case.task, "answer": case.answer}
        return mean_grade(
            (
                yield [
                    JudgeQuestion(SCORE, data, model=model, sample=number // len(models))
                    for number, model in enumerate(islice(cycle(models), case.calls))
                ]
            )
        )
