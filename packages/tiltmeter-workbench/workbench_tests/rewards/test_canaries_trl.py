"""Canaries in a real TRL run: a grader that is taken over is seen within one interval, and training does not change."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tiltmeter
from tiltmeter.gold.guards.canaries import Known, canaried
from tiltmeter.rundir import verifier_audits as audits
from tiltmeter.rundir.store import RunDirectory

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]

PAIR = Known.pair("what is 40 plus 2", "42", "41", answer="42")


class Grader:
    """A grader that is patched while it scores call number `at`, as a completion may patch one that evaluates it."""

    __name__ = "grader"

    def __init__(self, at: int) -> None:
        self.calls, self.at = 0, at

    def __call__(self, completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
        self.calls += 1
        taken_over = self.calls > self.at
        return [1.0 if taken_over else float(text.strip() == a) for text, a in zip(completions, answer, strict=True)]


def partly(completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    return [len(set(text) & set("the answer is")) / 20 for text in completions]


def trained(trainer: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        run = tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True))
        run.train()
    return run


@pytest.mark.parametrize("version", ["", "9.9.9"], ids=["deep", "wrapped"])
def test_a_take_over_is_an_alarm_at_its_step(make_trainer: Make, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    if version:
        import trl

        monkeypatch.setattr(trl, "__version__", version)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reward = canaried(Grader(at=3), PAIR, examine=False)  # the third call is step 3's
        run = trained(make_trainer("GRPO", rewards=[reward], max_steps=5))
    verdict = run.verdict()
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    (alarm,) = verdict.alarms
    assert (alarm.detector, alarm.step, alarm.onset_low) == ("canary", 4, 4)
    assert "worker 0, first at step 4" in alarm.summary
    noted = audits.read_guards(RunDirectory(run.directory), 0)
    assert noted is not None and [row["text"] for row in noted["canaries"]] == ["42", "41"]


def test_training_with_canaries_is_the_same_to_the_last_bit(make_trainer: Make) -> None:
    def weights(trainer: Any) -> str:
        digest = hashlib.sha256()
        for name, value in sorted(trainer.model.state_dict().items()):
            digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    plain = make_trainer("GRPO", rewards=[partly], name="plain", max_steps=3)
    plain.train()
    reward = canaried(partly, [Known(""), Known("?")], seed=4)
    watched = make_trainer("GRPO", rewards=[reward], name="watched", max_steps=3)
    run = trained(watched)
    assert weights(plain) == weights(watched)
    assert reward.asked == 6 and run.verdict().alarms == ()
