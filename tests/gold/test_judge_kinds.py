"""Judges that compare pairs, grade by a reference or by a rubric: what they are sent and what replies are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gold.judge_server import JudgeReply, judge_server

from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.models.judge import CANARIES, Judge, JudgeCanary, read_judge
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config, load_gold
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory

KNOWN = {canary.completion for canary in CANARIES}
Reply = Callable[[dict[str, Any], str], object]


@contextmanager
def serving(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server on this machine: its address, and the data of every question. `reply` gets it and the system text."""
    questions: list[dict[str, Any]] = []

    def answer(data: dict[str, Any], system: str) -> JudgeReply:
        questions.append(data)
        return JudgeReply(reply(data, system))

    with judge_server(answer) as url:
        yield url, questions


def asked(number: int, prompt: str, text: str, purpose: str = "slope", **columns: object) -> CompletionToLabel:
    return CompletionToLabel(f"0-1-{number}", 0, 1, number, purpose, prompt, text, columns)


def longer(data: dict[str, Any], _: str) -> object:
    """Prefers the longer answer, and nothing that is a canary."""
    worth = [-1 if text in KNOWN else len(text) for text in (data["A"], data["B"])]
    return {"better": "tie" if worth[0] == worth[1] else "AB"[worth[1] > worth[0]]}


def test_pairs_are_compared_in_both_orders_and_the_winner_is_labelled_one() -> None:
    requests = [asked(0, "p", "long one"), asked(1, "q", "x"), asked(2, "p", "short"), asked(3, "q", "y")]
    with serving(longer) as (url, questions):
        source = JudgeSource("judge.toml", Judge(url, "m", "g", pairs=True))
        assert source.label(requests) == [1.0, 0.5, 0.0, 0.5]
        assert source.identity.endswith("asked which of two answers is better")
    of_pair = [(q["A"], q["B"]) for q in questions if {q["A"], q["B"]} == {"long one", "short"}]
    assert sorted(of_pair) == [("long one", "short"), ("short", "long one")]


def test_where_the_order_decides_it_is_a_tie_and_what_has_no_partner_is_missing() -> None:
    with serving(lambda data, _: {"better": "B" if data["A"] in KNOWN else "A"}) as (url, _):
        source = JudgeSource("judge.toml", Judge(url, "m", "g", pairs=True))
        one, two, alone = source.label([asked(0, "p", "a"), asked(1, "p", "b"), asked(2, "r", "c")])
        assert (one, two) == (0.5, 0.5)
        assert isinstance(alone, JudgeError)


def test_a_judge_of_pairs_that_prefers_a_canary_is_not_believed() -> None:
    def fooled(data: dict[str, Any], _: str) -> object:
        return {"better": "A" if data["A"] in KNOWN else "B" if data["B"] in KNOWN else "tie"}

    with serving(fooled) as (url, _):
        source = JudgeSource("judge.toml", Judge(url, "m", "g", pairs=True))
        answers = source.label([asked(0, "p", "a"), asked(1, "p", "b")])
    assert not source.canaries_pass
    assert all("canary failed" in str(answer) for answer in answers)


def test_a_reference_goes_with_each_answer_and_a_row_without_one_says_so() -> None:
    def grade(data: dict[str, Any], system: str) -> object:
        assert "reference that is right" in system
        return {"score": 10 if data["answer"] == data["reference"] else 0}

    with serving(grade) as (url, questions):
        source = JudgeSource("judge.toml", Judge(url, "m", "g", reference="solution"))
        assert source.label([asked(0, "p", "4", solution=4), asked(1, "q", "5", solution="4")]) == [1.0, 0.0]
        assert {q["reference"] for q in questions} == {"4"}
        (missing,) = source.label([asked(2, "p", "4", answer=4)])
        assert "grades by the column 'solution', and a row has answer" in str(missing)


def reply_met(met: object, data: dict[str, Any], system: str) -> object:
    return {"met": met}


def test_a_rubric_is_worth_the_share_of_its_criteria_that_is_met() -> None:
    def check(data: dict[str, Any], system: str) -> object:
        assert "1. It is right.\n2. It has units.\n" in system
        return {"met": [] if data["answer"] in KNOWN else [1] if "m" not in data["answer"] else [1, 2]}

    with serving(check) as (url, _):
        source = JudgeSource("judge.toml", Judge(url, "m", "", rubric=("It is right.", "It has units.")))
        assert source.label([asked(0, "p", "4"), asked(1, "p", "4 m")]) == [0.5, 1.0]
    for wrong in ([3], [1, 1], ["1"], [True], "1"):
        with serving(partial(reply_met, wrong)) as (url, _):
            (answer,) = Judge(url, "m", "", rubric=("a", "b")).scores([("p", "c")])
            assert isinstance(answer, JudgeError)


def test_pairs_of_a_run_are_bets_without_a_level(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {"id": "a run of the tests"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(4):
        texts = ["x" * (1 + row) for row in range(32)]
        reward, prompts = [float(row % 8) for row in range(32)], [f"p{row // 8}" for row in range(32)]
        groups = [row // 8 for row in range(32)]
        run.write(from_columns(step, groups, reward=reward, prompt=prompts, completion=texts), 0, {"counters": {}})
    run.close_rank(0, 0, {"seen": 4})
    with serving(longer) as (url, _):
        path = tmp_path / "judge.toml"
        path.write_text(f'url = "{url}"\nmodel = "m"\nguide = "Longer is better."\npairs = true\n', encoding="utf-8")
        loop = MonitorLoop(run, Config.standard().with_gold(load_gold(str(path)), 0.5), strict=True)
        while loop.poll() or loop.waiting:
            pass
        loop.close()
    closed = [event for event in read_events(run.path / "events") if event.kind == "labels_closed"]
    measured = [event.data["measured"] for event in closed if event.data["answered"]]
    assert measured
    assert all(one["gold.slope"][0] > 0.0 and "gold.level" not in one for one in measured)
    assert all(event.data["missing"] == 0 for event in closed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rubric = []", "guide is missing"),
        ('rubric = "It is right."', "rubric is a list"),
        ('reference = "answer"\nrubric = ["It is right."]', "choose one"),
        ('guide = "g"\npairs = 1', "pairs is true or false"),
        ('guide = "g"\nprice_in = -1', "price_in and price_out"),
    ],
)
def test_a_judge_of_no_kind_is_refused_with_the_fix(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "judge.toml"
    path.write_text(f'url = "http://localhost:1/v1"\nmodel = "m"\n{text}\n', encoding="utf-8")
    with pytest.raises(AttachError, match=message):
        read_judge(path)


def test_a_reference_needs_no_guide_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    path.write_text('url = "http://localhost:1/v1"\nmodel = "m"\nreference = "answer"\n', encoding="utf-8")
    assert "reference" in read_judge(path).guide
    kinds = (Judge("http://h/v1", "m", "g"), Judge("http://h/v1", "m", "g", reference="a"))
    assert len({judge.mark for judge in kinds}) == 2, "another prompt is another judge"
    assert JudgeCanary("x").passes(0.0)
