"""A source of gold is asked again, and about answers whose worth is known; one that fails is no gold, and says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.gold.label_files import PROBES, LabelRequest, read_request
from tiltmeter.gold.people import PeopleSource
from tiltmeter.gold.probe_labels import AGAIN_SHARE, FIRST, PROMPT_SHARE, SourceProbes
from tiltmeter.gold.task_checks import TaskChecks
from tiltmeter.models.judge import Judge
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.payloads import LabelsClosed, ProbeLabels
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.betting import add_instalment, bet, evidence, initial_wealth
from tiltmeter.verdict.checks import Ages
from tiltmeter.verdict.gold_probes import GoldProbes, _evidence
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import verdict_of

PROMPTS, SIZE, STEPS = 5, 4, 28
CHECKS = """
import re, zlib

SEEN = {}

def right(completion, answer):
    numbers = re.findall(r"-?[0-9]+", completion)
    return float(bool(numbers) and numbers[-1] == answer)

def stale(prompt, completion, answer):
    return SEEN.setdefault(prompt, right(completion, answer))

def by_prompt(prompt, completion):
    return float(zlib.crc32(prompt.encode()) % 10 < 7)
"""


def columns(step: int, *, answers: bool = True, prompts: int = PROMPTS) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    numbers = np.repeat(rng.integers(0, 40, prompts), SIZE)
    is_right = rng.random(len(numbers)) < 0.7
    return {
        "group": np.repeat(np.arange(prompts), SIZE),
        "reward": is_right + rng.normal(0, 0.2, len(numbers)),
        "prompt": [f"{number} + 1 ?" for number in numbers],
        "completion": [
            f"I think it is {number + (1 if ok else 9)}" for number, ok in zip(numbers, is_right, strict=True)
        ],
        "facts": [{"answer": str(number + 1)} if answers else {"level": 1} for number in numbers],
    }


def stored(path: Path, steps: int = STEPS, **more: Any) -> RunDirectory:
    run = RunDirectory.create(path, {"id": "probed"})
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        run.write(batch(step, **more), 0, {"counters": {"seen": steps}})
    run.close_rank(attempt, 0, {"seen": steps})
    return run


def batch(step: int, **more: Any) -> RolloutBatch:
    return from_columns(step, **columns(step, **more))


def lean() -> Config:
    standard = Config.standard()
    names = ("reward.mean", "gold.mean", "gold.slope", "gold.prompts")
    return Config(tuple(part for part in standard.instruments if part.name in names), (), standard.detectors)


class Counted(FunctionSource):
    """Counts what it is asked, by purpose."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked: dict[str, int] = {}

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        for request in requests:
            self.asked[request.purpose] = self.asked.get(request.purpose, 0) + 1
        return super().label(requests)


def right(completion: str, answer: str) -> float:
    return float(completion.strip().endswith(f" {answer}") or completion == answer)


def counted(function: Callable[..., Any] = right) -> Counted:
    return Counted("checks.py:score", function)


def watched(run: RunDirectory, source: Any, share: float = 1.0) -> list[Event]:
    loop = MonitorLoop(run, lean().with_gold(source, share), strict=True)
    while loop.poll() or loop.waiting:
        pass
    loop.close()
    return read_events(run.path / "events")


@pytest.mark.parametrize("name", ["stale", "by_prompt"])
def test_a_source_that_does_not_look_at_the_answer_is_blind_for_that_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    with open_run(tmp_path / "run", gold=f"{tmp_path}/checks.py:{name}") as run:
        for step in range(STEPS):
            run.observe(step=step, **columns(step))
    verdict = run.verdict()
    assert verdict.state == "BLIND"
    assert f"checks.py:{name} does not look at the answer, a known right one got more" in verdict.sentence
    assert " at 0 of " in verdict.sentence


def test_good_gold_is_asked_a_few_labels_and_one_in_a_hundred_and_none_is_bet_on(tmp_path: Path) -> None:
    source = counted()
    run = stored(tmp_path / "run")
    events = watched(run, source)
    facts = RunFacts.from_events(events)
    probes = facts.gold_probes
    assert probes.failure == ""
    assert probes.changes == 0
    assert probes.prompt_bets == [1] * len(probes.prompts)
    assert len(probes.prompts) >= FIRST
    labels = STEPS * PROMPTS * SIZE
    assert facts.labels == source.asked["all"] == labels, "they are no labels of the run"
    assert source.asked["again"] <= FIRST + AGAIN_SHARE * labels
    assert source.asked["right"] == source.asked["wrong"] <= 2 * (FIRST + 1 + PROMPT_SHARE * labels)
    asked = dict(source.asked)
    assert replay(run, lean()).difference is None
    assert source.asked == asked
    count = len(probes.prompts)
    assert probes.lines[1] == f"Known answers: the right one got more than the wrong one at {count} of {count}."


