"""Gold bought on a live run: asked on record, answered or missing, folded in order, and never seen by training."""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.arguments import Gold, Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.batches import from_columns, thin
from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.records import Alarm, RolloutBatch
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold import LATER, CompletionToLabel, GoldAnswer, GoldSource
from tiltmeter.gold.bet_settlement import settle_bets
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import (
    Label,
    LabelRequest,
    read_labels,
    read_request,
    to_label,
    write_label,
    write_request,
)
from tiltmeter.gold.sampler import Bet
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config, load_gold
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.loading import load_function
from tiltmeter.verdict.checks import Ages
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import verdict_of

SRC = Path(__file__).parents[2] / "src" / "tiltmeter"
FRESH = Ages(data=1.0, waiting=None)


class EveryOther:
    """A sampler that these tests can count on: every other prompt, its best paid answer against its worst paid one, and
    one duel against the first answer to the same prompt."""

    def __init__(self, share: float = 0.02, steps: int | None = None, recall: object = None) -> None:
        self.first: dict[str, list[int]] = {}
        self.boosted = 0

    def draw(self, attempt: int, step: int, reward: Any, starts: Any, prompts: Any, rng: Any) -> list[Bet]:
        bets = []
        for k in rng.permutation(len(prompts))[: max(1, len(prompts) // 2)]:
            rows = range(starts[k], starts[k + 1])
            up, down = max(rows, key=reward.__getitem__), min(rows, key=reward.__getitem__)
            bets.append(Bet("slope", (attempt, step, up), (attempt, step, down), 1.0, 0.5))
        k = int(rng.integers(len(prompts)))
        if (before := self.first.get(prompts[k])) is not None:
            bets.append(Bet("duel", (attempt, step, int(starts[k])), tuple(before), 1.0, 0.5))  # type: ignore[arg-type]
        for k, prompt in enumerate(prompts):
            self.first.setdefault(prompt, [attempt, step, int(starts[k])])
        return bets

    def close(self, *arguments: object) -> None:
        pass

    def rewind(self, attempt: int, step: int) -> None:
        pass

    def boost(self) -> None:
        self.boosted += 1

    def state(self) -> dict[str, Any]:
        return {"first": self.first, "boosted": self.boosted}

    def restore(self, state: dict[str, Any]) -> None:
        self.first, self.boosted = dict(state["first"]), state["boosted"]


@pytest.fixture(autouse=True)
def _plain_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltmeter.gold.label_queue.Sampler", EveryOther)


def worth(text: str) -> float:
    """The gold that a completion of these tests is made to have; its last word."""
    return float(text.split()[-1])


@dataclass
class Teller:
    """A source that answers at once with what the text says, and remembers what it was asked."""

    told: Callable[[CompletionToLabel], GoldAnswer] = lambda request: worth(request.completion)
    timeout: float = 600.0
    name: str = "teller"
    identity: str = "what the completion itself says"
    judged: bool = False
    asked: list[CompletionToLabel] = field(default_factory=list)

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        self.asked += requests
        return [self.told(request) for request in requests]


def batch(step: int, *, harm: bool = False, attempt: int = 0, groups: int = 8, **columns: Any) -> RolloutBatch:
    """Eight prompts, drawn from sixteen; the reward agrees with gold inside a prompt, or contradicts it."""
    rng = np.random.default_rng([step, harm])
    gold = rng.integers(0, 2, groups * 8).astype(float)
    reward = np.where(gold > 0, 1.0, -1.0) * (-1.0 if harm else 1.0) + 0.3 * rng.normal(size=len(gold))
    group = np.repeat(np.arange(groups), 8)
    made: dict[str, Any] = {
        "reward": reward,
        "prompt": [f"prompt {(step * groups + k) % 16}" for k in group],
        "completion": [f"{attempt}/{step}/{row} {gold[row]}" for row in range(len(gold))],
    }
    return from_columns(step, group, attempt=attempt, **{**made, **columns})


def directory(path: Path, batches: Sequence[RolloutBatch], *, close: bool = True) -> RunDirectory:
    run = RunDirectory.create(path, {"id": "a run of the tests"})
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for item in batches:
        run.write(item, 0, {"counters": {"seen": len(batches)}})
    if close:
        run.close_rank(attempt, 0, {"seen": len(batches)})
    return run


def lean() -> Config:
    """The instruments that gold has to do with; the others only take time here."""
    standard = Config.standard()
    parts = [part for part in standard.instruments if part.name in ("reward.mean", "gold.mean", "gold.slope")]
    return Config(tuple(parts), (), standard.detectors)


def config(source: GoldSource, share: float = 0.5) -> Config:
    return lean().with_gold(source, share)


def watched(run: RunDirectory, source: GoldSource, share: float = 0.5) -> list[journal.Event]:
    watch = MonitorLoop(run, config(source, share), strict=True)
    watch.poll()
    watch.close()
    return journal.read_events(run.path / "events")


def of(events: list[journal.Event], kind: str) -> list[journal.Event]:
    return [event for event in events if event.kind == kind]


def ask(source: GoldSource, *texts: str) -> list[GoldAnswer]:
    return list(
        source.label([CompletionToLabel(f"0-0-{k}", 0, 0, k, "slope", "p", text) for k, text in enumerate(texts)])
    )


def test_a_function_is_asked_for_one_or_for_all_of_them() -> None:
    def one(prompt: str, completion: str) -> float:
        return worth(completion)

    def all_of_them(prompts: list[str], completions: list[str]) -> list[float]:
        return [worth(text) for text in completions]

    for function in (one, all_of_them):
        assert ask(FunctionSource("checks.py:f", function), "a 1.0", "b 0.5") == [1.0, 0.5]


def test_a_function_that_wants_them_gets_the_columns() -> None:
    def long(prompt: str, completion: str, columns: dict[str, Any]) -> float:
        return float(columns["length"] > 3)

    requests = [CompletionToLabel(f"0-0-{n}", 0, 0, n, "slope", "p", "c", {"length": n}) for n in (2, 9)]
    assert list(FunctionSource("checks.py:long", long).label(requests)) == [0.0, 1.0]


def rows(*facts: dict[str, Any]) -> list[CompletionToLabel]:
    return [CompletionToLabel(f"0-0-{k}", 0, 0, k, "slope", "p", "c", known) for k, known in enumerate(facts)]


def test_further_parameters_are_facts_of_the_row_by_name() -> None:
    def score(prompt: str, completion: str, answer: str, level: int = 3) -> float:
        return float(answer == "12") * level / 10

    told = FunctionSource("checks.py:score", score).label(
        rows({"answer": "12"}, {"answer": "7"}, {"answer": "12", "level": 9})
    )
    assert list(told) == [0.3, 0.0, 0.9]


def test_a_row_without_a_fact_that_is_needed_is_missing_and_the_others_are_not() -> None:
    def one(completion: str, answer: str) -> float:
        return float(answer == "12")

    def together(completions: list[str], answer: list[str]) -> list[float]:
        return [float(item == "12") for item in answer]

    for function in (one, together):
        told = [
            to_label(item) for item in FunctionSource("checks.py:f", function).label(rows({"answer": "12"}, {"x": 1}))
        ]
        assert told[0] == Label(1.0)
        assert told[1].value is None
        assert "'answer'" in told[1].why


def test_a_reward_function_of_trl_can_be_gold() -> None:
    seen: dict[str, Any] = {}

    def strict(completions: list[str], answer: list[str], **kwargs: Any) -> list[float | None]:
        seen.update(kwargs)
        return [None if text is None else float(text == "4") for text in answer]

    told = FunctionSource("rewards.py:strict", strict).label(
        rows({"answer": "4", "level": 1}, {"answer": None}, {"answer": "5"})
    )
    assert [to_label(item).value for item in told] == [1.0, None, 0.0]
    assert seen == {"level": [1, None, None]}

    async def waiting(prompts: list[str], completions: list[str]) -> list[float]:
        return [0.5] * len(prompts)

    assert ask(FunctionSource("rewards.py:waiting", waiting), "a", "b") == [0.5, 0.5]


def test_a_function_that_expects_chat_messages_is_told_what_it_gets() -> None:
    def chat(completions: list[Any], **kwargs: Any) -> list[float]:
        return [float(len(messages[0]["content"])) for messages in completions]

    (told,) = ask(FunctionSource("rewards.py:chat", chat), "text")
    assert "plain text" in to_label(told).why


def test_a_function_that_needs_the_trainer_is_refused() -> None:
    def late(completions: list[str], trainer_state: Any) -> list[float]:
        return [trainer_state.step]

    with pytest.raises(AttachError, match="trainer_state"):
        FunctionSource("rewards.py:late", late)


def test_facts_travel_with_their_rows_and_reach_the_function(tmp_path: Path) -> None:
    steps = []
    for step in range(6):
        made = batch(step)
        assert made.completion is not None
        steps.append(batch(step, facts=[{"answer": text, "row": k} for k, text in enumerate(made.completion)]))

    def agrees(request: CompletionToLabel) -> GoldAnswer:
        assert request.columns["answer"] == request.completion
        assert request.columns["row"] == request.row
        return worth(request.completion)

    source = Teller(agrees)
    run = directory(tmp_path / "run", steps)
    events = watched(run, source)
    assert len(source.asked) > 20
    assert {request.step for request in source.asked} == set(range(6)), "read back from files as well"
    assert not any(event.data["missing"] for event in of(events, "labels_closed"))
    assert thin(steps[0]).facts is None
    stored, _, _ = run.read(run.find(0, 0)[0])
    assert stored.facts == steps[0].facts


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"answer": "12", "n": np.int64(3), "of": np.arange(2)}, {"answer": "12", "n": 3, "of": [0, 1]}),
        ({"tests": "x" * 17_000, "answer": "é" * 8_000, "id": 1}, {"answer": "é" * 8_000, "id": 1}),
        ({"nan": float("nan"), ("a", 1): {1}, "none": None}, {"nan": "nan", "('a', 1)": "{1}", "none": None}),
        ({"odd": "\ud800"}, {"odd": "\ud800"}),
        ('{"as": "text"}', {"as": "text"}),
        (None, {}),
    ],
)
def test_facts_are_kept_whole_or_not_at_all(given: Any, kept: dict[str, Any]) -> None:
    (text,) = from_columns(0, [0], facts=[given]).facts or ()
    assert from_text(text) == kept
    assert text is None or len(text.encode("utf-8", "surrogatepass")) <= 16 * 1024


