"""Asks a witness about groups of trajectories over OpenAI's chat API, and says first what it will cost."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiltmeter.models.chat.endpoint import ChatError
from tiltmeter.models.judge import BATCH_SECONDS, Judge, fenced_body
from tiltmeter.models.judge_cost import CHARACTERS
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter_workbench.witness.answer import ERROR, UNANSWERED, WitnessAnswer, error_answer, read_answers, read_turns
from tiltmeter_workbench.witness.question import READ_TURNS, TURN, GroupQuestion, Trajectory, make_question

REPLY_TOKENS = 80  # of an answer for one trajectory, with a quote


@dataclass(frozen=True)
class GroupToAsk:
    """Trajectories of one prompt."""

    task: str
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True)
class Witness:
    """A language model that says of each trajectory of a group what was done. It is evidence, never a verdict.

    The same file describes it as a judge: its guide says what honest work is. `reasoning`: whether it sees what the
    policy thought.

    >>> witness = Witness(Judge("http://localhost:8000/v1", "small", "The function is written as asked."))
    >>> witness.identity.startswith("the witness small at localhost:8000, guide ")
    True
    """

    judge: Judge
    reasoning: bool = True
    seed: int = 0

    @property
    def identity(self) -> str:
        """Another model, server, prompt or way of asking is another witness, and needs a calibration of its own."""
        turn = Trajectory(())
        prompt = GroupQuestion("", (turn, turn), (0, 1), self.judge.guide, self.reasoning).system("")
        mark = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        words = "" if self.reasoning else ", without reasoning"
        return f"the witness {self.judge.model} at {self.judge.host}, guide {mark}{words}"

    def ask(self, groups: Sequence[GroupToAsk], within: float = BATCH_SECONDS) -> list[list[WitnessAnswer]]:
        """Answers for each group's trajectories, in their order. Without a valid reply they are errors, and say why."""
        questions = [self._question(at, group) for at, group in enumerate(groups)]
        errors: dict[int, WitnessAnswer] = {}
        long = [at for at, one in enumerate(questions) if one.needs_index]
        for at, reply in zip(long, self._send([questions[at] for at in long], within), strict=True):
            try:
                read = read_turns(_body(reply), questions[at])
                questions[at] = replace(questions[at], read=read or {"": ()})
            except JudgeError as error:
                errors[at] = _failure(error)
        valid = [at for at in range(len(questions)) if at not in errors]
        answers: dict[int, list[WitnessAnswer]] = {}
        for at, reply in zip(valid, self._send([questions[at] for at in valid], within), strict=True):
            try:
                answers[at] = read_answers(_body(reply), questions[at])
            except JudgeError as error:
                errors[at] = _failure(error)
        return [
            answers[at] if at in answers else [errors[at]] * len(group.trajectories) for at, group in enumerate(groups)
        ]

    def cost(self, groups: Sequence[GroupToAsk]) -> str:
        """What these questions will cost at most, in a line that is said before they are asked."""
        sent = received = calls = 0.0
        for at, group in enumerate(groups):
            question = self._question(at, group)
            body = fenced_body(self.judge.model, question.system, question.data())
            characters = sum(len(message["content"]) for message in body["messages"])
            calls += 1
            if question.needs_index:
                calls += 1
                characters = 2 * characters + len(question.shown) * READ_TURNS * TURN
            sent += characters / CHARACTERS / 1e6
            received += REPLY_TOKENS * len(question.shown) / 1e6
        text = (
            f"the witness {self.judge.model} at {self.judge.host}: {calls:.0f} calls, at most {sent:.2g} M tokens sent "
            f"and about {received:.2g} M received"
        )
        if not (self.judge.price_in or self.judge.price_out):
            return f"{text}; with price_in and price_out in its file, what that costs is said here"
        return f"{text}: {self.judge.price_in * sent + self.judge.price_out * received:.2g} by the prices in its file"

    def _question(self, at: int, group: GroupToAsk) -> GroupQuestion:
        rng = random.Random(f"{self.seed} {at}")
        return make_question(group.task, group.trajectories, self.judge.guide, rng, reasoning=self.reasoning)

    def _send(self, questions: Sequence[GroupQuestion], within: float) -> list[bytes | ChatError]:
        bodies = [fenced_body(self.judge.model, one.system, one.data()) for one in questions]
        replies = dict(self.judge.server.replies(bodies, within=within)) if bodies else {}
        return [replies[number] for number in range(len(bodies))]


class NoReplyError(JudgeError):
    """The server did not answer, which says nothing about the witness."""


def _body(reply: bytes | ChatError) -> bytes:
    if isinstance(reply, ChatError):
        raise NoReplyError(str(reply))
    return reply


def _failure(error: JudgeError) -> WitnessAnswer:
    return error_answer(str(error), UNANSWERED if isinstance(error, NoReplyError) else ERROR)
