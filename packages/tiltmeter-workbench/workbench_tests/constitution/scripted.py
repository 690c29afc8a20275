"""A real server whose every answer is written down, and that counts what it is asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PRINCIPLES = """[[principles]]
name = "short"
critique = "Say what could go."
revise = "Say it shorter."
compare = "Which is shorter?"
"""
Body = dict[str, Any]


def judging(body: Body) -> dict[str, str] | None:
    """The data of a comparison; None for anything else that is asked."""
    if body["messages"][0]["role"] != "system":
        return None
    first, data, last = body["messages"][1]["content"].split("\n")
    assert first == last
    assert first in body["messages"][0]["content"]
    found: dict[str, str] = json.loads(data)
    assert sorted(found) == ["A", "B", "task"]
    return found


def verdict(better: str) -> str:
    return json.dumps({"better": better})


def shorter(data: dict[str, str]) -> str:
    """An honest judge of "Which is shorter?"."""
    lengths = len(data["A"]), len(data["B"])
    return verdict("tie" if lengths[0] == lengths[1] else "A" if lengths[0] < lengths[1] else "B")


def always_first(data: dict[str, str]) -> str:
    return verdict("A")


def writer(body: Body) -> str:
    """What is said depends on what is asked and on nothing else: length by the seed, so that samples differ."""
    messages = body["messages"]
    if messages[-1]["content"] == "Say what could go.":
        return f"critique of [{messages[-2]['content']}]"
    if messages[-1]["content"] == "Say it shorter.":
        return f"shorter [{messages[-4]['content']}]"
    return f"{messages[-1]['content']}: {'x' * (body['seed'] % 97)}"


@dataclass
class Scripted:
    """What is served, and what was asked. `status` may refuse a request; `gate` holds back those it names."""

    says: Callable[[Body], str] = writer
    judges: Callable[[dict[str, str]], str] = shorter
    status: Callable[[Body, int], int] = lambda body, before: 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    finish: str = "stop"
    gate: threading.Event | None = None
    open_for: int = 0  # requests that pass the gate
    asked: list[Body] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    keys: set[str | None] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""
    connections: list[tuple[str, int]] = field(default_factory=list)
    closed: int = 0

    def reached(self) -> None:
        """Wait until everything sent so far is in `asked`: a killed client's last requests may still be unread."""
        host, port = self.url.split("/")[2].split(":")
        with socket.create_connection((host, int(port))) as last:
            own = last.getsockname()  # accepted in order, hence after all that came before
        deadline = time.monotonic() + 60.0
        while own not in self.connections or self.waiting + self.closed < len(self.connections):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def waiting(self) -> int:
        return len(self.asked) - sum(self.answered.values())

    def reply(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        name = json.dumps(body, sort_keys=True)
        with self.lock:
            before = sum(json.dumps(other, sort_keys=True) == name for other in self.asked)
            self.asked.append(body)
            self.keys.add(request.headers.get("Authorization"))
            held = self.gate is not None and len(self.asked) > self.open_for
        if held and self.gate is not None:
            self.gate.wait(60.0)
        status = self.status(body, before)
        data = judging(body)
        content = self.says(body) if data is None else self.judges(data)
        told = {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": self.finish}]}
        sent = b"no" if status != 200 else self.raw if self.raw is not None else json.dumps(told).encode()
        request.send_response(status)
        for header, value in {**self.headers, "Content-Length": str(len(sent))}.items():
            request.send_header(header, value)
        request.end_headers()
        request.wfile.write(sent)
        request.wfile.flush()
        if status == 200:
            with self.lock:
                self.answered[name] += 1

    def file(self, path: Path, model: str, more: str = "retries = 2\ntimeout = 20\n") -> Path:
        path.write_text(f'url = "{self.url}"\nmodel = "{model}"\n{more}')
        return path


@contextmanager
def serving(server: Scripted) -> Iterator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                server.reply(self)
            except OSError:
                server.headers.setdefault("Hung-Up", "yes")  # the client is gone, as after a kill

        def log_message(self, *arguments: Any) -> None:
            pass

    class Counting(ThreadingHTTPServer):
        daemon_threads = True

        def process_request(self, request: Any, client_address: Any) -> None:
            server.connections.append(client_address)  # one request each: no connection is kept
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            server.closed += 1

    http = Counting(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        if server.gate is not None:
            server.gate.set()
        http.shutdown()
        thread.join()
        http.server_close()