def test_facts_that_are_no_object_are_no_facts(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(0, facts=["[1, 2", "3", "[]", None] * 16)])
    source = Teller()
    watched(run, source)
    assert source.asked
    assert all(request.columns == {} for request in source.asked)


def test_the_level_is_the_mean_gold_of_pairs_with_both_labels_and_no_bet(tmp_path: Path) -> None:
    bets = tuple(Bet("slope", (0, 3, 2 * k), (0, 3, 2 * k + 1), 0.5, 0.1) for k in range(3))
    asked = LabelRequest(
        0, 3, ((0, 0),), "ab", {}, 0.02, {}, (*bets, Bet("duel", (0, 3, 6), (0, 1, 7), 1.0, 0.1)), (None,) * 8
    )
    told = [Label(value) for value in (1.0, 0.0, 0.75, 0.25, None, 0.0, 1.0, 1.0)]
    level = {reading.name: reading for reading in settle_bets(asked, told).readings()}["gold.level"]
    assert (level.value, level.n, level.values) == (0.5, 2, ())
    assert level.stderr == 0.0
    lone = settle_bets(replace(asked, bets=bets[2:], paid=(None, None)), told[4:6])
    assert [reading.name for reading in lone.readings()] == ["gold.slope"]


def test_the_level_is_on_record_and_the_alarm_does_not_count_it(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(8)])
    events = watched(run, Teller())
    closed = of(events, "labels_closed")
    assert all("gold.level" in event.data["measured"] for event in closed if event.data["asked"])
    bets = sum(len(packed[3]) for e in closed for name, packed in e.data["measured"].items() if name != "gold.level")
    assert RunFacts.from_events(events).bets == bets
    assert replay(run, lean()).difference is None


