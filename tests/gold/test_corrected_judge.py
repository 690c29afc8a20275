"""A judge that people correct: what is claimed is what people say, whatever the judge says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.gold.test_gold import worth
from tests.gold.test_people import closed, directory, parts, steps_asked
from tests.gold.test_slow_sources import serving

from tiltmeter.errors import AttachError
from tiltmeter.gold.corrected_judge import CorrectedJudge, people_pairs
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.gold.label_files import LabelRequest, read_labels
from tiltmeter.gold.people import label_pairs, people_numbers, raters_of, store_answer
from tiltmeter.models.judge import read_judge
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import load_gold
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.prediction_powered import MOST_TRUST, TOP, corrected_mean
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.server.labelling_tasks import LabelSession


@contextmanager
def corrected(share: float = 0.5, *, lies: bool = False) -> Iterator[CorrectedJudge]:
    gate = threading.Event()
    gate.set()
    with serving(gate, lies=lies) as judge:
        yield CorrectedJudge("judge.toml", replace(judge, people_share=share))


def compare(run: RunDirectory, asked: LabelRequest) -> None:
    """A person who prefers the answer of greater worth, about every pair that people are asked about."""
    batch = read_step(run, asked.attempt, asked.step, asked.ranks, ("group", "completion"))
    assert batch.completion is not None
    texts = {number: batch.completion[asked.rows[number][2]] for number in people_numbers(asked)}
    for one, other in label_pairs(asked).items():
        if one < other:
            better = np.sign(worth(texts[one] or "") - worth(texts[other] or ""))
            store_answer(run, asked, "ada", (one, other), {1: "a", -1: "b", 0: "tie"}[int(better)])


def watch(run: RunDirectory, source: JudgeSource) -> MonitorLoop:
    loop = MonitorLoop(run, parts().with_gold(source, 0.2), strict=True)
    loop.poll()
    return loop


@pytest.mark.parametrize("trust", [0.0, 0.3, MOST_TRUST])
def test_the_mean_is_that_of_people_whatever_the_judge_says_and_stays_below_the_top(trust: float) -> None:
    rng = np.random.default_rng(5)
    people, judge = rng.choice([-1.0, 1.0], 6, p=[0.6, 0.4]), np.array([1.0, 1.0, 1.0, -1.0, 1.0, 0.0])
    values = [
        corrected_mean(judge.tolist(), {a: float(people[a]), b: float(people[b])}, trust)
        for a in range(6)
        for b in range(a)
    ]
    assert np.mean(values) == pytest.approx(people.mean()), "over all choices of two of six"
    worst = corrected_mean([-1.0] + [1.0] * 99, {0: 1.0}, MOST_TRUST)
    assert TOP - 0.03 < worst <= TOP


def test_a_judge_that_is_wrong_hides_nothing_and_raises_nothing(tmp_path: Path) -> None:
    """What the reward does is harmful in one run and healthy in the other, and the judge says the opposite of both."""
    states = {}
    for harm in (True, False):
        # To be healthy takes more labels than to raise the alarm.
        run = directory(tmp_path / f"{harm}", 40, harm=harm, groups=8 if harm else 32)
        with corrected(lies=True) as source:
            loop = watch(run, source)
            for asked in steps_asked(run, 40):
                compare(run, asked)
            loop.poll()
            loop.close()
            assert not loop.waiting
        verdict = judge_run(run)[0]
        states[harm] = verdict.state
        assert all(abs(event.data["measured"].get("gold.slope", [0.0])[0]) <= TOP for event in closed(run))
    assert states == {True: "ACT", False: "OK"}


def test_people_are_asked_about_a_share_of_the_pairs_and_no_other(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 12, groups=8)
    with corrected(0.25) as source:
        loop = watch(run, source)
        asked = steps_asked(run, 12)
        pairs = [pair for one in asked if (pair := people_pairs(one)) is not None]
        assert len(pairs) == len(asked)
        slopes = sum(bet.purpose == "slope" for one in asked for bet in one.bets)
        drawn = sum(one.bets[at].purpose == "slope" for one, pair in zip(asked, pairs, strict=True) for at in pair.bets)
        assert drawn == pytest.approx(0.25 * slopes, abs=1.0)
        session = LabelSession(run)
        session.update([(one.attempt, one.step) for one in asked])
        shown = {item for step in session.open_steps() for item in session.items(step)}
        assert sum(len(session.items(step)) for step in session.open_steps()) == sum(len(pair.bets) for pair in pairs)
        assert all(len(item) == 2 for item in shown)
        for one in asked:
            compare(run, one)
        loop.poll()
        loop.close()
    events = [event for event in closed(run) if event.data["asked"]]
    assert len(events) == len(asked)
    for one, pair, event in zip(asked, pairs, events, strict=True):
        of_people = people_numbers(one)
        assert event.data["asked"] == len(one.rows) + len(of_people)
        labels = read_labels(run, one, "people")
        assert [number for number, label in enumerate(labels) if label is not None] == of_people
        compared = any(one.bets[at].purpose == "slope" for at in pair.bets)
        assert ("gold.slope" in event.data["measured"]) == compared, "without a pair of people there is no bet"
        assert event.data["measured"].get("gold.slope", [1.0])[0] > 0.0


def test_a_replay_and_a_monitor_that_is_started_again_do_the_same(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 10, groups=8)
    with corrected() as source:
        watch(run, source).close()
        before = [one.digest for one in steps_asked(run, 10)]
        for asked in steps_asked(run, 10)[:5]:
            compare(run, asked)
        again = watch(run, source)
        assert [one.digest for one in steps_asked(run, 10)] == before
        for asked in steps_asked(run, 10)[5:]:
            compare(run, asked)
        again.poll()
        again.close()
    assert not again.waiting
    assert replay(run, parts()).difference is None
    trusts = [pair.trust for one in steps_asked(run, 10) if (pair := people_pairs(one)) is not None]
    assert len(set(trusts)) == 1, "drawn before anybody had answered"


def test_pairs_that_nobody_compares_count_in_favour_of_the_run(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 6, harm=True, groups=8)
    with corrected() as source:
        loop = watch(run, source)
        for asked in steps_asked(run, 6):
            for one, other in label_pairs(asked).items():
                if one < other:
                    store_answer(run, asked, "ada", (one, other), "skip")
        loop.poll()
        loop.close()
    told = [event for event in closed(run) if "gold.slope" in event.data["measured"]]
    assert told
    assert all(event.data["measured"]["gold.slope"][0] > 0.0 for event in told)
    assert "labels of people are missing" in told[0].data["why"]


def test_the_file_of_the_judge_says_how_much_people_compare(tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    text = 'url = "http://localhost:1/v1"\nmodel = "m"\nguide = "g"\n'
    path.write_text(text + "people_share = 0.2\nraters = 2\n", encoding="utf-8")
    source = load_gold(str(path))
    assert isinstance(source, CorrectedJudge)
    assert not source.judged
    assert source.identity.endswith("corrected by people on 0.2 of its pairs, 2 raters a pair")
    known = {"name": source.name, "identity": source.identity}
    assert raters_of(LabelRequest(0, 0, (), "", known, 0.1, {}, (), ())) == 2
    for wrong in ("people_share = 2", 'people_share = "all"', "raters = 0", "raters = true"):
        path.write_text(f"{text}{wrong}\n", encoding="utf-8")
        with pytest.raises(AttachError, match="people"):
            read_judge(path)
