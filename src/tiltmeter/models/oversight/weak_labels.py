"""Labels of a smaller model where it is sure, and the judge's where it is not (cf. arXiv 2312.09390)."""

from __future__ import annotations

from tiltmeter.models.judge_prompts import SCORE
from tiltmeter.models.oversight.method import AnswerToGrade, Asking, JudgeQuestion, mean_grade, single_grade


class WeakLabels:
    """The helper is sampled; if all samples stand on one side, that is the label. Otherwise the judge is asked.

    The paper trains a strong model on such labels and asks whether it surpasses them. Here they are the labels; to
    train on them is a recipe's business.
    """

    name = "weak_labels"
    about = "a smaller model's labels where it is sure, the judge's where not"
    least_calls = 3
    needs_helper = True

    def ask(self, case: AnswerToGrade) -> Asking:
        data = {"task": case.task, "answer": case.answer}
        weak = mean_grade(
            (yield [JudgeQuestion(SCORE, data, model=case.helpers[0], sample=k) for k in range(1, case.calls)])
        )
        if weak.confidence == 1.0:
            return weak
        (reply,) = yield [JudgeQuestion(SCORE, data)]
        return single_grade(reply)
