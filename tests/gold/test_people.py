"""Gold from people: what answers come to, who counts, what may be taken back and until when, and what a replay says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.gold import LATER, CompletionToLabel
from tiltmeter.gold.bet_settlement import settle_bets
from tiltmeter.gold.label_files import Label, LabelRequest, read_labels, read_request, write_label, write_request
from tiltmeter.gold.label_queue import LabelQueue
from tiltmeter.gold.people import (
    PAIR,
    PeopleSource,
    RaterAnswers,
    collect_labels,
    label_pairs,
    people_folder,
    raters_of,
    store_answer,
    undo_answer,
)
from tiltmeter.gold.sampler import Bet
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config, load_gold
from tiltmeter.monitor.process import monitor_lock, monitor_running, run_monitor
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run


def directory(path: Path, steps: int, *, harm: bool = False, close: bool = True, groups: int = 8) -> RunDirectory:
    """Prompts with eight answers whose last word is their worth; the reward agrees with it, or contradicts it."""
    run = RunDirectory.create(path, {"id": "a run of the tests"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        rng = np.random.default_rng([step, harm])
        worth = rng.integers(0, 2, groups * 8).astype(float)
        reward = np.where(worth > 0, 1.0, -1.0) * (-1.0 if harm else 1.0) + 0.3 * rng.normal(size=len(worth))
        group = np.repeat(np.arange(groups), 8)
        texts = [f"{step}/{row} {worth[row]}" for row in range(len(worth))]
        prompts = [f"prompt {k}" for k in group]
        item = from_columns(step, group, reward=reward, prompt=prompts, completion=texts)
        run.write(item, 0, {"counters": {"seen": steps}})
    if close:
        run.close_rank(0, 0, {"seen": steps})
    return run


def parts() -> Config:
    standard = Config.standard()
    few = [part for part in standard.instruments if part.name in ("reward.mean", "gold.mean", "gold.slope")]
    return Config(tuple(few), (), standard.detectors)


def config(source: PeopleSource, share: float = 0.5) -> Config:
    return parts().with_gold(source, share)


def watched(run: RunDirectory, source: PeopleSource | None = None) -> MonitorLoop:
    watch = MonitorLoop(run, config(source or PeopleSource()), strict=True)
    watch.poll()
    return watch


def closed(run: RunDirectory) -> list[journal.Event]:
    return [event for event in journal.read_events(run.path / "events") if event.kind == "labels_closed"]


def asked_about(run: RunDirectory, step: int) -> LabelRequest:
    found = read_request(run, 0, step)
    assert found is not None
    return found


def steps_asked(run: RunDirectory, steps: int) -> list[LabelRequest]:
    return [asked for step in range(steps) if (asked := asked_about(run, step)).rows]


def say_all(run: RunDirectory, asked: LabelRequest, rater: str = "ada", given: str = "a") -> None:
    """One rater about everything that was asked of a step, with `up` shown first."""
    other = label_pairs(asked)
    done: set[int] = set()
    for bet in asked.bets:
        up, down = asked.rows.index(bet.up), asked.rows.index(bet.down)
        if other.get(up) == down:
            store_answer(run, asked, rater, (up, down), given)
        else:
            for number in {up, down} - done:
                store_answer(run, asked, rater, (number,), "0.75")
                done.add(number)


def one_pair(run: RunDirectory, raters: int = 1) -> LabelRequest:
    """A step with one bet, of which label 0 is `up` and label 1 is `down`."""
    source = PeopleSource(raters)
    bets = (Bet("slope", (0, 0, 5), (0, 0, 7), 0.8, 1.0),)
    known = {"name": source.name, "identity": source.identity}
    asked = LabelRequest(0, 0, ((0, 0),), "00", known, 0.5, {}, bets, (1.0, 0.0), time.time())
    write_request(run, asked)
    return asked


def heard(run: RunDirectory, asked: LabelRequest, source: PeopleSource | None = None) -> list[Label | None]:
    """What the monitor has written down of a step after it looked once."""
    numbers = [number for number, label in enumerate(read_labels(run, asked)) if label is None]
    collect_labels(run, asked, numbers, source or PeopleSource(), time.time())
    return read_labels(run, asked)


def u(asked: LabelRequest, told: Sequence[Label | None]) -> float:
    return settle_bets(asked, [label for label in told if label is not None]).slopes[0]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return directory(tmp_path / "run", 1)


@pytest.mark.parametrize(
    ("given", "values", "bet"),
    [("a", (1.0, 0.0), 0.8), ("b", (0.0, 1.0), -0.8), ("tie", (0.5, 0.5), 0.0), ("both_bad", (0.5, 0.5), 0.0)],
)
def test_an_answer_to_a_pair_gives_both_labels(
    run: RunDirectory, given: str, values: tuple[float, float], bet: float
) -> None:
    asked = one_pair(run)
    store_answer(run, asked, "ada", (0, 1), given, milliseconds=1200)
    told = heard(run, asked)
    assert told == [Label(values[0]), Label(values[1])]
    assert u(asked, told) == pytest.approx(bet)


def test_sides_are_those_that_were_shown(run: RunDirectory) -> None:
    asked = one_pair(run)
    store_answer(run, asked, "ada", (1, 0), "a")  # `down` stood on the left
    assert heard(run, asked) == [Label(0.0), Label(1.0)]


def test_a_skip_is_missing_with_a_reason_and_favours_the_run(run: RunDirectory) -> None:
    asked = one_pair(run)
    store_answer(run, asked, "ada", (0, 1), "skip")
    told = heard(run, asked)
    assert all(label is not None and label.value is None and "could not judge" in label.why for label in told)
    assert u(asked, told) == 0.8


@pytest.mark.parametrize("given", ["0", "0.25", "0.5", "0.75", "1", "skip"])
def test_rollouts_that_bets_share_are_judged_one_by_one(tmp_path: Path, given: str) -> None:
    run = directory(tmp_path / "run", 1)
    source = PeopleSource()
    shared = (0, 0, 7)
    bets = (Bet("slope", (0, 0, 5), shared, 1.0, 1.0), Bet("slope", (0, 0, 6), shared, 1.0, 1.0))
    known = {"name": source.name, "identity": source.identity}
    asked = LabelRequest(0, 0, ((0, 0),), "00", known, 0.5, {}, bets, (1.0, 0.0, 1.0), time.time())
    write_request(run, asked)
    assert label_pairs(asked) == {}
    store_answer(run, asked, "ada", (0, 1), "a")  # no pair: not an answer
    assert heard(run, asked) == [None, None, None]
    for number in range(3):
        store_answer(run, asked, "ada", (number,), given)
    expected = None if given == "skip" else float(given)
    assert [label.value for label in heard(run, asked) if label is not None] == [expected] * 3


def test_a_label_waits_for_as_many_raters_as_were_to_answer_and_is_their_mean(run: RunDirectory) -> None:
    asked, source = one_pair(run, 3), PeopleSource(3)
    for rater, given in (("ada", "a"), ("bob", "tie")):
        store_answer(run, asked, rater, (0, 1), given)
        assert heard(run, asked, source) == [None, None]
    store_answer(run, asked, "ada", (0, 1), "b")  # the same person again is nobody new
    assert heard(run, asked, source) == [None, None]
    store_answer(run, asked, "cleo", (1, 0), "a")
    told = heard(run, asked, source)
    assert told == [Label(0.5), Label(0.5)]
    assert u(asked, told) == 0.0


def test_who_skips_leaves_the_mean_to_the_others(run: RunDirectory) -> None:
    asked, source = one_pair(run, 3), PeopleSource(3)
    for rater, given in (("ada", "b"), ("bob", "skip"), ("cleo", "tie")):
        store_answer(run, asked, rater, (0, 1), given)
    assert heard(run, asked, source) == [Label(0.25), Label(0.75)]


def test_if_all_raters_skip_it_is_missing(run: RunDirectory) -> None:
    asked, source = one_pair(run, 2), PeopleSource(2)
    for rater in ("ada", "bob"):
        store_answer(run, asked, rater, (0, 1), "skip")
    told = heard(run, asked, source)
    assert all(label is not None and label.value is None and "all 2 raters" in label.why for label in told)


def test_bets_stay_within_their_bounds_whatever_is_answered(tmp_path: Path) -> None:
    for number, (one, two) in enumerate((one, two) for one in PAIR for two in PAIR):
        run = directory(tmp_path / str(number), 1)
        asked, source = one_pair(run, 2), PeopleSource(2)
        store_answer(run, asked, "ada", (0, 1), one)
        store_answer(run, asked, "bob", (1, 0), two)
        told = heard(run, asked, source)
        assert all(label is not None and (label.value is None or 0.0 <= label.value <= 1.0) for label in told)
        assert -0.8 <= u(asked, told) <= 0.8


def test_of_raters_who_answer_at_once_the_first_counts_and_the_others_are_kept(run: RunDirectory) -> None:
    asked = one_pair(run)
    gate = threading.Barrier(8)

    def rate(name: str) -> None:
        gate.wait()
        store_answer(run, asked, name, (0, 1), "a" if name == "rater 0" else "b")

    threads = [threading.Thread(target=rate, args=(f"rater {k}",)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = RaterAnswers(run, asked).read_new().history
    assert len(said) == 8
    told = heard(run, asked)
    assert told == [Label(said[0].values[0]), Label(said[0].values[1])]


def test_an_answer_can_be_taken_back_until_its_step_is_closed(run: RunDirectory) -> None:
    asked = one_pair(run)
    first = store_answer(run, asked, "ada", (0, 1), "a")
    undo_answer(run, asked, first)
    assert heard(run, asked) == [None, None]
    second = store_answer(run, asked, "ada", (0, 1), "b")
    assert heard(run, asked) == [Label(0.0), Label(1.0)]
    undo_answer(run, asked, second)
    store_answer(run, asked, "ada", (0, 1), "a")
    assert heard(run, asked) == [Label(0.0), Label(1.0)], "what was used stays used"
    assert len(RaterAnswers(run, asked).read_new().history) == 3, "everything that was said is kept"


def test_a_pair_shown_again_is_never_a_label(run: RunDirectory) -> None:
    asked = one_pair(run)
    store_answer(run, asked, "ada", (1, 0), "a", repeat=True)
    assert heard(run, asked) == [None, None]


@pytest.mark.parametrize(
    "change",
    [
        {"request": "another"}, {"rater": ""}, {"rater": 3}, {"shown": [0, 7]}, {"shown": [0, True]}, {"shown": []},
        {"answer": "c"}, {"answer": "0.5"}, {"time": "nan"}, {"time": None}, {"shown": 3},
        {"time": 10**400},
    ],
)  # fmt: skip
def test_files_that_are_no_answer_to_what_was_asked_do_not_count(run: RunDirectory, change: dict[str, Any]) -> None:
    asked = one_pair(run)
    said = store_answer(run, asked, "ada", (0, 1), "a")
    path = people_folder(run, asked) / said.file
    facts = json.loads(path.read_bytes())
    path.unlink()
    path.write_text(json.dumps({**facts, **change}))
    assert heard(run, asked) == [None, None]
    path.write_bytes(b"{" * 100_000)
    assert heard(run, asked) == [None, None]
    path.write_text(json.dumps(facts))
    assert heard(run, asked) == [Label(1.0), Label(0.0)]


def test_a_monitor_killed_between_the_labels_of_a_pair_does_not_tear_it(run: RunDirectory) -> None:
    asked = one_pair(run)
    said = store_answer(run, asked, "ada", (0, 1), "a")
    write_label(run, asked, 0, Label(1.0), "people")  # killed here
    undo_answer(run, asked, said)
    store_answer(run, asked, "ada", (0, 1), "b")
    assert heard(run, asked) == [Label(1.0), Label(0.0)], "half a pair was used: the other half is its own"


def test_time_runs_out_and_what_came_by_then_counts(run: RunDirectory) -> None:
    asked = one_pair(run)
    in_time, over = PeopleSource(timeout=60.0), PeopleSource(timeout=-1.0)
    assert heard(run, asked, in_time) == [None, None]
    told = heard(run, asked, over)
    assert all(label is not None and label.value is None and "fewer raters" in label.why for label in told)


def test_an_answer_that_is_there_counts_however_late(run: RunDirectory) -> None:
    asked = one_pair(run)
    store_answer(run, asked, "ada", (0, 1), "b")
    assert heard(run, asked, PeopleSource(timeout=-1.0)) == [Label(0.0), Label(1.0)]


def test_a_night_without_a_monitor_is_no_time_in_which_nobody_answered(run: RunDirectory) -> None:
    asked = one_pair(run)
    source = PeopleSource(timeout=3600.0)
    numbers = [0, 1]
    assert collect_labels(run, asked, numbers, source, since=asked.time - 10 * 3600.0) == numbers
    old = LabelRequest(**{**vars_of(asked), "time": time.time() - 48 * 3600.0})
    assert collect_labels(run, old, numbers, source, since=time.time()) == numbers
    assert collect_labels(run, old, numbers, source, since=time.time() - 7200.0) == []


def vars_of(asked: LabelRequest) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in LabelRequest.__dataclass_fields__}


def test_how_many_raters_is_fixed_when_it_is_asked(run: RunDirectory) -> None:
    asked = one_pair(run, 2)
    assert raters_of(asked) == 2
    store_answer(run, asked, "ada", (0, 1), "a")
    assert heard(run, asked, PeopleSource(1)) == [None, None]
    store_answer(run, asked, "bob", (0, 1), "a")
    assert heard(run, asked, PeopleSource(1)) == [Label(1.0), Label(0.0)]


@pytest.mark.parametrize(("name", "raters"), [("people", 1), ("people:1", 1), ("people:3", 3)])
def test_people_are_named_by_a_word(name: str, raters: int, tmp_path: Path) -> None:
    source = load_gold(name)
    assert isinstance(source, PeopleSource)
    assert (source.raters, source.name, source.judged, source.timeout) == (raters, "people", False, 24 * 3600.0)
    assert f"{raters} rater" in source.identity
    assert "lose to its present self" in source.identity
    assert source.label([CompletionToLabel("0-0-0", 0, 0, 0, "slope", None, "x")]) == [LATER]
    open_run(tmp_path / "run", monitor=False, gold=name).close()


@pytest.mark.parametrize("name", ["people:0", "people:", "people:x", "people:1000", "people:-1", "people:1.5"])
def test_a_number_of_raters_that_is_none_is_refused_with_the_fix(name: str, tmp_path: Path) -> None:
    with pytest.raises(AttachError, match='"people:3"'):
        open_run(tmp_path / "run", monitor=False, gold=name)


def test_steps_are_measured_while_the_first_one_waits_and_close_in_order(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 12, close=False)
    watch = watched(run)
    assert watch.waiting
    events = journal.read_events(run.path / "events")
    assert [event.step for event in events if event.kind == "step_done"] == list(range(12)), "nothing is held up"
    later = steps_asked(run, 12)
    for asked in later[1:]:
        say_all(run, asked)
    watch.poll()
    assert later[0].step not in [event.step for event in closed(run)]
    assert all(event.step < later[0].step for event in closed(run)), "a step waits for the one before it"
    say_all(run, later[0])
    watch.poll()
    watch.close()
    assert [event.step for event in closed(run)] == list(range(12))
    assert replay(run, parts()).difference is None


def test_a_replay_of_what_people_said_gives_equal_events_also_after_late_answers(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 10)
    watch = watched(run)
    for asked in steps_asked(run, 10):
        say_all(run, asked, given="b" if asked.step % 3 else "skip")
    watch.poll()
    watch.close()
    assert replay(run, parts()).difference is None
    for asked in steps_asked(run, 10):
        for said in RaterAnswers(run, asked).read_new().standing:
            undo_answer(run, asked, said)
        say_all(run, asked, rater="bob", given="a")
    assert replay(run, parts()).difference is None
    again = watched(run)
    again.close()
    assert len(closed(run)) == 10, "nothing is closed twice"


def test_a_monitor_that_is_started_again_goes_on_with_what_is_open(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 8)
    watched(run).close()
    before = [asked.digest for asked in steps_asked(run, 8)]
    open_steps = steps_asked(run, 8)
    for asked in open_steps[:2]:
        say_all(run, asked)
    watch = watched(run)
    assert [asked.digest for asked in steps_asked(run, 8)] == before
    assert [event.step for event in closed(run) if event.data["asked"]] == [asked.step for asked in open_steps[:2]]
    for asked in open_steps[2:]:
        say_all(run, asked)
    watch.poll()
    watch.close()
    assert not watch.waiting


def test_pairs_have_no_level_and_are_not_the_reward(tmp_path: Path) -> None:
    """The mean of a winner's 1 and a loser's 0 is 1/2 in every run, however good or bad it is."""
    run = RunDirectory.create(tmp_path / "run", {"id": "a run of the tests"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    group = np.repeat(np.arange(8), 8)
    for step in range(12):
        reward = np.tile([0.0, 1.0], 32)  # people agree with every 0 and 1 of it
        item = from_columns(step, group, reward=reward, prompt=["p"] * 64, completion=[str(r) for r in reward])
        run.write(item, 0, {"counters": {"seen": 12}})
    run.close_rank(0, 0, {"seen": 12})
    watch = watched(run)
    for asked in steps_asked(run, 12):
        say_all(run, asked, given="a")
    watch.poll()
    watch.close()
    told = [event for event in closed(run) if event.data["answered"]]
    assert told
    assert all("gold.level" not in event.data["measured"] for event in told)
    assert any(event.data["measured"]["gold.slope"][0] == pytest.approx(1.0) for event in told)
    assert all(event.data["gold_differs"] for event in told)
    assert "gold is the reward itself" not in judge_run(run)[0].checks["gold"].why


def test_an_open_step_costs_the_monitor_no_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    first: Callable[..., Any] = LabelQueue._requests

    def counting(self: LabelQueue, asked: LabelRequest, numbers: Any) -> Any:
        looked.append(asked.step)
        return first(self, asked, numbers)

    monkeypatch.setattr(LabelQueue, "_requests", counting)
    run = directory(tmp_path / "run", 30)
    watch = watched(run)
    for _ in range(5):
        watch.poll()
    watch.close()
    desk = watch.label_queue
    assert desk is not None
    assert len(desk._pending) > 20
    assert all(item.requests is None for item in desk._pending)
    assert len([step for step in set(looked) if asked_about(run, step).rows]) == 1, "texts were read of later steps"


def test_a_monitor_beside_a_trainer_does_not_wait_a_day_and_one_in_the_foreground_does(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 6)
    started = time.monotonic()
    run_monitor(run, config(PeopleSource()), parent=-1)  # a trainer that is gone
    assert time.monotonic() - started < 30.0
    open_steps = steps_asked(run, 6)
    assert open_steps
    waiting = threading.Thread(target=run_monitor, args=(run, config(PeopleSource())), daemon=True)
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    assert monitor_running(run) is True
    for asked in open_steps:
        say_all(run, asked)
    waiting.join(30.0)
    assert not waiting.is_alive()
    assert [event.step for event in closed(run)] == list(range(6))
    assert monitor_running(run) is False


def test_looking_whether_a_monitor_is_at_work_keeps_none_from_starting(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 1)
    assert monitor_running(run) is False
    stop = threading.Event()

    def look_on() -> None:
        while not stop.is_set():
            monitor_running(run)
            time.sleep(0.001)

    looking = threading.Thread(target=look_on)
    looking.start()
    try:
        for _ in range(100):
            with monitor_lock(run):
                assert monitor_running(run) is True
    finally:
        stop.set()
        looking.join()
    with monitor_lock(run), pytest.raises(AttachError, match="already has a monitor"), monitor_lock(run):
        pass


def test_rows_without_text_are_missing_at_once_and_hold_nothing_up(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {"id": "a run of the tests"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    rng = np.random.default_rng(0)
    for step in range(6):
        texts = [None] * 64 if step % 2 else [f"text {row}" for row in range(64)]
        item = from_columns(
            step, np.repeat(np.arange(8), 8), reward=rng.normal(size=64), prompt=["p"] * 64, completion=texts
        )
        run.write(item, 0, {"counters": {"seen": 6}})
    run.close_rank(0, 0, {"seen": 6})
    watch = watched(run)
    for asked in steps_asked(run, 6):
        if asked.step % 2 == 0:
            say_all(run, asked)
    watch.poll()
    watch.close()
    assert not watch.waiting
    assert any("text was not stored" in event.data["why"] for event in closed(run))
