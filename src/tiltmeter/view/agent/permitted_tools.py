"""What an agent may do with a token that a person gave it: label as a rater, or answer alarms and proposals."""

from __future__ import annotations

from typing import Literal

from tiltmeter.rundir.requests import CHANGES
from tiltmeter.view.agent.fence import fence
from tiltmeter.view.agent.run_choice import RunChoice
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.payloads.people import LabelTask
from tiltmeter.view.screens.actions import submit_action_request
from tiltmeter.view.screens.alarms import submit_note
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import labelling

AGENT = "by an agent: "  # before every reason, so that nobody takes it for a person's


class LabelTools:
    """Labelling under the name that the token is bound to. A task shows no reward and no run, as on the page."""

    def __init__(self, runs: RunChoice, rater: str) -> None:
        self.runs, self.rater = runs, rater

    def next_label_task(self) -> str:
        """The next pair of completions, or single one, to judge blindly by the guide; or why there is none."""
        return self._task(labelling.next_task(self._readers(), self.rater))

    def submit_label(self, task: str, answer: str, milliseconds: int = 0) -> str:
        """Answer a task and get the next. A pair: a, b, tie, both_bad or skip. A single one: 0, 0.25, 0.5, 0.75, 1 or
        skip."""
        return self._task(labelling.submit_answer(self._readers(), self.rater, task, answer, milliseconds))

    def undo_label(self) -> str:
        """Take back the last answer; its task comes again."""
        return self._task(labelling.undo(self._readers(), self.rater))

    def _readers(self) -> list[RunReader]:
        return [self.runs.reader(name) for name in self.runs.paths()]

    def _task(self, task: LabelTask) -> str:
        return fence(f"Tasks left: {task.left}. Answered today: {task.done}.", plain(task), longest=40_000)


class ControlTools:
    """Answers to proposals and alarms, signed as the page and the command line sign them."""

    def __init__(self, runs: RunChoice) -> None:
        self.runs = runs

    def answer_proposal(self, action: str, answer: Literal["approve", "reject", "undo"], run: str = "") -> str:
        """Approve, reject or undo a proposed change, as `findings` lists them. The trainer makes an approved change at
        the end of its step."""
        reader = self.runs.reader(run)
        request = submit_action_request(reader.run, action, answer, reader.events)
        changes = request.kind in CHANGES
        head = (
            "Requested: the trainer answers at the end of its step."
            if changes
            else "Requested: the monitor records it."
        )
        return fence(head, {"request": request.id, "kind": request.kind, "knob": request.knob, "value": request.value})

    def answer_alarm(
        self, alarm: str, answer: Literal["acknowledge", "false_alarm"], reason: str = "", run: str = ""
    ) -> str:
        """Acknowledge an alarm or warning, or call it false with a reason, which resolves it."""
        reader = self.runs.reader(run)
        note = f"{AGENT}{reason}" if reason else ""
        request = submit_note(reader.run, reader.run_facts, alarm, answer, reason=note)
        return fence("Requested: the monitor records it.", {"request": request.id, "alarm": alarm})
