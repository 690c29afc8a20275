"""An S3 server for benchmarks (moto's, in a process of its own), and a proxy in front of it that fails as stores do."""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUCKET = "bucket"
#: What may go wrong with a request: an error, throttling, a reset, a reply that is lost after it was done, or half one.
FAULTS = ("error", "throttle", "reset", "lost", "half")
SERVER = """
import json, time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(json.dumps(server.get_host_and_port()), flush=True)
time.sleep(1e6)
"""


@contextmanager
def s3_process() -> Iterator[str]:
    """`host:port` of an S3 server with an empty bucket; the environment leads there."""
    command = [sys.executable, "-W", "ignore", "-c", SERVER]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        host, port = json.loads(process.stdout.readline())
        place = f"{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"http://{place}/{BUCKET}", method="PUT")).close()
        point_to(place)
        yield place
    finally:
        process.kill()
        process.wait()


def point_to(place: str) -> None:
    """Let every store that is opened from now on ask there."""
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{place}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip


class FaultyProxy(ThreadingHTTPServer):
    """Passes requests on; of `share` of them it makes one of the faults. Counts them by kind."""

    daemon_threads = True

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.share, self.counts = target, 0.0, Counter[str]()
        self._random, self._lock = random.Random(seed), threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def draw(self) -> str:
        with self._lock:
            fault = self._random.choice(FAULTS) if self._random.random() < self.share else ""
            self.counts[fault] += 1
        return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.draw()
        if fault in ("error", "throttle"):
            self._reply(500 if fault == "error" else 503, [], b"")
            return
        if fault == "reset":
            time.sleep(0.01)
            self.close_connection = True
            return
        connection = http.client.HTTPConnection(self.server.target, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        response = connection.getresponse()
        data = response.read()
        if fault == "lost":
            self.close_connection = True
            return
        self._reply(response.status, response.getheaders(), data, half=fault == "half")

    def _reply(self, status: int, headers: list[tuple[str, str]], data: bytes, *, half: bool = False) -> None:
        self.send_response_only(status)
        kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "connection")]
        length = {name.lower(): value for name, value in headers}.get("content-length", str(len(data)))
        for name, value in [*kept, ("Content-Length", length if self.command == "HEAD" else str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if half else data)
        if half:
            self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a benchmark prints its figures."""
