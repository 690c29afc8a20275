"""A gold source that is slow, busy or hanging never holds up measuring; its labels are folded in when they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gold.judge_server import JudgeReply, judge_server
from tests.gold.test_gold import Teller, batch, lean, of, worth

from tiltmeter.gold import CompletionToLabel, GoldSource, label_cost, label_queue
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.gold.label_queue import MAX_OPEN_STEPS
from tiltmeter.gold.label_worker import LabelWorker, ask_source
from tiltmeter.models.judge import CANARIES, Judge
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.checks import Ages
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import verdict_of

KNOWN = {canary.completion for canary in CANARIES}  # all of them are worth nothing


@contextmanager
def serving(gate: threading.Event, *, busy: bool = False, lies: bool = False) -> Iterator[Judge]:
    """A judge on this machine that scores by the answer's last word. Until the gate is open it answers nothing, or, if
    `busy`, that it has too many requests. If it `lies`, good answers get what bad ones deserve."""

    def reply(data: dict[str, Any], system: str) -> JudgeReply:
        score = 0 if data["answer"] in KNOWN else round(10 * abs(lies - worth(data["answer"])))
        if busy and not gate.is_set():
            return JudgeReply("", 429, {"Retry-After": "1"})
        if not busy:
            gate.wait(60.0)
        return JudgeReply({"score": score})

    with judge_server(reply) as url:
        yield Judge(url, "small-judge", "It is right.")


class Live:
    """A run whose steps come one by one, and a monitor beside it that is in a hurry."""

    def __init__(self, path: Path, source: GoldSource, share: float | None) -> None:
        self.run = RunDirectory.create(path, {"id": "a run of the tests"})
        self.run.open_attempt(launch="x", ranks=1, resume_step=None)
        self.config: Config = lean().with_gold(source, share)
        self.loop = MonitorLoop(self.run, self.config, strict=True)
        assert self.loop.label_queue is not None
        self.loop.label_queue.in_hurry = True

    def step(self, step: int) -> None:
        """Write a step and measure it."""
        self.run.write(batch(step), 0, {"counters": {"seen": step + 1}})
        self.loop.poll()
        assert self.events("step_done")[-1].step == step

    def finish(self) -> None:
        self.run.close_rank(0, 0, {"seen": 1})
        while self.loop.poll() or self.loop.waiting:
            time.sleep(0.02)
        self.loop.close()
        assert replay(self.run, lean(), strict=True).difference is None

    def events(self, kind: str) -> list[Event]:
        return of(read_events(self.run.path / "events"), kind)

    @property
    def state(self) -> RunFacts:
        return RunFacts.from_events(read_events(self.run.path / "events"))


def test_a_judge_that_takes_longer_than_steps_holds_up_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_queue, "STEP_SECONDS", 0.1)
    monkeypatch.setattr(label_queue, "MAX_OPEN_STEPS", 3)
    with serving(gate := threading.Event()) as judge:
        live = Live(tmp_path / "run", JudgeSource("judge.toml", judge), 0.1)
        for step in range(12):
            live.step(step)
        assert not live.state.labels
        while_waiting = verdict_of(live.state, Ages(data=1.0, waiting=None))
        assert while_waiting.state == "BLIND"
        assert "judge.toml has not given the labels of " in while_waiting.sentence
        assert "were not asked about while it was busy" in while_waiting.sentence
        gate.set()
        live.finish()
    closed = live.events("labels_closed")
    assert [event.step for event in closed] == list(range(12)), "in the order drawn"
    assert sum(event.data["missing"] for event in closed) == 0
    assert sum(event.data["answered"] for event in closed) > 0
    behind = {event.step for event in live.events("step_done") if event.data.get("behind")}
    assert {event.step for event in closed if not event.data["asked"]} >= behind
    assert live.state.passed_over == len(behind) > 0
    assert not live.state.unlabelled


def test_a_judge_that_says_429_for_a_while_holds_up_nothing_and_its_labels_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_queue, "STEP_SECONDS", 0.1)
    with serving(gate := threading.Event(), busy=True) as judge:
        live = Live(tmp_path / "run", JudgeSource("judge.toml", replace(judge, retries=60)), 0.1)
        for step in range(6):
            live.step(step)
        assert not live.state.labels
        gate.set()
        live.finish()
    closed = live.events("labels_closed")
    assert [event.step for event in closed] == list(range(6))
    assert sum(event.data["missing"] for event in closed) == 0 < sum(event.data["answered"] for event in closed)


def test_a_judge_that_says_429_for_ever_holds_up_nothing_and_the_run_is_blind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_queue, "STEP_SECONDS", 0.1)
    with serving(threading.Event(), busy=True) as judge:
        live = Live(
            tmp_path / "run", JudgeSource("judge.toml", Judge(judge.url, judge.model, judge.guide, retries=0)), 0.1
        )
        for step in range(4):
            live.step(step)
        live.finish()
    verdict = verdict_of(live.state, Ages(data=1.0, waiting=None))
    assert verdict.state == "BLIND"
    assert "HTTP 429" in verdict.sentence


def test_a_source_that_hangs_leaves_the_number_of_open_steps_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_queue, "STEP_SECONDS", 0.05)
    gate = threading.Event()

    def hanging(request: CompletionToLabel) -> float:
        gate.wait(60.0)
        return worth(request.completion)

    live = Live(tmp_path / "run", Teller(hanging), 1.0)
    for step in range(MAX_OPEN_STEPS + 12):
        live.step(step)
    asked = [event.data["asked"] for event in live.events("step_done")]
    assert asked == [64] * MAX_OPEN_STEPS + [0] * 12
    gate.set()
    live.finish()
    assert live.state.labels == 64 * MAX_OPEN_STEPS


def test_labels_of_a_quick_source_are_there_before_the_next_step(tmp_path: Path) -> None:
    live = Live(tmp_path / "run", Teller(), 1.0)
    for step in range(3):
        live.step(step)
        assert live.events("labels_closed")[-1].step == step
    live.finish()


def test_timing_a_function_that_hangs_takes_seconds_of_the_first_step_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_cost, "LONGEST_TIMING", 0.3)
    monkeypatch.setattr(label_queue, "STEP_SECONDS", 0.05)
    gate = threading.Event()

    def score(completion: str) -> float:
        gate.wait(60.0)
        return worth(completion)

    live = Live(tmp_path / "run", FunctionSource("checks.py:score", score), None)
    for step in range(2):
        live.step(step)
    (chosen,) = (event for event in live.events("note") if event.data["note"] == "gold_share")
    assert chosen.data["why"] == "a label of checks.py:score takes at least 3e+02 ms: 0.052 of rollouts are labelled"
    gate.set()
    live.finish()


def test_a_monitor_is_in_a_hurry_only_beside_a_run_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stored run every step is asked about, however slow the source is."""
    monkeypatch.setattr(label_queue, "STEP_SECONDS", 0.01)
    monkeypatch.setattr(label_queue, "MAX_OPEN_STEPS", 1)

    class Slow(Teller):
        def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[float]:
            time.sleep(0.05)
            return [worth(request.completion) for request in requests]

    run = RunDirectory.create(tmp_path / "run", {"id": "a run of the tests"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(6):
        run.write(batch(step), 0, {"counters": {"seen": 6}})
    run.close_rank(0, 0, {"seen": 6})
    run_monitor(run, lean().with_gold(Slow(), 1.0))
    assert [event.data["asked"] for event in of(read_events(run.path / "events"), "step_done")] == [64] * 6


def test_a_worker_that_is_closed_begins_nothing_more() -> None:
    worker, gate, began = LabelWorker(), threading.Event(), list[int]()
    first = worker.submit(lambda: gate.wait(60.0))
    second = worker.submit(lambda: began.append(1))
    worker.close()
    gate.set()
    assert first.result(60.0)
    while not second.done():
        time.sleep(0.01)
    assert second.cancelled()
    assert not began


def test_what_a_source_raises_or_leaves_out_is_the_answer_to_every_request() -> None:
    class Short(Teller):
        def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[float]:
            return [1.0]

    requests = [CompletionToLabel("", 0, 0, row, "slope", "p", "a 1") for row in range(2)]
    assert [type(answer).__name__ for answer in ask_source(Short(), requests).answers] == ["ContractError"] * 2

    class Broken(Teller):
        def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[float]:
            raise SystemExit(3)

    assert [type(answer).__name__ for answer in ask_source(Broken(), requests).answers] == ["SystemExit"] * 2