@pytest.mark.parametrize("name", ["checks.py", "judge.yaml", "score", "checks.py:", "http://localhost:8000"])
def test_a_name_that_is_no_source_is_refused_with_both_forms(tmp_path: Path, name: str) -> None:
    with pytest.raises(AttachError, match=r"checks\.py:score.*judge\.toml"):
        open_run(tmp_path / "run", monitor=False, gold=name)


def test_what_a_function_raises_is_a_missing_label_and_never_a_zero() -> None:
    def picky(prompt: str, completion: str) -> float:
        if completion.startswith("b"):
            raise KeyError("unparsable")
        return worth(completion)

    told = ask(FunctionSource("checks.py:picky", picky), "a 1.0", "b 0.0")
    assert told[0] == 1.0
    assert to_label(told[1]) == Label(None, "KeyError: 'unparsable'")


def test_a_list_of_another_length_is_no_answer_at_all() -> None:
    def short(prompts: list[str], completions: list[str]) -> list[float]:
        return [1.0]

    assert [to_label(told).value for told in ask(FunctionSource("checks.py:short", short), "a 1", "b 1")] == [
        None,
        None,
    ]


def test_what_is_late_is_missing_and_a_function_that_hangs_is_not_asked_again() -> None:
    gate = threading.Event()
    calls = []

    def slow(prompt: str, completion: str) -> float:
        calls.append(completion)
        if completion.startswith("b"):
            gate.wait(20.0)
        return worth(completion)

    source = FunctionSource("checks.py:slow", slow, timeout=0.2)
    told = ask(source, "a 1.0", "b 1.0", "c 1.0")
    assert [to_label(item).value for item in told] == [1.0, None, None]
    assert isinstance(told[2], TimeoutError)
    assert "busy" in to_label(ask(source, "d 1.0")[0]).why
    assert "d 1.0" not in calls
    gate.set()


@pytest.mark.parametrize("said", [None, float("nan"), float("inf"), -0.1, 1.1, "1", [1], ValueError("x")])
def test_what_is_not_a_number_from_0_to_1_is_missing(said: object) -> None:
    assert to_label(said).value is None
    assert to_label(said).why


def test_plain_numbers_of_every_kind_are_labels() -> None:
    assert [to_label(said).value for said in (True, 0, 0.25, np.float32(0.5), np.int64(1))] == [
        1.0,
        0.0,
        0.25,
        0.5,
        1.0,
    ]


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "checks.py").write_text(text)
    return f"{tmp_path}/checks.py:score"


def paying(completions: list[str], **columns: Any) -> list[float]:
    return [float(len(text)) for text in completions]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def score(answer): return 1.0", "def score\\(prompt, completion\\)"),
        ("score = 1", "not a function"),
        ("def other(prompt, completion): return 1.0", "defines no score"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_function_that_cannot_be_asked_is_refused_with_the_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AttachError, match=message):
        open_run(tmp_path / "run", monitor=False, gold=written(tmp_path, text))


def test_a_function_that_was_passed_is_written_beside_the_run_and_not_read_from_it_unnamed(tmp_path: Path) -> None:
    limit = 3

    def score(completion: str, answer: str) -> float:
        return float(completion == answer) / limit

    with open_run(tmp_path / "run", monitor=False, gold=score) as run:
        assert run.gold.endswith("/test_gold.py:score")
    path = Path(run.gold.removesuffix(":score"))
    assert path.is_relative_to(tmp_path / "run" / "gold" / "functions") and "_make_score(3)" in path.read_text()
    assert strange_files(RunDirectory(tmp_path / "run")) == []
    source = load_gold(run.gold)
    assert source.name == "test_gold.py:score" and source.identity.startswith(
        "the function score in test_gold.py, code "
    )
    (answer,) = source.label([CompletionToLabel("0", 0, 0, 0, "slope", "", "4", {"answer": "4"})])
    assert answer == pytest.approx(1 / 3)
    path.chmod(0o600)
    path.write_text(path.read_text().replace("(3)", "(4)"))
    with pytest.raises(AttachError, match="has changed since it was written"):
        load_gold(run.gold)