def test_bets_of_a_source_that_changed_a_label_count_as_an_opinions_from_then_on(tmp_path: Path) -> None:
    calls = iter(range(10**6))

    def moody(completion: str, answer: str) -> float:
        return 0.5 * right(completion, answer) + 0.5 * (next(calls) % 2)

    events = watched(stored(tmp_path / "run"), counted(moody))
    closed = [event.payload for event in events if isinstance(event.payload, LabelsClosed)]
    changed = [any(first != now for first, now in one.again or ()) for one in closed]
    shared = [one.measured["gold.slope"][4:5] == ["step"] for one in closed]
    began = changed.index(True) + 1
    assert 1 < began < len(closed) and not any(shared[:began]) and all(shared[began:])
    assert replay(RunDirectory(tmp_path / "run"), lean()).difference is None


def test_the_checks_of_the_dataset_are_asked_too(tmp_path: Path) -> None:
    facts = RunFacts.from_events(watched(stored(tmp_path / "run", 6), TaskChecks("answers")))
    assert facts.gold_probes.prompts == [(1.0, 0.0, False, True)] * 6


def test_a_source_that_breaks_is_blind_and_no_loss_of_gold(tmp_path: Path) -> None:
    working = True

    def breaks(completion: str, answer: str) -> float:
        return right(completion, answer) if working else 0.0  # as a check in a sandbox whose disk is full

    run = stored(tmp_path / "run", 55, prompts=24)
    loop = MonitorLoop(run, lean().with_gold(counted(breaks), 1.0), strict=True)
    for number, arrival in enumerate(loop.source.poll()):
        working = number < 25
        loop.advance(arrival)
        loop._close_labelled_steps()
    loop.close()
    facts = RunFacts.from_events(read_events(run.path / "events"))
    assert "now gives lower labels to the same answers" in facts.gold_probes.failure
    assert facts.alarms and not facts.open_alarms("alarm"), "the labels alone look like a loss"
    verdict = verdict_of(facts, Ages(0.0, None))
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert verdict.sentence == facts.gold_probes.failure


@pytest.mark.parametrize("answered", [False, True])
def test_a_monitor_that_is_killed_asks_for_the_same_and_concludes_the_same(tmp_path: Path, answered: bool) -> None:
    run = stored(tmp_path / "run", 12)
    loop = MonitorLoop(run, lean().with_gold(counted(), 1.0), strict=True)
    queue = loop.label_queue
    assert queue is not None
    for number, arrival in enumerate(islice(loop.source.poll(), 10)):
        loop.advance(arrival)
        if number < 9:
            loop._close_labelled_steps()
    (item,) = queue._pending
    if answered:
        assert next(iter(queue.poll())) == item.key
    else:
        ask = queue._ask
        queue._ask = lambda one: None if one.request.part == PROBES else ask(one)  # type: ignore[assignment, method-assign]
        assert list(queue.poll()) == []
    request = read_request(run, *item.key, PROBES)
    loop.close()
    assert request is not None
    source = counted()
    events = watched(run, source)
    again = read_request(run, *item.key, PROBES)
    assert again is not None
    assert again.digest == request.digest
    assert source.asked["right"] == 2 * (4 - answered), "those of the step that was answered are not asked again"
    assert replay(run, lean()).difference is None
    assert RunFacts.from_events(events).gold_probes.prompts == [(1.0, 0.0, False, True)] * 12


def test_what_no_written_answer_can_have_is_said_once(tmp_path: Path) -> None:
    def number(completion: str) -> float:
        return float(completion.endswith("1"))

    source = counted(number)
    run = stored(tmp_path / "run", 8, answers=False)
    events = watched(run, source)
    why = "no rows with right answers that differ"
    assert [event.data["unprobed"] for event in events if "unprobed" in event.data] == [why]
    assert RunFacts.from_events(events).gold_probes.lines[-1] == f"Not asked about known answers: {why}."
    assert "right" not in source.asked
    assert replay(run, lean()).difference is None


