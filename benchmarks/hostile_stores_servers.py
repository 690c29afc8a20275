"""Servers for `hostile_stores.py`: moto, SeaweedFS and rclone, a proxy that misbehaves, and a plain S3 client.

python benchmarks/hostile_stores_servers.py HOST:PORT     the proxy, in front of that server
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape, unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

#: What stores are asked with: the two that are secret must turn up nowhere.
KEY_ID, SECRET_KEY, SESSION = "hostile-key-id", "canary-aws-secret-5b1f", "canary-aws-session-77c2"
#: moto gives an object to those who sign, and looks at no signature.
SIGNED = f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
MEGABYTE = 1 << 20
FOLDER_OF_ALL = "runs"


# -- servers ---------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def process(command: Sequence[str], port: int, folder: Path) -> Iterator[str]:
    """`host:port` of a server that this command starts; it is ended, and waited for, at the end."""
    with (folder / f"server-{port}.log").open("wb") as log:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    try:
        wait_for_port(port, started)
        yield f"127.0.0.1:{port}"
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for_port(port: int, started: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and started.poll() is None:
        try:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            client.request("GET", "/")
            client.getresponse().read()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{started.args!r} does not answer")


def moto(folder: Path) -> Any:
    port = free_port()
    program = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"
    return process([sys.executable, "-W", "ignore", "-c", program, str(port)], port, folder)


def weed(folder: Path, program: str) -> Any:
    """SeaweedFS: master, volume, filer and S3 in one process."""
    port, others = free_port(), [free_port() for _ in range(6)]
    names = ("master.port", "volume.port", "filer.port", "master.port.grpc", "volume.port.grpc", "filer.port.grpc")
    data = folder / "weed"
    data.mkdir()
    ports = [f"-{name}={number}" for name, number in zip(names, others, strict=True)]
    words = [
        program, "server", f"-dir={data}", "-ip=127.0.0.1", "-s3", f"-s3.port={port}", f"-s3.port.grpc={free_port()}",
        "-s3.port.iceberg=0", "-master.volumeSizeLimitMB=1024", "-volume.max=20", *ports,
    ]  # fmt: skip
    return process(words, port, folder)


def rclone(folder: Path, program: str) -> Any:
    port = free_port()
    data = folder / "rclone"
    data.mkdir()
    return process([program, "serve", "s3", "--addr", f"127.0.0.1:{port}", str(data)], port, folder)


def proxy(target: str, folder: Path) -> Any:
    port = free_port()
    return process([sys.executable, str(Path(__file__)), target, str(port)], port, folder)


# -- a client that sends what it is told -----------------------------------------------------------------------------


class Bucket:
    """One bucket of an S3 server, without a library that would tidy names up."""

    def __init__(self, place: str, name: str, *, signed: bool) -> None:
        self.place, self.name, self.signed = place, name, signed

    def ask(self, method: str, path: str, body: bytes | Iterator[bytes] = b"", length: int | None = None) -> bytes:
        client = http.client.HTTPConnection(self.place, timeout=60)
        try:
            headers = {"Authorization": SIGNED} if self.signed else {}
            headers |= {} if length is None else {"Content-Length": str(length)}
            client.request(method, path, body, headers)
            answer = client.getresponse()
            data = answer.read()
        finally:
            client.close()
        if answer.status >= 300:
            raise OSError(f"{method} {path[:80]}: {answer.status} {data[:200]!r}")
        return data

    def make(self) -> None:
        self.ask("PUT", f"/{self.name}")

    def path(self, key: str) -> str:
        return f"/{self.name}/{urllib.parse.quote(key, safe='/')}"

    def put(self, key: str, data: bytes | Iterator[bytes], length: int | None = None) -> None:
        self.ask("PUT", self.path(key), data, length)

    def get(self, key: str) -> bytes:
        return self.ask("GET", self.path(key))

    def delete(self, key: str) -> None:
        self.ask("DELETE", self.path(key))

    def list(self) -> dict[str, tuple[int, str]]:
        """Size and tag by key."""
        found: dict[str, tuple[int, str]] = {}
        token = ""
        while True:
            query = "list-type=2&encoding-type=url"
            query += f"&continuation-token={urllib.parse.quote(token)}" if token else ""
            text = self.ask("GET", f"/{self.name}?{query}").decode()
            for item in re.findall(r"<Contents>(.*?)</Contents>", text, re.S):
                key = urllib.parse.unquote_plus(unescape(re.findall(r"<Key>(.*?)</Key>", item, re.S)[0]))
                size = int(re.findall(r"<Size>(\d+)</Size>", item)[0])
                tag = re.findall(r"<ETag>(.*?)</ETag>", item)
                found[key] = (size, tag[0] if tag else "")
            more = re.findall(r"<NextContinuationToken>(.*?)</NextContinuationToken>", text)
            if not more or more[0] == token:
                return found
            token = unescape(more[0])


def environment(place: str, *, session: bool) -> dict[str, str]:
    setting = {
        "AWS_ENDPOINT_URL": f"http://{place}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }  # fmt: skip
    return {**setting, "AWS_SESSION_TOKEN": SESSION} if session else setting


# -- a proxy that misbehaves -----------------------------------------------------------------------------------------


class Misbehaving(ThreadingHTTPServer):
    """Passes requests on to `target`, but for those that a bucket's faults are about; notes what reached the trap."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target: str, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.target = target
        self.faults: dict[str, list[list[str]]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.trapped: dict[str, list[str]] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is what many of the cases are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Misbehaving
    rfile: IO[bytes]  # type: ignore[assignment]

    def _answer(self) -> None:
        body = self._body()
        parts = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        if bucket == "_control":
            self._control(key, body)
            return
        if bucket == "_trap":
            sent = json.dumps({"headers": dict(self.headers.items()), "body": body[:4096].decode("latin-1")})
            self.server.trapped.setdefault(key.split("/")[0], []).append(f"{self.command} {self.path} {sent}")
            self._reply(404, [], b"")
            return
        listed = self.command == "GET" and ("list-type" in parts.query or not key)
        kind = "LIST" if listed else self.command
        for method, contains, what, argument in self.server.faults.get(bucket, []):
            if method in ("", kind) and contains in (key if not listed else ""):
                if self._misbehave(what, argument, body, bucket, key):
                    return
                break
        self._reply(*self._pass_on(body))

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _control(self, bucket: str, body: bytes) -> None:
        if self.command == "PUT":
            self.server.faults[bucket] = json.loads(body)
            self.server.trapped.pop(bucket, None)
            self.server.counts = {name: n for name, n in self.server.counts.items() if name[0] != bucket}
            self._reply(200, [], b"")
        else:
            self._reply(200, [], json.dumps(self.server.trapped.get(bucket, [])).encode())

    def _pass_on(self, body: bytes, *, without: Sequence[str] = ()) -> tuple[int, list[tuple[str, str]], bytes]:
        client = http.client.HTTPConnection(self.server.target, timeout=60)
        dropped = {"transfer-encoding", *without}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        headers["Content-Length"] = str(len(body))
        client.request(self.command, self.path, body, headers)
        answer = client.getresponse()
        data = answer.read()
        client.close()
        return answer.status, answer.getheaders(), data

    def _reply(self, status: int, headers: Sequence[tuple[str, str]], data: bytes, *, send: int | None = None) -> None:
        """An answer with this content; with `send` only so many bytes of it are sent."""
        self.send_response_only(status)
        own = ("content-length", "connection", "transfer-encoding")
        length = {name.lower(): value for name, value in headers}.get("content-length", "0")
        for name, value in headers:
            if name.lower() not in own:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if send is None else data[:send])
        if send is not None:
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a benchmark prints its figures."""

    # Each of these gives True if it has answered.

    def _misbehave(self, what: str, argument: str, body: bytes, bucket: str, key: str) -> bool:
        if what in _LISTS:
            return self._change_list(what, argument, body, key)
        action: Callable[[str, bytes, str], bool] = getattr(self, "_" + what.replace(" ", "_"))
        return action(argument, body, bucket)

    def _hang(self, seconds: float = 300.0) -> bool:
        until = time.monotonic() + seconds
        self.connection.settimeout(0.5)
        while time.monotonic() < until:
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.close_connection = True
        return True

    def _status(self, argument: str, body: bytes, bucket: str) -> bool:
        self._reply(int(argument), [], b"<Error><Code>Planted</Code><Message>\x1b]0;owned\x07</Message></Error>")
        return True

    def _first(self, argument: str, body: bytes, bucket: str) -> bool:
        self.server.counts[bucket, self.path] = seen = self.server.counts.get((bucket, self.path), 0) + 1
        return self._status(argument, body, bucket) if seen == 1 else False

    def _redirect(self, argument: str, body: bytes, bucket: str) -> bool:
        target = f"http://{self.headers['Host']}{self.path}" if argument == "self" else argument
        self._reply(307, [("Location", target)], b"")
        return True

    def _reset(self, argument: str, body: bytes, bucket: str) -> bool:
        self.close_connection = True
        return True

    def _silent(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._hang()

    def _stall(self, argument: str, body: bytes, bucket: str) -> bool:
        status, headers, data = self._pass_on(body)
        self._reply(status, headers, data, send=len(data) // 2)
        return self._hang()

    def _half(self, argument: str, body: bytes, bucket: str) -> bool:
        status, headers, data = self._pass_on(body)
        self._reply(status, headers, data, send=len(data) // 2)
        self.close_connection = True
        return True

    def _drip(self, argument: str, body: bytes, bucket: str) -> bool:
        status, headers, data = self._pass_on(body)
        self._reply(status, headers, data + b" " * 100_000, send=0)
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.5)
        return self._hang()

    def _endless(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._stream(None, 200)

    def _large(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._stream(int(argument), 200)

    def _large_error(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._stream(int(argument), 400)

    def _stream(self, megabytes: int | None, status: int) -> bool:
        if self.command == "HEAD":
            return False
        self.send_response_only(status)
        for name, value in self._facts():
            self.send_header(name, value)
        chunked = megabytes is None
        if megabytes is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(megabytes * MEGABYTE))
        self.end_headers()
        piece = b"\0" * MEGABYTE
        sent = 0
        while megabytes is None or sent < megabytes:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            sent += 1
        return True

    def _facts(self) -> list[tuple[str, str]]:
        """Headers that a client wants, as the real server has them."""
        client = http.client.HTTPConnection(self.server.target, timeout=60)
        client.request("HEAD", self.path)
        headers = client.getresponse().getheaders()
        client.close()
        return [(name, value) for name, value in headers if name.lower() in ("etag", "last-modified")]

    def _length(self, argument: str, body: bytes, bucket: str) -> bool:
        status, headers, data = self._pass_on(body)
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() in ("etag", "last-modified"):
                self.send_header(name, value)
        self.send_header("Content-Length", argument)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True
        return True

    def _compressed(self, argument: str, body: bytes, bucket: str) -> bool:
        data = gzip.compress(b"\0" * (int(argument) * MEGABYTE), 1)
        self._reply(200, [*self._facts(), ("Content-Encoding", "gzip")], data)
        return True

    def _tags(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._with_tag(body, lambda: f'"{time.monotonic_ns():x}"')

    def _odd_tags(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._with_tag(body, lambda: '"\x01\xff ../../escaped; touch RAN"')

    def _no_tags(self, argument: str, body: bytes, bucket: str) -> bool:
        return self._with_tag(body, None)

    def _with_tag(self, body: bytes, tag: Callable[[], str] | None) -> bool:
        status, headers, data = self._pass_on(body)
        kept = [(name, value) for name, value in headers if name.lower() != "etag"]
        self._reply(status, kept if tag is None else [*kept, ("ETag", tag())], data)
        return True

    def _headers(self, argument: str, body: bytes, bucket: str) -> bool:
        status, headers, data = self._pass_on(body)
        self._reply(status, [*headers, ("X-Amz-Meta-A", "a" * int(argument))], data)
        return True

    def _lost(self, argument: str, body: bytes, bucket: str) -> bool:
        self._reply(200, [("ETag", '"0"')], b"")
        return True

    def _reply_lost(self, argument: str, body: bytes, bucket: str) -> bool:
        self._pass_on(body)
        self.close_connection = True
        return True

    def _no_conditions(self, argument: str, body: bytes, bucket: str) -> bool:
        self._reply(*self._pass_on(body, without=("if-match", "if-none-match")))
        return True

    def _garbage(self, argument: str, body: bytes, bucket: str) -> bool:
        self.wfile.write(b"\x00\xff220 hello\r\n\r\n" * 100)
        self.close_connection = True
        return True

    def _body_of(self, text: bytes) -> bool:
        self._reply(200, [("Content-Type", "application/xml")], text)
        return True

    def _change_list(self, what: str, argument: str, body: bytes, key: str) -> bool:
        status, headers, data = self._pass_on(body)
        if status != 200:
            self._reply(status, headers, data)
            return True
        text = data.decode()
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if what == "body":
            return self._body_of(argument.encode() * 1000)
        if what == "sizes":
            text = re.sub(r"<Size>\d+</Size>", f"<Size>{argument}</Size>", text)
        elif what == "times":
            text = re.sub(r"<LastModified>[^<]*<", f"<LastModified>{argument}<", text)
        elif what == "entities":
            grow = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
            text = _after_head(text, f'<!DOCTYPE x [<!ENTITY e0 "aaaaaaaaaa">{grow}]>').replace("<Key>", "<Key>&e9;")
        elif what == "outer entity":
            outer = f'<!DOCTYPE x [<!ENTITY f SYSTEM "file://{argument}">]>'
            text = _after_head(text, outer).replace("<Key>", "<Key>&f;")
        elif what == "endless list":  # the same page again and again
            text = re.sub(r"<IsTruncated>[^<]*</IsTruncated>", "", text)
            text = _before_end(text, "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>")
        else:
            text = _listing(what, argument, text, query)
        return self._body_of(text.encode())


_LISTS = (
    "endless list", "endless names", "names", "inbox names", "run names", "other names", "sizes", "times", "body",
    "entities", "outer entity",
)  # fmt: skip


def _after_head(text: str, more: str) -> str:
    return re.sub(r"(<\?xml[^>]*>)?", lambda match: match.group(0) + more, text, count=1)


def _before_end(text: str, more: str) -> str:
    return text.replace("</ListBucketResult>", more + "</ListBucketResult>")


def _listing(what: str, argument: str, text: str, query: dict[str, list[str]]) -> str:
    """The real list, and then pages of a thousand names that nobody stored."""
    prefix = query.get("prefix", [""])[0]
    address = f"{FOLDER_OF_ALL}/run/"
    if what == "other names":
        names = [
            f"{address}{'../' * 12}escaped",
            f"{address}/tmp/escaped",
            "/etc/passwd",
            "other/run/head.json",
            "",
            "\t",
        ]
        return _before_end(text, "".join(map(_item, names)))
    if what == "run names" and "delimiter" in query:
        start = int(query.get("continuation-token", ["0"])[0])
        names = [f"{prefix}r{number:06}/" for number in range(start, start + 1000)]
        more = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in names)
    else:
        start = int(query.get("continuation-token", ["0"])[0])
        folder = {"inbox names": "inbox/notes/run/", "run names": "../r"}.get(what, "notes/run/")
        names = [f"{address}{folder}{1700000000000 + n:013}-{n:08x}.json" for n in range(start, start + 1000)]
        more = "".join(_item(name) for name in names if name.startswith(prefix))
    kept = text if start == 0 else re.sub(r"<(Contents|CommonPrefixes)>.*?</\1>", "", text, flags=re.S)
    last = what != "endless names" and start + 1000 >= int(argument or 0)
    kept = re.sub(r"<IsTruncated>[^<]*</IsTruncated>|<NextContinuationToken>.*?</NextContinuationToken>", "", kept)
    end = "<IsTruncated>false</IsTruncated>" if last else (
        f"<IsTruncated>true</IsTruncated><NextContinuationToken>{start + 1000}</NextContinuationToken>"
    )  # fmt: skip
    return _before_end(kept, more + end)


def _item(name: str) -> str:
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"0"</ETag><Size>2</Size><StorageClass>STANDARD</StorageClass></Contents>'
    )


if __name__ == "__main__":
    os.environ["no_proxy"] = "*"
    misbehaving = Misbehaving(sys.argv[1], int(sys.argv[2]))
    threading.Thread(target=misbehaving.serve_forever, daemon=True).start()
    while os.getppid() != 1:
        time.sleep(1)
