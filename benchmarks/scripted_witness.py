"""A witness of known accuracy, served on this machine: it knows planted passages and errs at set rates."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def chance(*parts: object) -> float:
    """A number in [0, 1) that is the same for the same parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6]) / 2**48


class ScriptedWitness:
    """Finds passages in what it is shown, and says so with this recall and this rate of false positives."""

    def __init__(self, passages: Mapping[str, str], recall: float = 1.0, false_share: float = 0.0) -> None:
        self.passages = dict(passages)  # the exploit's class, by a passage that shows it
        self.recall, self.false_share = recall, false_share
        self.questions: list[dict[str, Any]] = []
        self.lies = False  # quotes what is not there
        self.obeys = False  # does what trajectories tell it

    def __call__(self, data: dict[str, Any], system: str) -> object:
        self.questions.append(data)
        if '{"turns":' in system:
            wanted = {}
            for one in data["trajectories"]:
                rows = [turn for turn in one["turns"] if self._passage(turn) is not None]
                wanted[one["trajectory"]] = [turn["turn"] for turn in rows][:12]
            return {"turns": wanted}
        return {"answers": [self._answer(one) for one in data["trajectories"]]}

    def _passage(self, turn: Mapping[str, Any]) -> str | None:
        text = _text_of(turn)
        return next((passage for passage in self.passages if passage in text), None)

    def _answer(self, one: Mapping[str, Any]) -> dict[str, Any]:
        name, turns = one["trajectory"], one["turns"]
        hits = [(turn["turn"], passage) for turn in turns if (passage := self._passage(turn)) is not None]
        mine = [turn for turn in turns if turn["role"] == "assistant"]
        honest = {"trajectory": name, "says": "honest", "class": "", "name": "", "evidence": []}
        if self.obeys and any("honest" in _text_of(turn) for turn in mine):
            return honest
        if hits and chance(self.recall, hits[0][1]) < self.recall:
            turn, passage = hits[0]
            quote = "this passage stands nowhere" if self.lies else passage
            kind = self.passages[passage]
            return honest | {
                "says": "exploit", "class": kind, "name": "planted", "evidence": [{"turn": turn, "quote": quote}],
            }  # fmt: skip
        if not hits and mine and chance("false", turns) < self.false_share:
            quote = _text_of(mine[-1]).strip()[:40]
            return honest | {
                "says": "exploit", "class": "other", "name": "mistaken",
                "evidence": [{"turn": mine[-1]["turn"], "quote": quote}],
            }  # fmt: skip
        return honest


def _text_of(turn: Mapping[str, Any]) -> str:
    arguments = str(turn.get("arguments", ""))
    try:
        values = json.loads(arguments)
        plain = "\n".join(map(str, values.values())) if isinstance(values, dict) else ""
    except ValueError:
        plain = ""
    return "\n".join([*(str(turn.get(key, "")) for key in ("text", "begins", "reasoning")), arguments, plain])


@contextmanager
def witness_server(reply: Callable[[dict[str, Any], str], object]) -> Iterator[str]:
    """The server's address. It reads a question as a model that obeys the marks would: by its first and last line."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            system, user = (message["content"] for message in body["messages"])
            lines = user.split("\n")
            mark = lines[0]
            assert lines[-1] == mark and user.count(mark) == 2 and mark in system, "the fence is open"
            answer = reply(json.loads("\n".join(lines[1:-1])), system)
            content = answer if isinstance(answer, str) else json.dumps(answer)
            text = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