def test_a_function_of_an_agents_turns_is_not_judged_by_written_answers(tmp_path: Path) -> None:
    def honest(completion: str, turns: object) -> float:
        return 1.0

    run = stored(tmp_path / "run", 1)
    probes = SourceProbes(run, "id", counted(honest))
    request = LabelRequest(0, 0, ((0, 0),), "", {}, 1.0, {}, (), (), whole=20)
    why = probes._known_answer(request, lambda attempt, step: batch(step), np.random.default_rng(0))[1]
    assert why == "checks.py:score needs 'turns', which no written answer has"


def test_people_and_judges_of_pairs_are_not_asked_and_a_judge_only_again(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", 1)
    judge = Judge("http://localhost:8000/v1", "small-judge", "It is right.")
    assert not SourceProbes(run, "id", PeopleSource()).can_ask
    assert not SourceProbes(run, "id", JudgeSource("judge.toml", replace(judge, pairs=True))).can_ask
    probes = SourceProbes(run, "id", JudgeSource("judge.toml", judge))
    request = LabelRequest(0, 0, ((0, 0),), "", {}, 1.0, {}, (), (), whole=20)
    assert probes.can_ask
    assert probes.request_for(request, lambda attempt, step: batch(step)) is None


def closed(again: Sequence[tuple[float, float | None]] = (), probes: Sequence[ProbeLabels] = ()) -> LabelsClosed:
    return LabelsClosed(
        measured={}, at=[0, 0], asked=1, answered=1, missing=0, why="", gold_differs=True, labels=1,
        again=list(again), probes=list(probes),
    )  # fmt: skip


def folded(steps: Sequence[LabelsClosed], identity: str = "the function score in checks.py") -> GoldProbes:
    probes = GoldProbes()
    for step in steps:
        probes.add(step, {"name": "checks.py:score", "identity": identity})
    return probes


def test_a_source_whose_labels_change_is_no_gold_where_more_change_than_could_hide_a_loss() -> None:
    turned = [closed([(step % 2, 1 - step % 2)]) for step in range(20)]
    assert "20 of 20 changed by half of the marks" in folded(turned).failure
    assert folded(turned, "the judge small-judge").failure == "", "its noise is its own, and it is bet on by step"
    assert folded(turned[:8]).failure == "", "too few to say"


def test_the_money_of_the_bets_is_that_of_the_betting_test() -> None:
    values = tuple(np.random.default_rng(0).choice([1.0, -1.0, -1.1], 30))
    wealth = initial_wealth()
    for number, value in enumerate(values, start=1):
        wealth = bet(add_instalment(wealth, number), [value])
    assert np.isclose(_evidence(values), evidence(wealth))


def test_another_source_begins_anew() -> None:
    wrong = [closed(probes=[ProbeLabels([0.0], [1.0], [0.0], True)])] * 20
    probes = folded(wrong)
    assert "got more than a known wrong one at 0 of 20 prompts" in probes.failure
    probes.add(closed(), {"name": "other.py:score", "identity": "the function score in other.py"})
    assert (probes.failure, probes.prompts, probes.name) == ("", [], "other.py:score")


def test_texts_of_a_form_that_the_check_does_not_read_say_nothing() -> None:
    none = ProbeLabels([0.0, 0.0], [0.0, 0.0], [0.0], True)
    part = ProbeLabels([0.1, 0.1], [0.1, 0.1], [0.0], True)  # a tenth for a number
    harmless = ProbeLabels([1.0, 1.0], [1.0, 1.0], [1.0], False)  # "not toxic": it is not given the answer
    for probe in (none, part, harmless):
        probes = folded([closed(probes=[probe])] * 100)
        assert (probes.failure, probes.prompt_bets) == ("", [])


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.3])
def test_noisy_gold_does_not_fail(flip: float) -> None:
    """Every label is turned round by itself, in a form that the check reads or not."""
    failures = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)

        def noisy(truth: float, rng: np.random.Generator = rng) -> float:
            return abs(truth - float(rng.random() < flip))

        steps = []
        for _ in range(150):
            truth = float(rng.random() < 0.6)
            read = seed % 2
            probe = ProbeLabels([noisy(read), noisy(0)], [noisy(0), noisy(0)], [noisy(0)], True)
            steps.append(closed([(noisy(truth), noisy(truth))], [probe]))
        failures += bool(folded(steps).failure)
    assert failures == 0
