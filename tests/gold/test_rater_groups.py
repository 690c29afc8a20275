"""Groups of raters in a run: whose bets they are, fixed beforehand, and a minority's loss that is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.gold.test_people import closed, config, directory, one_pair, parts, say_all, steps_asked

from tiltmeter.data.records import Alarm
from tiltmeter.errors import AttachError
from tiltmeter.gold.bet_settlement import settle_bets
from tiltmeter.gold.label_files import LabelRequest, read_labels
from tiltmeter.gold.people import PeopleSource, collect_labels, store_answer, undo_answer, with_groups
from tiltmeter.gold.rater_groups import group_bets, groups_of, read_groups, written_by
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import load_gold
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.store import RunDirectory

GROUPS = {"ann": "1", "bob": "1", "cem": "1", "dee": "1", "eve": "2", "fay": "2"}


def in_groups(asked: LabelRequest) -> LabelRequest:
    """The same request, on record with groups."""
    return replace(asked, state={"groups": GROUPS})


def test_a_minority_that_loses_is_named_while_the_others_gain_and_a_replay_says_so_too(tmp_path: Path) -> None:
    steps = 34
    run = directory(tmp_path / "run", steps, groups=4)
    source = PeopleSource(3, groups=GROUPS)
    watch = MonitorLoop(run, config(source, 0.4), strict=True)
    watch.poll()
    asked = steps_asked(run, steps)
    assert all(groups_of(one) == GROUPS for one in asked)  # on record before anybody has answered
    for number, one in enumerate(asked):
        say_all(run, one, "ann", "a")
        say_all(run, one, "cem" if number % 2 else "bob", "a")
        say_all(run, one, "eve" if number % 3 else "fay", "b")
    watch.poll()
    assert len(closed(run)) == steps
    events = list(journal.read_events(run.path / "events"))
    alarms = [event.payload for event in events if isinstance(event.payload, Alarm)]
    assert [alarm.name for alarm in alarms] == ["env.raters.2.gold.slope"]
    assert alarms[0].summary.startswith("for the raters of group 2 the reward pushes gold down")
    watch.close()
    assert replay(run, parts()).difference is None  # from the run alone: the file of groups may be gone


def test_a_groups_label_is_the_mean_of_its_own_raters_and_a_pair_that_none_of_them_saw_is_no_bet(
    tmp_path: Path,
) -> None:
    run = directory(tmp_path / "run", 1)
    asked = in_groups(one_pair(directory(tmp_path / "other", 1), 3))
    for rater, answer in (("ann", "a"), ("bob", "b"), ("zoe", "a")):
        store_answer(run, asked, rater, (0, 1), answer)
    collect_labels(run, asked, [0, 1], PeopleSource(3), 0.0)
    assert [label.value for label in read_labels(run, asked, written_by("1")) if label] == [0.5, 0.5]
    assert read_labels(run, asked, written_by("2")) == [None, None]
    assert group_bets(run, asked) == {"slope": [("raters.1", 0.0)], "duel": []}


def test_who_of_a_group_skips_favours_the_run_and_is_counted(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 1)
    asked = in_groups(one_pair(directory(tmp_path / "other", 1), 2))
    store_answer(run, asked, "eve", (0, 1), "skip")
    store_answer(run, asked, "ann", (0, 1), "b")
    collect_labels(run, asked, [0, 1], PeopleSource(2), 0.0)
    bets = dict(group_bets(run, asked)["slope"])
    assert bets == {"raters.1": pytest.approx(-0.8), "raters.2": pytest.approx(0.8)}


def test_what_is_taken_back_after_a_step_is_closed_changes_no_bet_of_a_group(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", 1)
    asked = in_groups(one_pair(directory(tmp_path / "other", 1), 1))
    answer = store_answer(run, asked, "eve", (0, 1), "b")
    collect_labels(run, asked, [0, 1], PeopleSource(1), 0.0)
    before = group_bets(run, asked)
    undo_answer(run, asked, answer)
    store_answer(run, asked, "eve", (0, 1), "a")
    assert group_bets(run, asked) == before
    assert dict(before["slope"]) == {"raters.2": pytest.approx(-0.8)}
    labels = [label for label in read_labels(run, asked) if label is not None]
    settled = with_groups(run, asked, settle_bets(asked, labels))
    sliced = next(one for one in settled.readings() if one.name == "slices.gold.slope")
    assert sliced.slices == (("raters.2", 1),)
    assert sliced.against == "step"  # a mood of the step moves all of a group's answers


def test_a_file_of_groups_names_the_source_and_a_wrong_one_is_refused_with_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps({"groups": {"young people": ["ann", "bob"], "2": ["eve"]}}))
    source = load_gold(f"people:3:{path}")
    assert isinstance(source, PeopleSource)
    assert (source.raters, source.groups["eve"], source.groups["ann"]) == (3, "2", source.groups["bob"])
    assert "3 raters a pair in 2 groups" in source.identity
    wrong_files: tuple[object, ...] = (
        {"groups": {"1": ["ann"]}},
        {"groups": {"1": ["ann"], "2": ["ann"]}},
        {"groups": 3},
        [],
    )
    for wrong in wrong_files:
        path.write_text(json.dumps(wrong))
        with pytest.raises(AttachError, match=r"groups|two groups"):
            read_groups(path)
    with pytest.raises(AttachError, match="groups of raters"):
        load_gold(f"people:3:{tmp_path / 'none.json'}")


def test_without_groups_nothing_is_written_beside_the_labels(tmp_path: Path) -> None:
    run: RunDirectory = directory(tmp_path / "run", 1)
    asked = one_pair(run, 1)
    store_answer(run, asked, "eve", (0, 1), "b")
    collect_labels(run, asked, [0, 1], PeopleSource(1, groups=GROUPS), 0.0)
    files = sorted(path.name for path in (run.path / "gold" / "labels").rglob("*.json"))
    assert files == ["0.json", "1.json"]  # groups count from the request on, not from the source
