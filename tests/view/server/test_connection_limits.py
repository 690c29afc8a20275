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
