"""A judge's server on this machine, whose replies a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class JudgeReply(NamedTuple):
    """What the model says, or a status that is none of success."""

    says: object
    status: int = 200
    headers: Mapping[str, str] = {}


@contextmanager
def judge_server(reply: Callable[[dict[str, Any], str], JudgeReply]) -> Iterator[str]:
    """The server's address. `reply` gets the data of a question, and the system text."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            system, user = (message["content"] for message in body["messages"])
            answer = reply(json.loads(user.split("\n")[1]), system)
            text = json.dumps({"choices": [{"message": {"content": json.dumps(answer.says)}}]}).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(text)), **answer.headers}.items():
                self.send_header(name, value)
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
