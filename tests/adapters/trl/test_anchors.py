"""Anchors under real TRL: the same prompts asked again between steps, given gold, never trained on."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adapters.trl.test_attach import parameters, stored

import tiltmeter
from tiltmeter.errors import AttachError
from tiltmeter.rundir.evaluations import Evaluation, read_evaluations
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.payloads import EvaluationRead
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts, series

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]
#: What of a log is the clock's.
TIMED = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
ANCHORS = {"prompts": 8, "every": 2, "answers": 2}


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    """Gold that labels every answer, one that never labels short ones, and one that labels none."""
    file = tmp_path / "checks.py"
    file.write_text(
        "def score(prompt, completion, answer, length): return float(len(completion + answer) % 2)\n"
        "def picky(completion): return None if len(completion) % 3 == 0 else 0.5\n"
        "def broken(completion): return None\n"
        "def texts(prompt, completion): return float(isinstance(completion, str) and prompt.count('what is') == 1)\n"
        "def slow(completion): return 0.0 if len(completion) < 15 else __import__('time').sleep(3)\n"
    )
    return file


def attached(trainer: Any, *, strict: bool = True, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, options=tiltmeter.Options(strict=strict), **options)


def rounds(run: Any) -> list[Evaluation]:
    """All rounds of a run, oldest first."""
    read = read_evaluations(RunDirectory(run.directory), set())
    return [one for attempt in sorted(read) for one in read[attempt] if isinstance(one, Evaluation)]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("GRPO", {}),
        ("RLOO", {}),
        ("GRPO", {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "num_iterations": 2, "max_steps": 5}),
    ],
)
def test_training_is_the_same_to_the_bit_and_the_rounds_are_there(
    make_trainer: Make, checks: Path, kind: str, changes: dict[str, Any]
) -> None:
    calls: list[int] = []

    def lengthy(completions: list[str], **_: Any) -> list[float]:
        calls.append(len(completions))
        return [len(text) / 50 for text in completions]

    ends = []
    for anchors in (None, ANCHORS):
        calls.clear()
        trainer = make_trainer(kind, rewards=[lengthy], **{"name": f"out-{anchors is None}", "max_steps": 4, **changes})
        run = attached(trainer, gold=f"{checks}:score", anchors=anchors)
        functions, generations = list(trainer.reward_funcs), trainer.num_generations_eval
        trainer.train()
        assert trainer.reward_funcs == functions and trainer.num_generations_eval == generations
        logs = [{k: v for k, v in line.items() if k not in TIMED} for line in trainer.state.log_history]
        ends.append((parameters(trainer), logs, stored(run), trainer.model.training, list(calls), rounds(run)))
    (bits, logs, batches, mode, paid, none), (bits_too, logs_too, batches_too, mode_too, paid_too, asked) = ends
    assert bits == bits_too and mode == mode_too
    assert logs == logs_too, "an anchor shows in no metric of the trainer"
    assert paid == paid_too, "no reward function is called on an anchor"
    for one, other in zip(batches, batches_too, strict=True):
        assert one.completion == other.completion and one.prompt == other.prompt
        np.testing.assert_array_equal(np.asarray(one.advantage), np.asarray(other.advantage))
        assert {**one.scalars, "step_seconds": 0} == {**other.scalars, "step_seconds": 0}
    assert not none
    assert [one.step for one in asked] == ([1, 3, 5] if changes else [1, 3])
    assert {(one.n, one.unknown) for one in asked} == {(16, 0)}, "eight prompts, two answers each, all labelled"
    assert len({one.name for one in asked}) == 1 and re.fullmatch("anchors_[0-9a-f]{8}", asked[0].name)


@pytest.mark.usefixtures("unmeasured")
def test_the_same_prompts_are_asked_in_each_round_and_answers_are_drawn_anew(
    make_trainer: Make, checks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiltmeter.adapters.trl.rollouts import Rollouts

    prompts: list[list[str]] = []
    texts: list[list[str]] = []
    answer_apart = Rollouts.answer_apart

    def spy(self: Rollouts, rows: list[dict[str, Any]]) -> Any:
        result = answer_apart(self, rows)
        prompts.append([row["prompt"] for row in rows])
        texts.append(list(result[0][1]))
        return result

    monkeypatch.setattr(Rollouts, "answer_apart", spy)
    trainer = make_trainer(max_steps=3, learning_rate=0.0)
    attached(trainer, gold=f"{checks}:score", anchors=ANCHORS)
    trainer.train()
    assert len(prompts) == 4, "two rounds, each as two batches of what a step generates"
    first, second = prompts[0] + prompts[1], prompts[2] + prompts[3]
    assert first == second and len(set(first)) == 8
    assert first[::2] == first[1::2], "the answers to one prompt stand together"
    assert texts[:2] != texts[2:], "the policy is the same, its answers are not"


@pytest.mark.usefixtures("unmeasured")
def test_a_run_that_is_resumed_goes_on_with_the_same_anchors_and_others_never_mix(
    make_trainer: Make, checks: Path
) -> None:
    names = []
    for gold, anchors in (
        ("score", ANCHORS),
        ("score", ANCHORS),
        ("score", {**ANCHORS, "prompts": 9}),
        ("picky", ANCHORS),
    ):
        trainer = make_trainer(max_steps=1)
        run = attached(trainer, gold=f"{checks}:{gold}", anchors=anchors)
        trainer.train()
        names.append(rounds(run)[-1].name)
    assert names[0] == names[1]
    assert len(set(names)) == 3, "other anchors, and other gold, are other series"


@pytest.mark.usefixtures("unmeasured")
def test_answers_without_gold_are_counted_beside_those_with_gold(make_trainer: Make, checks: Path) -> None:
    trainer = make_trainer(max_steps=3)
    run = attached(trainer, gold=f"{checks}:picky", anchors=ANCHORS)
    trainer.train()
    told = rounds(run)
    assert all(one.n + one.unknown == 16 and one.value == 0.5 for one in told)
    assert sum(one.unknown for one in told) > 0


@pytest.mark.usefixtures("unmeasured")
def test_gold_that_never_comes_is_said_once_a_round_and_training_goes_on(
    make_trainer: Make, checks: Path, caplog: Any
) -> None:
    trainer = make_trainer(max_steps=2)
    run = attached(trainer, gold=f"{checks}:broken", anchors=ANCHORS, strict=False)
    trainer.train()
    assert trainer.state.global_step == 2 and rounds(run) == []
    assert "anchors of step 1 have no gold" in caplog.text


@pytest.mark.usefixtures("unmeasured")
def test_generation_that_fails_ends_the_anchors_and_puts_everything_back(
    make_trainer: Make, checks: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from tiltmeter.adapters.trl.rollouts import Rollouts

    tries: list[int] = []

    def out_of_memory(self: Rollouts, rows: list[dict[str, Any]]) -> Any:
        tries.append(len(rows))
        raise MemoryError("out of memory")

    monkeypatch.setattr(Rollouts, "answer_apart", out_of_memory)
    trainer = make_trainer(max_steps=4)
    generations, functions = trainer.num_generations_eval, list(trainer.reward_funcs)
    attached(trainer, gold=f"{checks}:score", anchors=ANCHORS, strict=False)
    trainer.train()
    assert trainer.state.global_step == 4 and len(tries) == 1 and "out of memory" in caplog.text
    assert trainer.num_generations_eval == generations and trainer.reward_funcs == functions


@pytest.mark.usefixtures("unmeasured")
def test_rows_of_ones_own_are_asked_and_gold_sees_conversations_as_text(make_trainer: Make, checks: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"what is {i} plus 2"}], "answer": "3"} for i in range(8)]
    trainer = make_trainer(max_steps=1)
    run = attached(trainer, gold=f"{checks}:texts", anchors={"rows": rows, "every": 1})
    trainer.train()
    assert [(one.value, one.n, one.unknown) for one in rounds(run)] == [(1.0, 16, 0)]


@pytest.mark.usefixtures("unmeasured")
def test_the_end_of_training_waits_only_a_little_for_slow_gold(
    make_trainer: Make, checks: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("tiltmeter.adapters.trl.anchors.CLOSE_SECONDS", 0.2)
    trainer = make_trainer(max_steps=1)
    run = attached(trainer, gold=f"{checks}:slow", anchors=ANCHORS, strict=False)
    trainer.train()
    assert "anchors: gold of 1 of the last rounds took over 0.2 s" in caplog.text and rounds(run) == []


@pytest.mark.usefixtures("unmeasured")
def test_a_reward_function_with_weight_zero_serves_as_gold_and_no_other_is_called(make_trainer: Make) -> None:
    calls: list[str] = []

    def paid(completions: list[str], **_: Any) -> list[float]:
        calls.append("paid")
        return [len(text) / 50 for text in completions]

    def unpaid(completions: list[str], **_: Any) -> list[float]:
        calls.append("unpaid")
        return [0.25] * len(completions)

    trainer = make_trainer(rewards=[paid, unpaid], reward_weights=[1.0, 0.0], max_steps=1)
    run = attached(trainer, gold="reward:unpaid", anchors=ANCHORS)
    trainer.train()
    assert [(one.value, one.n) for one in rounds(run)] == [(0.25, 16)]
    assert calls == ["paid", "unpaid", "unpaid", "unpaid"], "one step, and one round in two batches"


def test_the_monitor_reads_them_as_an_evaluation(make_trainer: Make, checks: Path) -> None:
    trainer = make_trainer(max_steps=8)
    run = attached(trainer, gold=f"{checks}:picky", anchors=ANCHORS, strict=False)
    trainer.train()
    run.verdict()
    events = list(read_events(run.directory / "events"))
    facts = RunFacts.from_events(events)
    assert facts.evaluations == [(0, 1), (0, 3), (0, 5), (0, 7)]
    assert not facts.checkpoints.points, "answers of one policy to fixed prompts are no saved checkpoint"
    asked = rounds(run)
    assert series(events, facts.spans())[f"eval.{asked[0].name}"] == [(one.step, one.value) for one in asked]
    assert sum(one.unknown for one in asked) > 0, "and with the answers that have no gold"
    kept = [event.payload for event in events if isinstance(event.payload, EvaluationRead)]
    assert [one.unknown or 0 for one in kept] == [one.unknown for one in asked]


def test_the_cost_is_at_most_half_a_percent_where_nothing_else_is_said(
    make_trainer: Make, checks: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILTMETER_QUIET", raising=False)
    trainer = make_trainer(max_steps=2000)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tiltmeter.attach(trainer, gold=f"{checks}:score", anchors=16).close()
    assert any("3 rounds are too few to find a fall of gold" in str(one.message) for one in said)
    assert "anchors: 16 prompts, 2 answers each, every 800 steps: 0.5 % of rollouts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "gold", "anchors", "why"),
    [
        ("GRPO", None, 8, "needs gold for the answers: pass gold="),
        ("GRPO", "people", 8, "needs gold that is a function, tests or answers: 'people'"),
        ("GRPO", "score", 4, "prompts=4: give a whole number of at least 8"),
        ("GRPO", "score", {"every": 0}, "every=0: give a whole number"),
        ("GRPO", "score", {"shares": 1}, "anchors has no 'shares'"),
        ("GRPO", "score", {"rows": [{"prompt": "a"}]}, "lacks the column 'answer' of the dataset"),
        ("GRPO", "score", {"rows": [{"prompt": "a", "answer": "3"}] * 20}, "1 distinct prompts"),
        ("SFT", None, 8, "whose methods can be wrapped"),
    ],
)
def test_what_cannot_work_is_refused_at_attach(
    make_trainer: Make, checks: Path, kind: str, gold: str | None, anchors: Any, why: str
) -> None:
    trainer = make_trainer(kind)
    before = set(vars(trainer))
    with pytest.raises(AttachError, match=re.escape(why)):
        attached(trainer, gold=f"{checks}:{gold}" if gold == "score" else gold, anchors=anchors)
    assert set(vars(trainer)) == before, "a trainer that is not watched is as it was"


def test_a_rollout_function_and_a_streamed_dataset_are_refused(make_trainer: Make, checks: Path) -> None:
    trainer = make_trainer()
    trainer.rollout_func = lambda prompts, trainer: {}
    with pytest.raises(AttachError, match="not for environments or a rollout function"):
        attached(trainer, gold=f"{checks}:score", anchors=8)
    trainer = make_trainer()
    trainer.train_dataset = trainer.train_dataset.to_iterable_dataset()
    with pytest.raises(AttachError, match="streamed: pass Anchors"):
        attached(trainer, gold=f"{checks}:score", anchors=8)
