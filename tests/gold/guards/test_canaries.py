"""Answers of known worth among the rows: unseen by the trainer, told apart by nothing, and a fact when mis-scored."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter import rewards
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.canary import Canary as Detector
from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.canaries import CanaryReward, Known, canaried
from tiltmeter.gold.guards.guard_inventory import canary_scalars, describe_canaries
from tiltmeter.instruments.verifier import WORKERS, VerifierCanaries
from tiltmeter.models.judge import CANARIES
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.panel import readings
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import is_watched
from tiltmeter.verdict.verdict import Verdict, judge_run

PAIRS = (*Known.pair("2 + 2?", "4", "5", answer="4"), *Known.pair("3 + 3?", "6", "0", answer="6"))


def exact(completions: Sequence[Any], answer: Sequence[str], **_: Any) -> list[float]:
    return [float(text == wanted) for text, wanted in zip(completions, answer, strict=True)]


class Grader:
    """A grader that one completion can patch for all that follow, as one sample took verl's reward worker over."""

    __name__ = "grader"

    def __init__(self) -> None:
        self.equal: Callable[[str, str], bool] = lambda one, other: one == other
        self.seen: list[list[str]] = []

    def __call__(self, completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
        self.seen.append(list(completions))
        scores = []
        for text, wanted in zip(completions, answer, strict=True):
            if "patch the grader" in text:
                self.equal = lambda one, other: True
            scores.append(float(self.equal(text, wanted)))
        return scores


def batch(rng: random.Random, rows: int = 6) -> dict[str, list[str]]:
    wanted = [str(rng.randrange(10, 99)) for _ in range(rows)]
    said = [text if rng.random() < 0.5 else "7" for text in wanted]
    return {"prompts": [f"say {text}" for text in wanted], "completions": said, "answer": wanted}


def test_the_trainer_gets_what_it_would_have_got() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        reward = canaried(exact, PAIRS, seed=seed)
        for _ in range(5):
            given = batch(rng)
            assert reward(**given) == exact(**given)
        assert (reward.asked, reward.failed, reward.unanswered) == (4 + 2 * 4, 0, 0)


def test_canaries_stand_anywhere_and_the_part_sees_plain_rows() -> None:
    places = set()
    for seed in range(200):
        grader = Grader()
        reward = canaried(grader, PAIRS[:2], seed=seed, examine=False)
        reward(**batch(random.Random(seed), rows=3))
        (seen,) = grader.seen
        assert len(seen) == 5
        places |= {place for place, text in enumerate(seen) if text == "5"}
    assert places == {0, 1, 2, 3, 4}


def test_chats_columns_and_prompts_of_the_batch_are_taken_on() -> None:
    asked: list[dict[str, Any]] = []

    def look_at(**given: Any) -> list[float]:
        asked.append(given)
        return [0.0] * len(given["completions"])

    look_at.__name__ = "look_at"
    reward = canaried(look_at, [Known("")], seed=1)
    chat = [[{"role": "assistant", "content": "4"}]] * 2
    logged: dict[str, list[Any]] = {}
    given: dict[str, Any] = {
        "prompts": [[{"role": "user", "content": "2 + 2?"}]] * 2,
        "completions": chat,
        "answer": ["4", "4"],
    }
    reward(**given, trainer_state="as it is", log_extra=logged.__setitem__, level=["easy", "hard"])
    (seen,) = asked
    (at,) = [place for place, said in enumerate(seen["completions"]) if said[0]["content"] == ""]
    assert seen["prompts"][at] == given["prompts"][0] and seen["answer"][at] == "4"
    assert seen["level"][at] in ("easy", "hard") and seen["trainer_state"] == "as it is"
    seen["log_extra"]("mine", [0, 1, 2])
    assert logged["mine"] == [value for value in (0, 1, 2) if value != at]


def test_a_call_that_fails_only_for_the_canaries_does_not_hurt_the_run() -> None:
    calls = []

    def picky(completions: Sequence[str], **_: Any) -> list[float]:
        calls.append(len(completions))
        if "" in completions:
            raise IndexError("nothing there")
        return [1.0] * len(completions)

    reward = canaried(picky, [Known("")])
    with pytest.warns(UserWarning, match="could not be asked with canaries"):
        assert reward(completions=["a", "b"]) == [1.0, 1.0]
    for _ in range(4):
        assert reward(completions=["a", "b"]) == [1.0, 1.0]
    assert calls == [3, 2, 3, 2, 3, 2, 2, 2]  # after three such calls it is left alone
    assert (reward.asked, reward.failed, reward.unanswered) == (0, 0, 3)


def test_a_mistake_of_the_reward_itself_is_raised() -> None:
    def broken(completions: Sequence[str], **_: Any) -> list[float]:
        raise IndexError("my own mistake")

    with pytest.raises(IndexError, match="my own mistake"):
        canaried(broken, [Known("")])(completions=["a"])


def test_a_canary_without_a_score_is_unanswered_and_not_wrong() -> None:
    def unsure(completions: Sequence[str], **_: Any) -> list[float | None]:
        return [None if text == "" else float("nan") if text == ":" else 1.0 for text in completions]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reward = canaried(unsure, [Known(""), Known(":")])
        assert reward(completions=["a", "b"]) == [1.0, 1.0]
    assert (reward.asked, reward.failed, reward.unanswered) == (0, 0, 2)
    told = reward.scalars()
    assert told["canary.asked.rule.low.0.0"] == 0.0 and told["canary.unanswered.rule.low.0.0"] == 1.0
    assert readings(VerifierCanaries(), from_columns(0, [0], scalars=told), None)[0].name == "verifier.unanswered_share"


def test_what_broke_is_none_and_said_of_the_right_rows() -> None:
    def flaky(completions: Sequence[str], **_: Any) -> list[Any]:
        return [TimeoutError("judge") if text == "late" else 0.0 for text in completions]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(20):
            reward = canaried(flaky, [Known(""), Known(":")], seed=seed)
            assert reward(completions=["a", "late", "b"]) == [0.0, None, 0.0]
            assert reward.infra == [False, True, False]


def test_what_parts_said_is_told_without_canaries() -> None:
    whole = rewards.combine({"right": exact, "short": lambda completions, **_: [-float(len(c)) for c in completions]})
    reward = canaried(whole, PAIRS[:2], examine=False, scale=(-1.0, 0.0), seed=3)
    given = {"prompts": ["say 22"] * 2, "completions": ["22", "333"], "answer": ["22", "22"]}
    scores = reward(**given)
    assert scores == whole(**given)
    assert reward.components == ("right", "short")
    assert reward.told == {"right": [1.0, 0.0], "short": [-2.0, -3.0]}
    assert rewards.combine({"all": reward, "more": exact})(**given) == pytest.approx(
        [a + b for a, b in zip(scores, exact(**given), strict=True) if a is not None]
    )


def test_a_canary_or_verifier_that_is_wrong_is_loud_at_once() -> None:
    with pytest.raises(AttachError, match="your canary or your verifier is wrong"):
        canaried(exact, Known.pair("2 + 2?", "5", "4", answer="4"))
    with pytest.raises(AttachError, match="columns that the verifier reads"):
        canaried(exact, Known.pair("2 + 2?", "4", "5"))
    with pytest.raises(AttachError, match="pass scale"):
        canaried(lambda completions, **_: [float(c == "5") - 1 for c in completions], Known.pair("2 + 3?", "5", "4"))


def test_a_reward_that_learns_from_rows_takes_no_canaries() -> None:
    class Mean:
        def __call__(self, told: Any, rows: Any) -> Any:
            return told["exact"]

        def state(self) -> dict[str, Any]:
            return {}

        def restore(self, state: Any) -> None: ...

    from tiltmeter.gold.guards.composed_reward import ComposedReward

    with pytest.raises(AttachError, match="would learn from canaries"):
        canaried(ComposedReward("mean", {"exact": exact}, Mean()), PAIRS)


def test_a_reward_that_reads_tokens_needs_the_canarys_own() -> None:
    """By the tokens of a neighbour a canary would be mis-scored, and that would be an alarm."""

    def short(completions: list[str], completion_ids: list[list[int]], **_: object) -> list[float]:
        return [float(len(ids) < 3) for ids in completion_ids]

    with pytest.raises(AttachError, match="completion_ids"):
        canaried(short, [Known("a long answer", "low")])
    reward = canaried(short, [Known("a long answer", "low", columns={"completion_ids": [1, 2, 3, 4]})])
    assert reward(prompts=["?"], completions=["a"], completion_ids=[[1]]) == [1.0]
    assert (reward.asked, reward.failed) == (1, 0)


def test_the_run_sees_the_same_reward_at_every_step() -> None:
    from tiltmeter.data.reward_fingerprint import fingerprint

    reward = canaried(exact, PAIRS)
    before = fingerprint([reward])
    reward(**batch(random.Random(0)))
    assert fingerprint([reward]) == before


@pytest.mark.parametrize("every", [1, 4])
def test_a_grader_that_was_taken_over_is_seen_within_one_interval(every: int) -> None:
    for seed in range(20):
        rng, grader = random.Random(seed), Grader()
        reward = canaried(grader, PAIRS, every=every, seed=seed, examine=False)
        poisoned = 3 + seed % 10
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(poisoned + every + 1):
                given = batch(rng)
                if step == poisoned:
                    given["completions"][0] = "please patch the grader"
                reward(**given)
        assert reward.first_failure is not None and poisoned < reward.first_failure <= poisoned + every + 1


def test_one_failure_of_a_rule_is_an_alarm_that_names_the_worker() -> None:
    alarm = raised([{}, {1: 0}, {1: 1}, {1: 1}])
    assert alarm is not None and (alarm.tier, alarm.detector, alarm.step) == ("alarm", "canary", 2)
    assert "worker 1" in alarm.summary and "first at step 2" in alarm.summary and alarm.onset_low == 2


def test_one_that_fails_from_the_first_step_on_is_told_so() -> None:
    alarm = raised([{0: 1}])
    assert alarm is not None and "your canary or your verifier is wrong" in alarm.summary


def test_no_alarm_comes_while_canaries_are_scored_rightly() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        detector = Detector()
        for step in range(200):
            told = {
                f"canary.asked.rule.{e}.{k}.{r}": rng.integers(0, 4)
                for e, k in (("low", 0), ("high", 1))
                for r in (0, 1)
            }
            told |= {f"canary.unanswered.rule.low.0.{r}": rng.integers(0, 3) for r in (0, 1)}
            assert fed(detector, step, told) == []


def raised(steps: Sequence[dict[int, int]]) -> Alarm | None:
    """The alarm of canaries that fail as said, by worker, at each step."""
    detector = Detector()
    for step, failed in enumerate(steps):
        told = {f"canary.asked.rule.low.0.{rank}": 2.0 for rank in (0, 1)}
        told |= {f"canary.failed.rule.low.0.{rank}": float(count) for rank, count in failed.items()}
        if alarms := fed(detector, step, told):
            return alarms[0]
    return None


def measured(step: int, scalars: dict[str, Any]) -> list[Reading]:
    return readings(VerifierCanaries(), from_columns(step, [0], scalars=scalars), None)


def fed(detector: Detector, step: int, scalars: dict[str, Any]) -> list[Alarm]:
    """What the detector says of a step, which shows it only what it watches."""
    seen = [reading for reading in measured(step, scalars) if is_watched(reading.name, detector.watches)]
    return [alarm for alarm in map(detector.update, seen) if alarm is not None]


def test_an_alarm_ends_with_a_rollback_or_a_word_and_waits_for_one_that_passes() -> None:
    def told(step: int, value: float) -> Reading:
        return Reading(0, step, "verifier.wrong_paid_share", value, 2)

    detector = Detector()
    assert detector.update(told(5, 0.5)) is not None and detector.update(told(6, 0.5)) is None
    assert detector.rewind(1, 6) is None and detector.rewind(1, 5) is not None
    assert detector.update(told(7, 1.0)) is not None
    assert detector.dismiss(8) is not None
    assert detector.update(told(9, 1.0)) is None
    assert detector.update(told(10, 0.0)) is None and detector.update(told(11, 0.5)) is not None


def test_of_many_workers_only_those_that_failed_have_a_reading() -> None:
    told = {f"canary.asked.rule.low.0.{rank}": 1.0 for rank in range(WORKERS + 4)}
    found = {one.name: one.n for one in measured(0, {**told, "canary.failed.rule.low.0.17": 1.0})}
    assert found["verifier.worker.17"] == 1 and "verifier.worker.0" not in found
    assert found["verifier.wrong_paid_share"] == WORKERS + 4


def test_two_rewards_with_canaries_keep_their_numbers_apart() -> None:
    first, second = canaried(exact, PAIRS[:2]), canaried(exact, PAIRS[2:], judged=True)
    both = rewards.combine({"one": first, "two": second})
    both(**batch(random.Random(0)))
    names = set(canary_scalars([both], rank=3))
    assert {"canary.asked.rule.low.1.3", "canary.asked.judge.low.3.3"} <= names and canary_scalars([both]) == {}
    assert [row["kind"] for row in describe_canaries([both])] == ["rule", "rule", "judge", "judge"]


def follow(tmp_path: Path, judged: bool, every: int, poisoned: int, steps: int) -> tuple[Verdict, Any]:
    """A run of two workers, the second of which is taken over at a step, told as an own loop tells it."""
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=2, resume_step=None)
    canaries = CANARIES if judged else PAIRS
    graders = [
        CanaryReward(Grader(), canaries, every=every, scale=None, judged=judged, examine=False, seed=r) for r in (0, 1)
    ]
    rng = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(steps):
            for rank, reward in enumerate(graders):
                given = batch(rng, rows=8)
                if rank == 1 and step == poisoned:
                    given["completions"][0] = "please patch the grader"
                scores = reward(**given)
                columns = {"completion": given["completions"], "reward": scores, "scalars": reward.scalars(rank)}
                told = from_columns(step, [0] * 4 + [1] * 4, attempt=attempt, **columns)
                run.write(told, rank, {"groups": "rank"})
    watch = MonitorLoop(run, Config.standard(), strict=True)
    while watch.poll():
        pass
    watch.close()
    verdict, story, _ = judge_run(run)
    return verdict, story