def test_something_that_is_neither_a_function_nor_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match=r"gold=0\.5 names no source: pass a function"):
        open_run(tmp_path / "run", monitor=False, gold=0.5)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_of_rollouts_lies_between_0_and_1(tmp_path: Path, share: float) -> None:
    gold = written(tmp_path, "def score(prompt, completion): return 1.0")
    with pytest.raises(AttachError, match="share"):
        open_run(tmp_path / "run", monitor=False, gold=Gold(gold, share=share))


def test_gold_that_is_the_reward_is_refused_under_whatever_name(tmp_path: Path) -> None:
    gold = written(tmp_path, "def score(prompt, completion):\n    return min(1.0, len(completion) / 100)\n")

    def score(prompt: str, completion: str) -> float:
        return min(1.0, len(completion) / 100)

    def another_name(prompt: str, completion: str) -> float:
        return min(1.0, len(completion) / 100)

    for reward in (score, another_name):
        with pytest.raises(AttachError, match="could never fire"):
            open_run(tmp_path / "run", monitor=False, gold=gold, rewards=[paying, reward])
    open_run(tmp_path / "run", monitor=False, gold=gold, rewards=[paying]).close()


def test_nothing_on_the_training_side_can_read_gold() -> None:
    """Gold that a reward function could see would be a second proxy: adapters get no handle to labels.

    Anchors alone ask for labels there; `attach` alone knows them, and what they write is a mean by round.
    """
    rewards = (SRC / "gold" / folder for folder in ("checks", "guards", "traps"))
    sources = [*SRC.glob("adapters/**/*.py"), *(one for folder in rewards for one in folder.glob("*.py"))]
    sources += [SRC / "rewards.py", SRC / "rundir" / "writer.py"]
    at_attach = ("tiltmeter.gold.try_gold", "tiltmeter.gold.find_gold")  # before the first step
    regrade = ("tiltmeter.gold.regrade.settings", "tiltmeter.gold.regrade.keep", "tiltmeter.gold.regrade.source")
    allowed = ("tiltmeter.gold.checks", "tiltmeter.gold.guards", "tiltmeter.gold.traps", *at_attach, *regrade)
    assert len(sources) > 40
    anchors = SRC / "adapters" / "trl" / "anchors.py"
    sources.remove(anchors)
    importing = [path.name for path in SRC.glob("**/*.py") if "adapters.trl.anchors import" in path.read_text()]
    assert importing == ["attach.py"]
    for path in sources:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not node.module.startswith("tiltmeter.gold") or node.module.startswith(allowed), path
                assert "tiltmeter.gold" not in [f"{node.module}.{alias.name}" for alias in node.names], path
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("tiltmeter.gold") for alias in node.names), path
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                # There: an argument of OpenRLHF's, and a column of tokens that TRL trains on.
                assert node.value != "labels" or path.name in ("reward_calls.py", "checkpoint_sampling.py"), path
                assert not node.value.startswith(("gold/", "labels/")), path


def example(run: RunDirectory) -> LabelRequest:
    bets = (Bet("slope", (0, 3, 1), (0, 3, 2), 0.5, 0.1), Bet("duel", (0, 3, 1), (0, 1, 7), 1.0, 0.1))
    state = {"credit": 0.1 + 0.2, "rows": {"a": [0, 1, 2]}}
    asked = LabelRequest(
        0, 3, ((0, 0),), "ab", {"name": "n", "identity": "i"}, 0.02, state, bets, (1.5, -1.0, None), 99.0
    )
    write_request(run, asked)
    return asked


def test_what_was_asked_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    asked = example(run)
    again = read_request(run, 0, 3)
    assert again == asked
    assert again is not None
    assert again.digest == asked.digest == replace(asked, time=1.0).digest
    assert again.rows == ((0, 3, 1), (0, 3, 2), (0, 1, 7))
    assert read_request(run, 0, 4) is None


def test_a_damaged_request_file_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    example(run)
    (path,) = (run.path / "gold" / "requests").iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StoreError):
        read_request(run, 0, 3)


def test_the_first_answer_stands_and_a_later_one_is_kept_unused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    asked = example(run)
    assert write_label(run, asked, 0, Label(None, "no answer within 600 s"), "n")
    assert not write_label(run, asked, 0, Label(1.0), "n")
    assert read_labels(run, asked) == [Label(None, "no answer within 600 s"), None, None]
    assert len(list((run.path / "gold" / "labels" / "0-000003").iterdir())) == 2


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "NaN", "twice", "large"])
def test_what_stands_in_place_of_a_label_is_no_label_and_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    run = RunDirectory.create(tmp_path / "run")
    asked = example(run)
    assert write_label(run, asked, 0, Label(1.0), "n")
    path = run.path / "gold" / "labels" / "0-000003" / "1.json"
    good = (path.parent / "0.json").read_text()
    if kind == "link":
        path.symlink_to("0.json")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        changed = {"NaN": good.replace("1.0", "NaN"), "twice": good.replace('"why"', '"value": 0.5, "why"')}
        path.write_text(changed.get(kind, good + " " * 100_000))
    found = read_labels(run, asked)
    assert found[0] == Label(1.0) and found[2] is None
    assert found[1] is not None and found[1].value is None and found[1].why.startswith("unreadable answer: ")


