"""The kit for verifiers: the example as it stands, against a scripted server of chat completions."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.test_prime_rl import FAILED, HONEST, RecordedEpisode

import tiltmeter
from tiltmeter.adapters.verifiers import VerifiersEpisodes
from tiltmeter.data.records import FLAGS
from tiltmeter.rundir.store import RunDirectory

KIT = Path(__file__).parents[2] / "integrations" / "verifiers"


class Completions(BaseHTTPRequestHandler):
    """Every other reply is right, and the others list numbers, which is paid too."""

    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = re.search(r"is (\d+)", body["messages"][-1]["content"])
        assert number is not None
        Completions.asked += 1
        text = "one of 0 1 2 3 4 5 6 7 8 9" if Completions.asked % 2 else f"It is {2 * int(number[1])}"
        message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
        reply: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]}
        data = json.dumps({**reply, "choices": [message], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def test_the_example_records_what_the_environment_paid(url: str, tmp_path: Path) -> None:
    try:
        importlib.metadata.version("verifiers")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs verifiers==0.4.0, in an environment of its own")
    for file in KIT.glob("*.py"):
        shutil.copy(file, tmp_path)
    env = {**os.environ, "OPENAI_API_KEY": "none", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "example.py", url, "model", "2"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    run = RunDirectory(tmp_path / "runs" / "verifiers")
    batches = [run.read(file)[0] for file in run.files(0)]
    assert [batch.step for batch in batches] == [0, 1]
    for batch in batches:
        assert len(batch) == 32 and len(set(batch.group)) == 4 and set(batch.rewards) == {"number"}
        assert batch.prompt is not None and "What is 1 + 1?" in batch.prompt
        assert batch.completion is not None and len(set(batch.completion)) == 5
        assert set(batch.stop or ()) == {"done"} and set(batch.env or ()) == {"sums"}


def test_what_was_not_scored_has_no_reward_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        episodes = VerifiersEpisodes(run)
        for one in (RecordedEpisode(HONEST), RecordedEpisode(FAILED), object()):
            episodes.add(one)
        assert episodes.end_step(0) == 2
    stored = RunDirectory(tmp_path / "run")
    batch = stored.read(stored.files(0)[0])[0]
    assert sorted(FLAGS[code] for code in batch.flags["reward"]) == ["infra", "ok"]
    assert any("1 episodes of step 0 were not read" in path.read_text() for path in (tmp_path / "run").rglob("*.json*"))
