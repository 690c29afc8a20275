"""A reverse proxy is believed over its own socket or with a secret, and never for its address."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from starlette.datastructures import MutableHeaders
from typer.testing import CliRunner

from tiltmeter.cli import app as command_line
from tiltmeter.errors import AttachError
from tiltmeter.view.server.app import App
from tiltmeter.view.server.serve import QuietServer, ServerHandle, config
from tiltmeter.view.server.team.proxy import (
    SECRET_HEADER,
    SECRET_VARIABLE,
    ProxySignIn,
    parse_user,
    peer_name,
    peer_uid,
)
from tiltmeter.view.server.team.start import TeamOptions, open_team_server

HEADER = "X-Forwarded-Email"
URL = "https://lab.example/"
SECRET = "s" * 40
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be")


def options(folder: Path, **other: Any) -> TeamOptions:
    (folder / "runs").mkdir(exist_ok=True)
    usual = {"runs": [folder / "runs"], "addresses": [], "state": folder / "state", "port": 0, "url": URL}
    return TeamOptions(**{**usual, "proxy_header": HEADER, "proxy_roles": ["view"], **other})


@contextlib.contextmanager
def serving(handle: ServerHandle) -> Iterator[ServerHandle]:
    """The server in a thread, with its own protocol and over its own socket."""
    server = QuietServer(config(App(handle.state, {}), handle.certificate, handle.protocol))
    server.state = handle.state
    thread = threading.Thread(target=server.run, kwargs={"sockets": [handle.sock]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield handle
    finally:
        handle.state.stream.close()
        server.should_exit = True
        thread.join(20)
        handle.sock.close()


def ask(connection: socket.socket, **headers: str) -> tuple[int, dict[str, Any]]:
    """Who one is for the server, over this connection; (0, {}) if it was closed."""
    named = {"Host": "lab.example", "Connection": "close", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    reply = b""
    with connection, contextlib.suppress(ConnectionError):
        connection.settimeout(20)
        connection.sendall(f"GET /api/me HTTP/1.1\r\n{lines}\r\n".encode())
        while part := connection.recv(65536):
            reply += part
    if not reply:
        return 0, {}
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


# -- an address is no proof -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.1.2.3", "::1", "localhost", "127.0.0.0/8", "0.0.0.0/0", "::/0", "10.0.0.7", "fd00::/8"],
)
def test_a_proxy_known_by_its_address_is_refused_with_the_line_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """The line is taken from the message and parsed by the real command line, and what it asks for starts."""
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    with pytest.raises(AttachError) as refused:
        open_team_server(options(tmp_path, proxies=[address]))
    text = str(refused.value)
    assert f"--trusted-proxy {address}" in text and (address in ("10.0.0.7", "fd00::/8") or "every user" in text)
    line = shlex.split(text[text.rindex("tiltmeter serve ") :])
    opened: list[TeamOptions] = []

    def instead(given: TeamOptions) -> ServerHandle:
        opened.append(given)
        handle = open_team_server(given)
        handle.sock.close()
        raise AttachError("seen")

    monkeypatch.setattr("tiltmeter.cli.serve.open_team_server", instead)
    CliRunner().invoke(command_line, line[1:])
    [given] = opened
    assert given.proxy_header == HEADER and given.url == URL and given.proxy_roles == ["view"]
    assert given.runs == [tmp_path / "runs"] and given.state == tmp_path / "state"
    assert given.proxy_secret is not None
    assert stat.S_IMODE(given.proxy_secret.stat().st_mode) == 0o600 and len(given.proxy_secret.read_text()) == 64


def test_a_local_user_is_nobody_by_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real connection from this machine: without the secret, with a wrong one, with two."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    handle = open_team_server(options(tmp_path))
    assert SECRET_VARIABLE not in os.environ  # processes that it starts would get it
    with serving(handle):
        for secret, name in (("", ""), ("x" * 40, ""), (f"{SECRET}, {SECRET}", ""), (SECRET[:-1], ""), (SECRET, "eve")):
            connection = socket.create_connection(("127.0.0.1", handle.port))
            sent = {SECRET_HEADER: secret} if secret else {}
            status, me = ask(connection, X_Forwarded_Email="eve", **sent)
            assert (status, me["name"]) == (200, name), secret


def test_the_secret_goes_no_further(tmp_path: Path) -> None:
    scope: dict[str, Any] = {"headers": [(SECRET_HEADER.encode(), SECRET.encode()), (b"x-forwarded-email", b"eve")]}
    headers, proxy = MutableHeaders(scope=scope), ProxySignIn(HEADER, secret=SECRET)
    assert proxy.name_of(headers, "10.0.0.7") == "eve"
    assert SECRET_HEADER not in headers and scope["headers"] == [(b"x-forwarded-email", b"eve")]
    assert SECRET not in repr(proxy)


def test_a_secret_that_others_can_read_or_guess_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("0" * 64)
    path.chmod(0o640)
    with pytest.raises(AttachError, match="chmod 600"):
        open_team_server(options(tmp_path, proxy_secret=path))
    path.chmod(0o600)
    for given, words in ((SECRET, "give one"), ("", "")):
        monkeypatch.setenv(SECRET_VARIABLE, given)
        if not words:
            open_team_server(options(tmp_path, proxy_secret=path)).sock.close()
            continue
        with pytest.raises(AttachError, match=words):
            open_team_server(options(tmp_path, proxy_secret=path))
    for short in ("short", "with a space and thirty-two letters", "é" * 40):
        monkeypatch.setenv(SECRET_VARIABLE, short)
        with pytest.raises(AttachError, match="openssl rand"):
            open_team_server(options(tmp_path))


# -- a socket ---------------------------------------------------------------------------------------------------------


def test_over_the_socket_the_proxys_user_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "serve.sock"
    with serving(open_team_server(options(tmp_path, socket=path, proxy_user=str(os.geteuid())))):
        assert ask(connect(path), X_Forwarded_Email="alice")[1]["name"] == "alice"
        assert ask(connect(path))[1]["name"] == ""
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_over_the_socket_another_user_is_not_answered(tmp_path: Path) -> None:
    path, other = tmp_path / "serve.sock", os.geteuid() + 1
    with serving(open_team_server(options(tmp_path, socket=path, proxy_user=str(other)))):
        for _ in range(3):
            assert ask(connect(path), X_Forwarded_Email="alice") == (0, {})


@root_only
def test_a_real_other_user_is_known_by_the_kernel(tmp_path: Path) -> None:
    """Two processes under two users: one is the proxy's, and the other is closed."""
    place = Path("/tmp") / f"tiltmeter-{os.getpid()}"
    place.mkdir(mode=0o755)
    path = place / "serve.sock"
    code = (
        "import os,socket,sys\nos.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))\n"
        "s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "try:\n s.sendall(b'GET /api/me HTTP/1.1\\r\\nHost: lab.example\\r\\nConnection: close\\r\\n"
        "X-Forwarded-Email: alice\\r\\n\\r\\n')\n print(b''.join(iter(lambda: s.recv(65536), b'')).decode())\n"
        "except ConnectionError: pass\n"
    )
    try:
        with serving(open_team_server(options(tmp_path, socket=path, proxy_user="12345"))):
            for uid, heard in (("12345", True), ("12346", False)):
                words = [sys.executable, "-I", "-c", code, str(path), uid]
                reply = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
                assert ('"name":"alice"' in reply.replace(" ", "")) == heard and bool(reply.strip()) == heard
    finally:
        path.unlink(missing_ok=True)
        place.rmdir()


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_uid(one) == os.geteuid()
    proxy = ProxySignIn(HEADER, uid=33)
    for client, name in (
        (peer_name(33), "eve"),
        (peer_name(34), None),
        ("127.0.0.1", None),
        ("socket", None),
        ("", None),
    ):
        headers = MutableHeaders(raw=[(b"x-forwarded-email", b"eve"), (SECRET_HEADER.encode(), b"")])
        assert proxy.name_of(headers, client) == name, client


def test_a_socket_that_another_user_could_replace_and_a_user_that_is_none_are_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(AttachError, match="chmod go-w"):
        open_team_server(options(tmp_path, socket=open_to_all / "s", proxy_user="0"))
    for user in ("no-such-user-here", "65534", "-1", ""):
        with pytest.raises(AttachError):
            parse_user(user)
    with pytest.raises(AttachError, match="leave out"):
        open_team_server(options(tmp_path, socket=tmp_path / "s", proxy_user="0", proxies=["10.0.0.7"]))
