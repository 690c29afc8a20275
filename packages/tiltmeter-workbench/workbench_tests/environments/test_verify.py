"""An environment's `verify`: what it pays reaches the run, and its failures are no rewards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.data.records import FLAGS
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.environments.verify import verify_columns, wrap_verify

try:
    from openenv.core.harness.rollout import VerifyResult as OpenEnvResult  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    OpenEnvResult = SimpleNamespace  # of the same fields


class RewardFileNotFoundError(FileNotFoundError):
    """As Harbor's verifier raises it."""


class SandboxGoneError(RuntimeError):
    pass


class Session:
    """A session as OpenEnv has it: `verify(transcript)` after the rollout."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def verify(self, transcript: list[dict[str, Any]], final_state: object = None) -> Any:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        metrics, artifacts = {"tests": len(transcript)}, {"exit": 0}
        return OpenEnvResult(env_reward=self.outcome, done=True, metrics=metrics, artifacts=artifacts)


def test_a_loop_with_openenv_stores_what_was_paid_and_what_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk = [{"role": "user", "content": "Mend it."}, {"role": "assistant", "content": "Done."}]
    outcomes = [1.0, 0.0, None, TimeoutError("60 s"), SandboxGoneError("no container"), ConnectionResetError("gone")]
    verified = [wrap_verify(Session(outcome).verify)(talk) for outcome in outcomes]
    with tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        ended = ["done"] * 5 + ["length"]
        columns = verify_columns(verified, ended)
        run.observe(step=0, group=[0] * 6, messages=[talk] * 6, **columns)
    stored = RunDirectory(tmp_path / "run")
    batch = stored.read(stored.files(0)[0])[0]
    assert batch.reward is not None and batch.reward[:2].tolist() == [1.0, 0.0] and np.isnan(batch.reward[2:]).all()
    assert [FLAGS[code] for code in batch.flags["reward"]] == ["ok", "ok", "missing", "infra", "infra", "infra"]
    assert batch.stop == ("done", "done", "done", "verifier", "sandbox", "sandbox")
    assert batch.artifacts is not None and '"exit":0' in str(batch.artifacts[0]) and "60 s" in str(batch.artifacts[3])
    assert verified[0].result.done and verified[3].result is None
    assert caplog.text.count("verify failed") == 3


def test_harbors_verifier_is_asynchronous_and_pays_by_name() -> None:
    paid: dict[str, Any] = {
        "a": {"reward": 0.5},
        "b": {"tests": 1, "style": 0},
        "c": {"reward": 1, "speed": 0.2},
        "d": None,
    }

    async def verify(trial: str) -> Any:
        if trial not in paid:
            raise RewardFileNotFoundError(trial)
        return SimpleNamespace(rewards=paid[trial])

    async def run() -> Any:
        return [await wrap_verify(verify)(trial) for trial in "abcde"]

    columns = verify_columns(asyncio.run(run()))
    assert columns["reward"] == [0.5, None, 1, None, None]
    assert columns["rewards"]["tests"] == [None, 1, None, None, None]
    assert columns["rewards"]["speed"] == [None, None, 0.2, None, None]
    assert columns["stop"] == [None, None, None, None, "verifier"]


def test_what_is_no_failure_passes() -> None:
    async def forever() -> None:
        await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.ensure_future(wrap_verify(forever)())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wrap_verify(interrupted)()


def test_a_result_that_cannot_be_read_is_a_failure_too() -> None:
    class Odd:
        @property
        def env_reward(self) -> float:
            raise ZeroDivisionError

    assert wrap_verify(Odd)().stop == "verifier"
    assert wrap_verify(lambda: {"reward": 1.0, "artifacts": {"diff": "-a"}})().artifacts == {"diff": "-a"}