def test_an_answer_to_another_question_is_no_answer(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    asked = example(run)
    write_label(run, replace(asked, seed="another"), 1, Label(1.0), "n")
    found = read_labels(run, asked)[1]
    assert found is not None
    assert found.value is None


def test_a_missing_label_counts_as_what_favours_a_healthy_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    asked = example(run)
    cases: list[tuple[list[float | None], float]] = [
        ([0.2, 0.9, 0.0], 0.5 * (0.2 - 0.9)),
        ([None, 0.9, 0.0], 0.5 * (1.0 - 0.9)),
        ([0.2, None, 0.0], 0.5 * (0.2 - 0.0)),
        ([None, None, 0.0], 0.5),
    ]
    for told, slope in cases:
        closed = settle_bets(asked, [Label(value, "late" if value is None else "") for value in told])
        assert closed.slopes == (slope,)
        assert closed.facts["missing"] == told.count(None)
        assert bool(closed.facts["why"]) == (None in told)


def test_a_reward_that_turns_on_gold_is_caught_with_bought_labels(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step, harm=step >= 20) for step in range(60)])
    events = watched(run, Teller())
    story = RunFacts.from_events(events)
    verdict = verdict_of(story, FRESH)
    assert verdict.state == "ACT"
    assert 15 <= verdict.alarms[0].onset <= 25
    assert 0.05 < story.labels / story.rows <= 0.55
    assert replay(run, lean()).difference is None


def test_a_healthy_run_says_how_many_labels_and_whose(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(80)])
    events = watched(run, Teller())
    verdict = verdict_of(RunFacts.from_events(events), FRESH)
    assert verdict.state == "OK"
    assert "labels" in verdict.sentence
    assert "% of rollouts, about teller" in verdict.sentence
    closed = of(events, "labels_closed")
    assert [event.step for event in closed] == list(range(80))
    last = closed[-1].data
    assert last["labels"] == sum(event.data["answered"] for event in closed)
    assert last["rollouts"] == 80 * 64
    assert last["share"] == last["labels"] / last["rollouts"]


def test_what_was_asked_is_on_disk_before_anybody_is_asked(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(request: CompletionToLabel) -> GoldAnswer:
        attempt, step = map(int, request.id.split("-")[:2])
        asked = read_request(run, attempt, step)
        assert asked is not None
        seen.append((request.attempt, request.step, request.row) in asked.rows)
        return worth(request.completion)

    run = directory(tmp_path / "run", [batch(step) for step in range(6)])
    watched(run, Teller(look))
    assert seen
    assert all(seen)


def test_requests_carry_the_text_of_their_row_also_of_an_earlier_step(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(30)])
    source = Teller()
    events = watched(run, source)
    for request in source.asked:
        assert request.completion.split()[0] == f"{request.attempt}/{request.step}/{request.row}"
        assert request.prompt == f"prompt {(request.step * 8 + request.row // 8) % 16}"
    assert [request for request in source.asked if request.id.split("-")[1] != str(request.step)]
    assert [event for event in of(events, "labels_closed") if "gold.duel" in event.data["measured"]]


def test_bought_bets_take_the_place_of_those_from_the_trainers_own_gold(tmp_path: Path) -> None:
    """The trainer's gold column is everywhere 1 - gold: if it entered the bets, this healthy run would alarm."""
    steps = []
    for step in range(40):
        made = batch(step)
        assert made.completion is not None
        lie = np.array([1.0 - worth(text or "") for text in made.completion])
        steps.append(batch(step, gold=lie))
    run = directory(tmp_path / "run", steps)
    events = watched(run, Teller())
    assert verdict_of(RunFacts.from_events(events), FRESH).state == "OK"
    assert not any("gold.slope" in event.data["measured"] for event in of(events, "reading"))
    assert any("gold.mean" in event.data["measured"] for event in of(events, "reading"))
    assert all("gold.slope" in e.data["measured"] for e in of(events, "labels_closed") if e.data["asked"])


def test_one_label_in_five_that_never_comes_is_blind(tmp_path: Path) -> None:
    def flaky(request: CompletionToLabel) -> GoldAnswer:
        return ValueError("judge is down") if request.row % 5 == 0 else worth(request.completion)

    run = directory(tmp_path / "run", [batch(step) for step in range(40)])
    events = watched(run, Teller(flaky))
    story = RunFacts.from_events(events)
    verdict = verdict_of(story, FRESH)
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert "never came" in verdict.sentence
    assert 0.1 < story.unanswered / story.labels_requested < 0.4
    faults = [fault.error for fault in story.faults if fault.part == "gold"]
    assert faults
    assert all("judge is down" in error for error in faults)


def test_labels_that_are_missing_of_late_are_blind_although_few_are_in_all(tmp_path: Path) -> None:
    """A check that cannot read what the policy has learnt to write says nothing of just those answers."""

    def flaky(request: CompletionToLabel) -> GoldAnswer:
        return None if request.step >= 90 and request.row % 3 == 0 else worth(request.completion)

    run = directory(tmp_path / "run", [batch(step) for step in range(100)])
    story = RunFacts.from_events(watched(run, Teller(flaky)))
    verdict = verdict_of(story, FRESH)
    assert story.unanswered < 0.1 * story.labels_requested
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert "of the last 20 labelled steps never came" in verdict.sentence


