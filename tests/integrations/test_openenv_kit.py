"""The kit for OpenEnv: the example to its verdict, and OpenEnv's own server with both of its clients."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sizes import size

import tiltmeter
from tiltmeter.data.records import FLAGS
from tiltmeter.data.turns import decode_turns
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import RunWatcher
from tiltmeter_workbench.environments.openenv import OpenEnvEpisodes

KIT = Path(__file__).parents[2] / "integrations" / "openenv"
NEEDS = "needs OpenEnv, in an environment of its own: pip install openenv==0.10.0"


@pytest.fixture(scope="module")
def kit() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importlib.import_module("openenv.core")
        except ImportError as error:
            pytest.skip(f"{NEEDS} ({error})")
        spec = importlib.util.spec_from_file_location("openenv_example", KIT / "example.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # OpenEnv, websockets and Gradio warn about themselves
        yield


class Failing:
    """An environment as OpenEnv has it, whose container goes away."""

    def reset(self, seed: int | None = None, task: str = "") -> dict[str, Any]:
        return {"text": f"Task {task}", "done": False}

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        if action["text"] == "rm":
            raise ConnectionResetError("container is gone")
        return {"text": "ok", "reward": 0.5, "done": action["text"] == "end"}


def read(run: RunDirectory) -> Any:
    return run.read(run.files(0)[0])[0]


def test_an_environment_that_fails_pays_nothing_and_its_error_passes(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        episodes = OpenEnvEpisodes(run)
        env = episodes.watch(Failing(), "shell")
        for task, acts in (("a", ("look", "end")), ("a", ("look", "rm")), ("b", ("look",))):
            env.reset(seed=1, task=task)
            for act in acts:
                if act == "rm":
                    with pytest.raises(ConnectionResetError):
                        env.step({"text": act})
                else:
                    env.step({"text": act})
        env.reset(task="never played")
        assert episodes.end_step(0, {"kl_ref": 0.1}) == 3 and episodes.end_step(1) == 0
    batch = read(RunDirectory(tmp_path / "run"))
    assert np.array_equal(batch.reward, [1.0, np.nan, 0.5], equal_nan=True) and len(set(batch.group)) == 2
    assert [FLAGS[code] for code in batch.flags["reward"]] == ["ok", "infra", "ok"]
    assert batch.stop[:2] == ("done", "sandbox") and batch.scalars == {"kl_ref": 0.1} and set(batch.env) == {"shell"}
    turns = decode_turns(batch.turns[0])
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [turn.reward for turn in turns] == [None, None, 0.5, None, 0.5] and "gone" in str(batch.artifacts[1])


def test_what_cannot_be_recorded_does_not_reach_the_loop(tmp_path: Path) -> None:
    class Odd:
        @property
        def reward(self) -> float:
            raise ZeroDivisionError

    class Env:
        def reset(self) -> dict[str, Any]:
            return {"text": "go"}

        def step(self, action: str) -> Odd:
            return Odd()

    with tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        episodes = OpenEnvEpisodes(run)
        env = episodes.watch(Env())
        env.reset()
        assert isinstance(env.step("x"), Odd) and episodes.end_step(0) == 1
    assert np.isnan(read(RunDirectory(tmp_path / "run")).reward).all()


def test_the_example_is_alarmed_about(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kit.main(size(60, 120))
    watcher = RunWatcher(RunDirectory("runs/openenv"))
    deadline = time.monotonic() + 240  # its monitor is still at it
    verdict = watcher.update()
    while 0 not in watcher.run_facts.ended and time.monotonic() < deadline:
        time.sleep(1)
        verdict = watcher.update()
    assert verdict.state in ("ACT", "HOLLOW", "WATCH"), verdict
    assert watcher.run_facts.labels == size(60, 120) * 32


def test_openenvs_own_server_and_both_clients(kit: Any, tmp_path: Path) -> None:
    core, uvicorn = importlib.import_module("openenv.core"), importlib.import_module("uvicorn")
    app = core.create_fastapi_app(kit.Sums, kit.Answer, kit.Question)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.05)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    run = tiltmeter.open_run(tmp_path / "run", monitor=False)
    episodes = OpenEnvEpisodes(run)
    with episodes.watch(core.GenericEnvClient(base_url=url).sync(), "sums") as env:
        for text in ("It is 6", "It is 7"):
            env.reset(task=3)
            env.step({"text": "hm"})
            assert env.step({"text": text}).done

    async def play() -> None:
        async with episodes.watch(core.GenericEnvClient(base_url=url), "sums") as env:
            await env.reset(task=3)
            await env.step({"text": "hm"})
            server.should_exit = True
            await asyncio.to_thread(thread.join, 30)
            with pytest.raises(Exception):  # noqa: B017  # the socket's, whose kind is OpenEnv's business
                await env.step({"text": "It is 6"})

    asyncio.run(play())
    assert episodes.end_step(0) == 3
    run.close()
    batch = read(RunDirectory(tmp_path / "run"))
    assert batch.reward[:2].tolist() == [1.0, 0.0] and np.isnan(batch.reward[2]) and len(set(batch.group)) == 1
    assert FLAGS[batch.flags["reward"][2]] == "infra"
    assert batch.completion[0] == "hm\nIt is 6"
