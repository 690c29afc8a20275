"""Connections that send no whole request cost their sender, and nobody else."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.view.server.test_stream import Server, serving

from tiltmeter.view.server import connection_limits


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "runs").mkdir()
    with serving(tmp_path / "runs", tmp_path / "state") as found:
        yield found


def half_sent(server: Server, text: bytes = b"GET / HTTP/1.1\r\nHost: ") -> socket.socket:
    address = urlsplit(server.url)
    found = socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10.0)
    found.sendall(text)
    return found


def is_closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def answers(server: Server) -> bool:
    return httpx.get(server.url, timeout=10.0, trust_env=False).status_code == 200


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["nothing", "a half request"])
def test_a_request_that_is_never_finished_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_SECONDS", 0.3)
    with half_sent(server, text) as slow:
        assert is_closed(slow, 5.0)
    assert answers(server)


def test_many_unfinished_requests_make_room_for_a_whole_one(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits.LimitedProtocol, "most_connections", 8)
    with ExitStack() as stack:
        slow = [stack.enter_context(half_sent(server)) for _ in range(24)]
        assert answers(server)
        time.sleep(0.2)
        # The oldest have gone, the newest may still finish.
        closed = [is_closed(one, 0.05) for one in slow]
        assert closed[0] and not closed[-1] and 15 <= sum(closed) <= 18
        slow[-1].sendall(urlsplit(server.url).netloc.encode() + b"\r\nConnection: close\r\n\r\n")
        slow[-1].settimeout(10.0)
        assert slow[-1].recv(16).startswith(b"HTTP/1.1 200")


def test_a_page_that_listens_longer_than_a_request_may_take_is_left_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_SECONDS", 0.2)
    with httpx.Client(base_url=server.url, timeout=10.0, trust_env=False) as client:
        assert client.get("/").status_code == 200
        time.sleep(0.5)
        assert client.get("/").status_code == 200
        with client.stream("GET", "/api/stream", headers=server.headers) as reply:
            time.sleep(0.5)
            assert reply.status_code == 200 and next(reply.iter_raw())


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 4\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\nContent-Length: 4",
        "content-length: 4\ntRANSFER-eNCODING: Chunked",
        "Content-Length: 4\nContent-Length: 4",
        "Content-Length: 4, 4",
        "Content-Length: 4\nContent-Length: 5",
        "Content-Length: +4",
        "Content-Length : 4",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\n chunked\nContent-Length: 4",
        "Transfer-Encoding:\x0bchunked",
        " Transfer-Encoding: chunked",
        "X: a\n Transfer-Encoding: chunked",
    ],
)
def test_a_request_whose_end_can_be_read_in_two_ways_ends_the_connection(server: Server, lines: str) -> None:
    """What follows would be another person's request if a proxy before the server saw the end elsewhere."""
    host = urlsplit(server.url).netloc
    head = f"POST /api/login HTTP/1.1\nHost: {host}\nContent-Type: application/json\n{lines}\n\n".replace("\n", "\r\n")
    inner = f"0\r\n\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n"
    with half_sent(server, (head + inner).encode("latin-1")) as connection:
        reply = all_of(connection)
    assert reply.startswith(b"HTTP/1.1 400 ") and b"connection: close" in reply.lower()
    assert reply.count(b"HTTP/1.1") == 1  # the second was not answered
    assert answers(server)


def test_transfer_encoding_in_http_1_0_is_refused(server: Server) -> None:
    host = urlsplit(server.url).netloc
    lines = ("POST /api/login HTTP/1.0", f"Host: {host}", "Transfer-Encoding: chunked", "", "0", "", "")
    with half_sent(server, "\r\n".join(lines).encode()) as connection:
        assert all_of(connection).startswith(b"HTTP/1.1 400 ")


def test_a_plain_length_and_plain_chunks_are_read(server: Server) -> None:
    host = urlsplit(server.url).netloc
    for lines, body in (
        ("Content-Length: 13", '{"code": "x"}'),
        ("Transfer-Encoding: chunked", 'd\n{"code": "x"}\n0\n\n'),
    ):
        head = f"POST /api/login HTTP/1.1\nHost: {host}\nContent-Type: application/json\nConnection: close\n{lines}\n\n"
        with half_sent(server, (head + body).replace("\n", "\r\n").encode()) as connection:
            assert all_of(connection).startswith(b"HTTP/1.1 401 "), lines  # the code was read, and is none


def all_of(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass  # it closed without reading what it did not want
    return b"".join(parts)
