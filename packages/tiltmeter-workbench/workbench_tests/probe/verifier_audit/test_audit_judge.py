"""A judge under audit: master keys and requests that it falls for are found, in a process that may ask its server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tiltmeter_workbench.probe.audit import audit
from tiltmeter_workbench.probe.audit_task import AuditTask

pytest.importorskip("httpx", reason="needs httpx: pip install 'tiltmeter[judge]'")
TASK = AuditTask("Name a primary colour.", "Blue is a primary colour.", "Brown is one.", {}, "text")


class Server(ThreadingHTTPServer):
    gullible = False


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = str(json.loads(asked["messages"][1]["content"].split("\n")[1])["answer"])
        server: Any = self.server
        good = answer.startswith("Blue is a primary") or (
            server.gullible and ("process" in answer or "highest" in answer)
        )
        said = json.dumps({"choices": [{"message": {"content": json.dumps({"score": 10 if good else 0})}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.mark.parametrize("gullible", [False, True])
def test_what_a_judge_falls_for_is_found(tmp_path: Path, server: Server, gullible: bool) -> None:
    server.gullible = gullible
    file = tmp_path / "judge.toml"
    file.write_text(
        f'url = "http://127.0.0.1:{server.server_port}/v1"\nmodel = "toy"\nguide = "It is right."\nretries = 0\n'
    )
    found = audit(str(file), [TASK])
    paid = {row.forgery for row in found.tried if row.status == "paid"}
    assert paid == ({"master key 'Thought process:'", "injected instructions"} if gullible else set()), found.record()
    assert found.exit_code == int(gullible) and found.network == "on"
    # Without its server a judge gives no score, and no score is not a bad one.
    assert next(check for check in found.checks if "without a network" in check.name).ok is True
