"""After an alarm labels are bought over the stored past, and name the step that is worth going back to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import ONSET, read_labels, read_request
from tiltmeter.gold.onset_labels import LABELS, StoredStep, draw_rows
from tiltmeter.gold.people import PeopleSource, store_answer
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import advise_on_run
from tiltmeter.verdict.verdict import dated_alarms
from tiltmeter.view.server.labelling_tasks import LabelSession

GROUPS, SIZE, STEPS, PEAK = 8, 8, 90, 40
SHARE = 0.05  # so few that the alarm comes when gold has fallen


def truth(step: int) -> float:
    """Gold rises for forty steps and then falls."""
    return float(np.interp(step, [0, PEAK, STEPS], [0.4, 0.8, 0.1]))


def batch(step: int) -> RolloutBatch:
    """From the peak on, wrong answers are paid more inside every prompt."""
    rng = np.random.default_rng(step)
    right = rng.random(GROUPS * SIZE) < truth(step)
    sign = 1.0 if step < PEAK else -1.0
    columns: dict[str, Any] = {
        "reward": 0.02 * step + sign * 0.2 * right + rng.normal(0, 0.1, len(right)),
        "prompt": [f"prompt {(step * GROUPS + k) % 24}" for k in np.repeat(np.arange(GROUPS), SIZE)],
        "completion": [f"answer {row} is {'right' if one else 'wrong'}" for row, one in enumerate(right)],
        "scalars": {"checkpoint": float(step)} if step % 10 == 0 else {},
    }
    return from_columns(step, np.repeat(np.arange(GROUPS), SIZE), **columns)


def stored(path: Path, steps: int = STEPS) -> RunDirectory:
    run = RunDirectory.create(path, {"id": path.name})
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        run.write(batch(step), 0, {"counters": {"seen": steps}})
    run.close_rank(attempt, 0, {"seen": steps})
    return run


def lean() -> Config:
    standard = Config.standard()
    names = ("reward.mean", "gold.mean", "gold.slope", "gold.prompts", "training")
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


def score(completion: str) -> float:
    return float(completion.endswith("right"))


def watched(run: RunDirectory, source: FunctionSource) -> list[Event]:
    loop = MonitorLoop(run, lean().with_gold(source, SHARE), strict=True)
    while loop.poll() or loop.waiting:
        pass
    loop.close()
    return read_events(run.path / "events")


@pytest.fixture(scope="module")
def alarmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, list[Event], Counted]:
    run, source = stored(tmp_path_factory.mktemp("onset") / "run"), Counted("checks.py:score", score)
    return run, watched(run, source), source


def test_after_an_alarm_the_past_is_labelled_and_its_peak_is_named(
    alarmed: tuple[RunDirectory, list[Event], Counted],
) -> None:
    _, events, source = alarmed
    run_facts = RunFacts.from_events(events)
    onset = run_facts.onset
    assert onset is not None
    assert onset.has_fallen
    assert source.asked["onset"] == onset.requested == onset.answered == LABELS
    assert truth(onset.peak) >= truth(PEAK) - 0.1
    assert onset.low <= PEAK <= onset.high
    assert len(onset.label_steps) == len(onset.labels) == onset.answered
    (raised,), (alarm,) = run_facts.open_alarms("alarm"), dated_alarms(run_facts)
    assert alarm.onset_low <= PEAK <= alarm.onset_high <= alarm.data_step
    assert f"since about step {alarm.onset} " in alarm.summary
    assert f"since about step {raised.onset} " in raised.summary, "what was said at the alarm stays"
    advice = advise_on_run(run_facts)
    assert advice is not None
    assert advice.word == "stop"
    assert advice.best is not None
    assert truth(advice.best.step) >= truth(PEAK) - 0.1 - 1e-9  # rounding
    assert advice.best.low <= truth(advice.best.step) <= advice.best.high


def test_a_replay_finds_the_same_onset_and_asks_nobody(alarmed: tuple[RunDirectory, list[Event], Counted]) -> None:
    run, events, source = alarmed
    before = dict(source.asked)
    again = replay(run, lean())
    assert again.difference is None
    assert source.asked == before
    assert sum(event.data.get("note") == "onset" for event in events) == 1


def test_a_monitor_that_is_killed_while_it_asks_about_the_past_asks_for_the_same(
    alarmed: tuple[RunDirectory, list[Event], Counted], tmp_path: Path
) -> None:
    _, events, _ = alarmed
    at = next(place for place, event in enumerate(events) if event.kind == "alarm")
    steps = sum(event.kind == "step_done" for event in events[:at])
    for late in (0, 1):
        run, source = stored(tmp_path / f"killed-{late}" / "run"), Counted("checks.py:score", score)
        loop = MonitorLoop(run, lean().with_gold(source, SHARE), strict=True)
        ask_past, loop.label_queue.ask_past = loop.label_queue.ask_past, lambda *_: False  # type: ignore[union-attr, method-assign]
        for arrival in islice(loop.source.poll(), steps + 1 + late):
            loop.advance(arrival)
            loop._close_labelled_steps()
        if late:
            assert ask_past(*loop.memory.alarms_without_onset[0], loop.memory.stored_steps)  # labelled, not concluded
        loop.close()
        again = watched(run, source)
        assert source.asked["onset"] == LABELS
        before, after = (
            next(event.data for event in one if event.data.get("note") == "onset") for one in (events, again)
        )
        # Of equal files in the same order: what is asked, and what follows from it, is the same.
        assert {**before, "requests": ""} == {**after, "requests": ""}
        assert replay(run, lean()).difference is None


def test_a_run_without_an_alarm_buys_nothing(tmp_path: Path) -> None:
    source = Counted("checks.py:score", score)
    watched(stored(tmp_path / "run", PEAK // 2), source)
    assert "onset" not in source.asked


def test_a_source_that_fails_leaves_the_alarm_as_it_was(tmp_path: Path) -> None:
    class Silent(Counted):
        def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
            if requests and requests[0].purpose == "onset":
                raise ConnectionError("no such host")
            return super().label(requests)

    run_facts = RunFacts.from_events(watched(stored(tmp_path / "run"), Silent("checks.py:score", score)))
    assert run_facts.onset is not None
    assert "ConnectionError: no such host" in run_facts.onset.why
    assert run_facts.open_alarms("alarm")
    advice = advise_on_run(run_facts)
    assert advice is not None
    assert advice.word == "stop"


def test_rows_are_drawn_evenly_and_a_long_run_is_read_in_part() -> None:
    source = FunctionSource("checks.py:score", score)
    steps = [StoredStep(0, step, 64, ((0, 0),)) for step in range(2000)]
    request = draw_rows("id", 0, 1999, steps, source)
    assert request is not None
    assert len(request.state["steps"]) == 400
    assert len(request.rows) == LABELS
    at = [step for _, step, _ in request.rows]
    assert 800 < np.mean(at) < 1200
    assert at != sorted(at)
    assert draw_rows("id", 0, 1999, steps, source).digest == request.digest  # type: ignore[union-attr]
    assert draw_rows("other", 0, 1999, steps, source).rows != request.rows  # type: ignore[union-attr]
    assert draw_rows("id", 0, 0, [StoredStep(0, 0, 0, ())], source) is None


def test_people_see_the_past_at_the_labelling_screen(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", 30)
    source = PeopleSource()
    loop = MonitorLoop(run, lean().with_gold(source, 0.2), strict=True)
    loop.poll()
    assert loop.label_queue is not None
    assert not loop.label_queue.ask_past(0, 29, loop.memory.stored_steps)
    assert loop.waiting
    session = LabelSession(run)
    session.update([])
    (step,) = session.open_steps()
    items = session.items(step)
    assert {len(item) for item in items} == {1}
    for item in items:
        text = session.texts(step, item)
        assert text is not None
        store_answer(run, step.request, "ada", item, "1" if text[1][0].endswith("right") else "0")
    assert loop.label_queue.ask_past(0, 29, loop.memory.stored_steps)
    request = read_request(run, 0, 29, ONSET)
    assert request is not None
    assert None not in read_labels(run, request)
    onset = loop.label_queue.settle_past(0, 29)
    assert onset.answered == 100
    assert onset.high >= 25  # gold still rose
    session.update([])
    assert not session.open_steps()
    loop.close()
