"""A server with OpenAI's chat API on this machine, whose replies a program decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class ChatReply(NamedTuple):
    """What the model says, or a status that is none of success."""

    content: str
    status: int = 200
    headers: Mapping[str, str] = {}


@contextmanager
def chat_server(reply: Callable[[dict[str, Any]], ChatReply]) -> Iterator[str]:
    """The server's address. `reply` gets the body of a request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            answer = reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            text = json.dumps({"choices": [{"message": {"content": answer.content}}]}).encode()
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


def read_fenced(body: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The data of a question and the system text, read as a model that obeys the marks would: by the first and last
    line. Fails where what is inside could be taken for the end."""
    system, user = (message["content"] for message in body["messages"])
    lines = user.split("\n")
    assert lines[-1] == lines[0] and user.count(lines[0]) == 2 and lines[0] in system, "the fence is open"
    data: dict[str, Any] = json.loads("\n".join(lines[1:-1]))
    return data, system


def as_content(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