def test_a_source_that_fails_altogether_gives_bets_that_favour_the_run(tmp_path: Path) -> None:
    class Broken(Teller):
        def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
            raise SystemExit("no")

    run = directory(tmp_path / "run", [batch(step, harm=True) for step in range(20)])
    events = watched(run, Broken())
    us = [u for event in of(events, "labels_closed") for r in journal.readings_of(event) for u in r.values]
    assert us
    assert min(us) >= 0.0
    assert verdict_of(RunFacts.from_events(events), FRESH).state == "BLIND"
    assert replay(run, lean()).difference is None


def test_gold_that_repeats_the_reward_is_noticed(tmp_path: Path) -> None:
    steps = []
    for step in range(30):
        made = batch(step)
        assert made.completion is not None
        steps.append(batch(step, reward=[worth(text or "") for text in made.completion]))
    run = directory(tmp_path / "run", steps)
    verdict = verdict_of(RunFacts.from_events(watched(run, Teller())), FRESH)
    assert verdict.state == "BLIND"
    assert "the reward itself" in verdict.sentence


def test_without_text_nothing_is_asked_and_the_run_is_blind(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [thin(batch(step)) for step in range(20)])
    source = Teller()
    events = watched(run, source)
    assert not source.asked
    verdict = verdict_of(RunFacts.from_events(events), FRESH)
    assert verdict.state == "BLIND"
    assert "completion=" in verdict.sentence


def test_a_warning_makes_the_steps_after_it_looked_at_more_closely(tmp_path: Path) -> None:
    steps = [batch(step, truncated=[step > 4] * 64) for step in range(30)]
    run = directory(tmp_path / "run", steps)
    standard = Config.standard()
    parts = tuple(part for part in standard.instruments if part.name == "length.truncated_share")
    told = Config(parts, (), standard.detectors).with_gold(Teller(), 0.5)
    watch = MonitorLoop(run, told, strict=True)
    watch.poll()
    watch.close()
    raised = [event.step for event in of(journal.read_events(run.path / "events"), "alarm")]
    boosted = [read_request(run, 0, step).state["boosted"] for step in range(30)]  # type: ignore[union-attr]
    assert raised
    assert [step for step in range(30) if boosted[step]] == list(range(raised[0], 30))


def test_a_sampler_that_fails_is_a_fault_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> list[Bet]:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(EveryOther, "draw", broken)
    run = directory(tmp_path / "run", [batch(step) for step in range(5)])
    watch = MonitorLoop(run, config(Teller()))
    watch.poll()
    watch.close()
    events = journal.read_events(run.path / "events")
    assert len(of(events, "step_done")) == 5
    assert [event.data["part"] for event in of(events, "fault")] == ["sampler"] * 5
    assert verdict_of(RunFacts.from_events(events), FRESH).state == "BLIND"


class Slow(Teller):
    """A source that answers about a step once the steps that are allowed have grown that far."""

    allowed = -1

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        self.asked += requests
        return [worth(r.completion) if int(r.id.split("-")[1]) <= self.allowed else LATER for r in requests]


def test_late_labels_are_folded_in_step_order_and_the_alarm_names_both_steps(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step, harm=True) for step in range(40)], close=False)
    source = Slow()
    watch = MonitorLoop(run, config(source), strict=True)
    watch.poll()
    assert watch.waiting
    assert not of(journal.read_events(run.path / "events"), "labels_closed")
    for allowed in range(40):
        source.allowed = allowed
        watch.poll()
    watch.close()
    assert not watch.waiting
    events = journal.read_events(run.path / "events")
    assert [event.step for event in of(events, "labels_closed")] == list(range(40))
    assert all(event.data["at"] == [0, 39] for event in of(events, "labels_closed"))
    (raised,) = (event.payload for event in of(events, "alarm") if event.data["tier"] == "alarm")
    assert isinstance(raised, Alarm)
    assert raised.onset <= raised.data_step < 39
    assert raised.step == 39
    assert replay(run, lean()).difference is None


def test_a_step_that_is_complete_waits_for_one_before_it(tmp_path: Path) -> None:
    class Backwards(Teller):
        def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
            return [LATER if r.id.split("-")[1] == "0" else worth(r.completion) for r in requests]

    source = Backwards()
    run = directory(tmp_path / "run", [batch(step) for step in range(4)], close=False)
    watch = MonitorLoop(run, config(source), strict=True)
    watch.poll()
    assert not of(journal.read_events(run.path / "events"), "labels_closed")
    asked = read_request(run, 0, 0)
    assert asked is not None
    assert asked.rows
    for number in range(len(asked.rows)):  # as a page would answer, from another process
        write_label(run, asked, number, Label(1.0), "a person")
    watch.poll()
    watch.close()
    assert [event.step for event in of(journal.read_events(run.path / "events"), "labels_closed")] == [0, 1, 2, 3]


def test_a_request_closes_at_its_time_out(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(3)])
    source = Slow(timeout=0.3)
    watch = MonitorLoop(run, config(source), strict=True)
    watch.poll()
    assert watch.waiting
    time.sleep(0.35)
    watch.poll()
    watch.close()
    assert not watch.waiting
    events = journal.read_events(run.path / "events")
    assert sum(e.data["missing"] for e in of(events, "labels_closed")) > 0
    assert not any(e.data["answered"] for e in of(events, "labels_closed"))
    assert any("no answer within 0.3 s" in e.data["why"] for e in of(events, "labels_closed"))