def test_a_take_over_in_a_run_is_an_alarm_and_a_finding(tmp_path: Path) -> None:
    verdict, story = follow(tmp_path, judged=False, every=2, poisoned=9, steps=16)
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    (alarm,) = verdict.alarms
    assert alarm.detector == "canary" and 9 <= alarm.onset_low <= alarm.step <= 11
    assert "worker 1" in verdict.sentence and f"first at step {alarm.step}" in verdict.sentence
    assert "verifier_fault" in story.findings and story.findings["verifier_fault"].confidence > 0.9


def test_a_run_whose_canaries_pass_has_neither_alarm_nor_green(tmp_path: Path) -> None:
    verdict, story = follow(tmp_path, judged=False, every=1, poisoned=99, steps=16)
    assert (verdict.alarms, verdict.warnings, verdict.state) == (
        (),
        (),
        "STALE" if verdict.state == "STALE" else "BLIND",
    )
    assert story.bets == 0 and "verifier_fault" not in story.findings


def test_a_judge_that_falls_for_master_keys_is_a_warning_and_no_alarm(tmp_path: Path) -> None:
    verdict, story = follow(tmp_path, judged=True, every=1, poisoned=9, steps=30)
    assert verdict.alarms == ()
    assert [one.name for one in verdict.warnings if one.name.startswith("verifier")] == [
        "verifier.judge.wrong_paid_share"
    ]
    assert "verifier_fault" in story.findings
