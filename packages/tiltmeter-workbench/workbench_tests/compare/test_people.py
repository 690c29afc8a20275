"""People as the judge: what they are shown, what they saved, several of them, and going on where it ended."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.label_page import PageItem
from tiltmeter_workbench.compare.judge_prompt import AnswerPair
from tiltmeter_workbench.compare.people import PeopleLabels
from tiltmeter_workbench.compare.referees import ScoredAnswer, ScoringReferee, open_referee, people_of
from tiltmeter_workbench.terminal.ask_people import wait_for_people

PAIRS = [AnswerPair(f"question {at}", f"good {at}", f"bad {at}") for at in range(20)]


def waiting(labels: PeopleLabels | None) -> list[PageItem]:
    assert labels is not None
    return list(labels.waiting.values())


def save(work: Path, name: str, answers: dict[str, str]) -> None:
    lines = [json.dumps({"key": key, "person": answer}) + "\n" for key, answer in answers.items()]
    (work / name).write_text("".join(lines))


def prefer_good(item: PageItem) -> str:
    return "first" if item.first.startswith("good") else "second"


def test_a_person_compares_what_is_left_and_the_outcome_is_what_they_said(tmp_path: Path) -> None:
    referee = open_referee("people", tmp_path)
    assert not referee.judged and np.isnan(referee.outcomes(PAIRS)).all()
    items = waiting(people_of(referee))
    sides = [item.first.startswith("good") for item in items]
    assert len(items) == 20 and 3 <= sum(sides) <= 17  # whose answer it is does not decide where it stands
    swapped = open_referee("people", tmp_path)
    swapped.outcomes([pair.swapped for pair in PAIRS])
    assert waiting(people_of(swapped)) == items  # one question, whoever asks first
    save(tmp_path, "labels.jsonl", {item.key: prefer_good(item) for item in items[:12]})
    again = open_referee("people", tmp_path)
    assert again.outcomes(PAIRS)[:12].tolist() == [1.0] * 12
    assert again.outcomes([pair.swapped for pair in PAIRS])[:12].tolist() == [0.0] * 12
    assert waiting(people_of(again)) == items[12:]
    labels = people_of(again)
    assert labels is not None
    page = labels.write_page()
    assert "question 13" in page.read_text() and "question 3 " not in page.read_text()


def test_several_people_are_each_asked_and_most_of_them_win(tmp_path: Path) -> None:
    first = open_referee("people:3", tmp_path)
    first.outcomes(PAIRS[:3])
    keys = [item.key for item in waiting(people_of(first))]
    good = {item.key: prefer_good(item) for item in waiting(people_of(first))}
    other = {"first": "second", "second": "first"}
    save(tmp_path, "labels-ada.jsonl", good)
    save(tmp_path, "labels-bob.jsonl", {**good, keys[1]: "tie", keys[2]: "skip"})
    assert np.isnan(open_referee("people:3", tmp_path).outcomes(PAIRS[:3])).all()
    save(tmp_path, "labels-cy.jsonl", {keys[0]: other[good[keys[0]]], keys[1]: other[good[keys[1]]], keys[2]: "skip"})
    assert open_referee("people:3", tmp_path).outcomes(PAIRS[:3]).tolist() == [1.0, 0.5, 1.0]


def test_answers_are_graded_one_by_one_and_a_changed_mind_counts(tmp_path: Path) -> None:
    answers: list[ScoredAnswer] = [("q", f"text {at}", {}) for at in range(3)]
    referee = open_referee("people", tmp_path, scored=True)
    assert isinstance(referee, ScoringReferee)
    assert np.isnan(referee.scores(answers)).all()
    keys = [item.key for item in waiting(people_of(referee))]
    assert [item.second for item in waiting(people_of(referee))] == [None] * 3
    for last, expected in (("0.25", 0.25), ("1", 1.0)):
        save(tmp_path, "labels.jsonl", {keys[0]: "0.75", keys[1]: "skip", keys[2]: last})
        later = open_referee("people", tmp_path, scored=True)
        assert isinstance(later, ScoringReferee)
        assert later.scores(answers)[[0, 2]].tolist() == [0.75, expected]
        assert np.isnan(later.scores(answers)[1]) and "skipped" in next(iter(later.faults))
        assert waiting(people_of(later)) == []  # who skips has answered


def test_a_command_leaves_the_page_and_ends_until_all_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_for_people(None)
    referee = open_referee("people", tmp_path / "work")
    referee.outcomes(PAIRS)
    with pytest.raises(typer.Exit) as ended:
        wait_for_people(referee)
    assert ended.value.exit_code == 2 and "20 wait for people" in capsys.readouterr().err
    assert "question 7" in (tmp_path / "work" / "people.html").read_text("utf-8")
    labels = people_of(referee)
    assert labels is not None
    save(tmp_path / "work", "labels.jsonl", dict.fromkeys(labels.waiting, "skip"))
    done = open_referee("people", tmp_path / "work")
    done.outcomes(PAIRS)
    wait_for_people(done)


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"key": 3, "person": "tie"}', '{"key": "a", "person": "best"}', "[" * 9999]
)
def test_a_file_that_the_page_did_not_save_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.jsonl").write_text(f"\n{text}\n")
    with pytest.raises(AttachError, match=r"labels.jsonl, line 2 is not what the page saved"):
        open_referee("people", tmp_path)