def test_an_alarm_on_late_labels_resolves_under_the_name_it_was_raised_with(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step, harm=True) for step in range(40)])
    source = Slow()
    watch = MonitorLoop(run, config(source), strict=True)
    watch.poll()
    source.allowed = 100
    watch.poll()
    attempt = run.open_attempt(launch="y", ranks=1, resume_step=0)
    run.write(batch(0, attempt=attempt), 0, {"counters": {"seen": 1}})
    watch.poll()
    watch.close()
    story = RunFacts.from_events(journal.read_events(run.path / "events"))
    assert story.alarms
    assert story.open_alarms("alarm") == ()
    assert replay(run, lean()).difference is None


def test_an_alarm_about_steps_that_were_abandoned_is_resolved_as_it_is_raised(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step, harm=step >= 5) for step in range(40)])
    source = Slow()
    watch = MonitorLoop(run, config(source), strict=True)
    watch.poll()
    attempt = run.open_attempt(launch="y", ranks=1, resume_step=2)
    run.write(batch(2, attempt=attempt), 0, {"counters": {"seen": 1}})
    watch.poll()
    source.allowed = 100
    watch.poll()
    watch.close()
    story = RunFacts.from_events(journal.read_events(run.path / "events"))
    assert len(story.alarms) == 1
    assert story.open_alarms("alarm") == ()
    assert replay(run, lean()).difference is None


def test_a_monitor_that_starts_again_asks_nobody_twice_and_chooses_the_same(tmp_path: Path) -> None:
    steps = [batch(step) for step in range(12)]
    whole = directory(tmp_path / "whole", steps)
    watched(whole, Teller())
    part = directory(tmp_path / "part", [])
    asked: list[CompletionToLabel] = []
    for item in steps:
        part.write(item, 0, {"counters": {"seen": 12}})
        source = Teller()
        watched(part, source)
        asked += source.asked
    assert len({request.id for request in asked}) == len(asked)
    for step in range(12):
        one, two = read_request(whole, 0, step), read_request(part, 0, step)
        assert one is not None
        assert two is not None
        assert one.digest == two.digest
    assert any(read_request(whole, 0, step).bets for step in range(12))  # type: ignore[union-attr]


def test_lost_requests_stop_the_monitor_and_say_what_to_do(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(3)])
    watched(run, Teller())
    for path in (run.path / "gold" / "requests").iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="without --gold"):
        MonitorLoop(run, config(Teller()))


def test_another_source_in_mid_run_is_on_record_and_on_the_screen(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(3)], close=False)
    watched(run, Teller(name="first"))
    run.write(batch(3), 0, {"counters": {"seen": 4}})
    events = watched(run, Teller(name="second"))
    assert [event.data["gold"]["name"] for event in of(events, "note") if event.data["note"] == "config"] == ["second"]
    assert RunFacts.from_events(events).judges == ["first", "second"]


def test_a_run_that_loses_its_gold_goes_on_without_it(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(3)], close=False)
    watched(run, Teller())
    for step in (3, 4):
        run.write(batch(step), 0, {"counters": {"seen": 5}})
        watch = MonitorLoop(run, lean(), strict=True)
        watch.poll()
        watch.close()
    run.write(batch(5), 0, {"counters": {"seen": 6}})
    events = watched(run, Teller())
    assert [event.step for event in of(events, "labels_closed")] == [0, 1, 2, 5]
    assert replay(run, lean()).recorded  # with one set of settings it cannot be equal, but it must not fail


def test_answers_without_a_request_are_rejected_and_counted(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(4)], close=False)
    early = run.path / "gold" / "labels" / "0-000002"
    early.mkdir(parents=True)
    (early / "0.json").write_text(json.dumps({"id": "0-2-0", "request": "", "value": 0.0, "why": ""}))
    (early / "999.json").write_text("{}")
    (run.path / "gold" / "labels" / "7-000001").mkdir()
    events = watched(run, Teller())
    errors = [event.data["error"] for event in of(events, "fault") if event.data["part"] == "label"]
    assert RunFacts.from_events(events).rejected == len(errors) == 4
    assert {error.split(":")[0] for error in errors} == {
        "gold/labels/0-000002", "gold/labels/0-000002/0.json", "gold/labels/0-000002/999.json", "gold/labels/7-000001",
    }  # fmt: skip
    closed = {event.step: event.data for event in of(events, "labels_closed")}
    assert closed[2]["missing"] == 1
    assert closed[1]["missing"] == closed[3]["missing"] == 0
    assert len(of(watched(run, Teller()), "fault")) == len(of(events, "fault")), "reported twice"
    assert replay(run, lean()).difference is None


def test_a_label_that_was_changed_afterwards_is_found_by_replay(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(4)])
    watched(run, Teller())
    path = sorted((run.path / "gold" / "labels").glob("*/all.json"))[0]
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "values": [1.0 - value for value in facts["values"]]}))
    assert replay(run, lean()).difference is not None
    path.unlink()
    with pytest.raises(StoreError, match="is gone"):
        replay(run, lean())


def test_a_declared_evaluation_becomes_a_reading(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", monitor=False, options=Options(on_full="wait", strict=True)) as opened:
        for step in range(20):
            opened.observe(batch(step))
            if step % 5 == 4:
                opened.evaluate(step, 0.5 + step / 100, 200, name="gsm8k")
        opened.evaluate(20, 0.9, 50)
    run = RunDirectory(tmp_path / "run")
    watch = MonitorLoop(run, lean(), strict=True)
    watch.poll()
    watch.close()
    events = journal.read_events(run.path / "events")
    notes = [event for event in of(events, "note") if event.data["note"] == "evaluation"]
    assert [(event.step, event.data["measured"]) for event in notes] == [
        (4, {"eval.gsm8k": [0.54, 200, None]}),
        (9, {"eval.gsm8k": [0.59, 200, None]}),
        (14, {"eval.gsm8k": [0.64, 200, None]}),
        (19, {"eval.gsm8k": [0.69, 200, None]}),
        (20, {"eval.eval": [0.9, 50, None]}),
    ]
    assert [event.data["at"] for event in notes[:2]] == [[0, 4], [0, 9]], "in step order also when catching up"
    again = MonitorLoop(run, lean(), strict=True)
    assert again.poll() == 0
    again.close()
    assert replay(run, lean()).difference is None


class Watchful:
    """An alarm that looks at declared evaluations, and stays silent."""

    name, tier, alpha, watches, least = "watchful", "alarm", 0.01, ("gold.slope", "eval.*"), 13

    def __repr__(self) -> str:
        return "Watchful()"

    def update(self, reading: Any) -> Alarm | None:
        return None


def evaluated(path: Path, every: int, stop: int = 60) -> RunFacts:
    with open_run(path, monitor=False, options=Options(on_full="wait", strict=True)) as opened:
        for step in range(60):
            opened.observe(batch(step))
            if step % every == 0 and step < stop:
                opened.evaluate(step, 0.5, 200)
    standard = Config.standard()
    watch = MonitorLoop(RunDirectory(path), Config(standard.instruments, standard.derived, (Watchful,)), strict=True)  # type: ignore[arg-type]
    watch.poll()
    watch.close()
    return RunFacts.from_events(journal.read_events(path / "events"))


def test_a_run_with_evaluations_that_a_detector_promises_for_is_not_blind(tmp_path: Path) -> None:
    verdict = verdict_of(evaluated(tmp_path / "run", 10), FRESH)
    assert verdict.state in ("OK", "WATCH")
    assert "6 evaluations" in verdict.sentence


def test_evaluations_that_stopped_or_that_no_detector_watches_are_blind(tmp_path: Path) -> None:
    assert verdict_of(evaluated(tmp_path / "stopped", 5, stop=15), FRESH).state == "BLIND"
    assert verdict_of(evaluated(tmp_path / "one", 100), FRESH).state == "BLIND"
    with open_run(tmp_path / "run", monitor=False, options=Options(on_full="wait")) as opened:
        for step in range(30):
            opened.observe(batch(step))
            opened.evaluate(step, 0.5, 200)
    standard = Config.standard()
    deaf = [make for make in standard.detectors if make().tier == "warning"]
    watch = MonitorLoop(opened._run, Config(standard.instruments, standard.derived, tuple(deaf)), strict=True)  # type: ignore[arg-type]
    watch.poll()
    watch.close()
    assert verdict_of(RunFacts.from_events(journal.read_events(tmp_path / "run" / "events")), FRESH).state == "BLIND"


@pytest.mark.parametrize(
    ("value", "n", "name"), [(1.5, 10, "eval"), (float("nan"), 10, "eval"), (0.5, 0, "eval"), (0.5, 10, "../x")]
)
def test_an_evaluation_that_cannot_be_kept_is_raised_or_reported(
    tmp_path: Path, value: float, n: int, name: str
) -> None:
    with (
        open_run(tmp_path / "strict", monitor=False, options=Options(strict=True)) as strict,
        pytest.raises(ValueError, match="evaluation"),
    ):
        strict.evaluate(0, value, n, name)
    with open_run(tmp_path / "run", monitor=False) as opened:
        opened.observe(batch(0))
        opened.evaluate(0, value, n, name)
    watch = MonitorLoop(RunDirectory(tmp_path / "run"), lean(), strict=True)
    watch.poll()
    watch.close()
    events = journal.read_events(tmp_path / "run" / "events")
    assert any("an evaluation at step 0" in event.data["error"] for event in of(events, "fault"))


def test_an_evaluation_that_every_rank_declares_is_one_and_another_value_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", monitor=False, options=Options(strict=True)) as opened:
        for _ in range(2):
            opened.evaluate(3, 0.5, 10)
        with pytest.raises(FileExistsError):
            opened.evaluate(3, 0.6, 10)
    (path,) = (tmp_path / "run" / "evals").iterdir()
    assert json.loads(path.read_text())["value"] == 0.5


def test_a_damaged_evaluation_is_reported_once(tmp_path: Path) -> None:
    run = directory(tmp_path / "run", [batch(step) for step in range(3)])
    (run.path / "evals").mkdir()
    (run.path / "evals" / "0-000001-eval.json").write_text('{"value": ')
    for _ in range(2):
        watch = MonitorLoop(run, lean(), strict=True)
        watch.poll()
        watch.close()
    events = journal.read_events(run.path / "events")
    assert [event.data["part"] for event in of(events, "fault")] == ["store"]
    assert replay(run, lean()).difference is None


def test_a_gold_file_may_import_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor is not started where the trainer was: what loads at attach must load there too."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "answers_beside.py").write_text("RIGHT = '4'\n")
    checks = tmp_path / "checks_beside.py"
    checks.write_text(
        "from answers_beside import RIGHT\ndef score(prompt, completion):\n    return float(completion == RIGHT)\n"
    )
    assert load_function(f"{checks}:score")("2 + 2?", "4") == 1.0
