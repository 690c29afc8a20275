"""Starts the server: socket, one-time addresses, and the uvicorn configuration."""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from tiltmeter.errors import AttachError, TiltmeterError
from tiltmeter.view.screens.phrases import preload_kernels
from tiltmeter.view.server.access import AccessTokens, Person, TrustedHosts, bind_refusal
from tiltmeter.view.server.app import App
from tiltmeter.view.server.connection_limits import LimitedProtocol
from tiltmeter.view.server.run_list import RunList
from tiltmeter.view.server.state import ServerState
from tiltmeter.view.server.supervisor import supervise

SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class ServerOptions:
    """Options of `tiltmeter view`."""

    runs: Sequence[Path]
    host: str = "127.0.0.1"
    port: int = 8787
    socket: Path | None = None
    trusted: Sequence[str] = ()
    auth: bool = False
    control: bool = False
    raters: Sequence[str] = ()


@dataclass
class ServerHandle:
    """A listening server and the addresses to print."""

    state: ServerState
    sock: socket.socket
    port: int
    address: str
    tokens: AccessTokens | None  # None: there are accounts, and no codes to print
    certificate: tuple[Path, Path] | None = None  # with its key: speaks TLS
    protocol: type[LimitedProtocol] = LimitedProtocol
    begin: Callable[[], None] = lambda: None  # called in the process that serves, once it does
    url: str = field(init=False)  # with a one-time code
    raters: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.issue_codes()

    def issue_codes(self) -> None:
        """New one-time codes in place of those that were issued before."""
        keys = self.tokens
        if keys is None:
            self.url, self.raters = self.address, {}
            return
        keys.forget_codes()
        self.url = f"{self.address}#code={keys.issue_code(Person({'view'}))}"
        self.raters = {name: f"{self.address}#code={keys.issue_code(Person({'label'}, name))}" for name in keys.raters}


class QuietServer(uvicorn.Server):
    """Ends at the first Ctrl-C: open event streams are closed at once."""

    state: ServerState

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.state.stream.close()
        super().handle_exit(sig, frame)


def open_server(options: ServerOptions) -> ServerHandle:
    """Bind the socket and create the addresses. Raises `AttachError` for an address that is not allowed."""
    if options.socket is None and (why := bind_refusal(options.host, auth=options.auth, trusted=options.trusted)):
        raise AttachError(why)
    for path in options.runs:
        if not path.is_dir():
            raise AttachError(f"{path} is no folder: give run directories, or folders that hold some")
    keys = AccessTokens(raters=options.raters, control=options.control)
    sock = bind_unix(options.socket) if options.socket is not None else bind(options.host, options.port)
    port = options.port if options.socket is not None else int(sock.getsockname()[1])
    names = TrustedHosts(port, options.trusted, options.host)
    state = ServerState(RunList(options.runs), keys, names)
    shown_host = options.host if options.socket is None and ":" not in options.host else "127.0.0.1"
    if not _is_specific_address(shown_host):
        shown_host = options.trusted[0].partition(":")[0] if options.trusted else "127.0.0.1"
    return ServerHandle(state, sock, port, f"http://{shown_host}:{port}/", keys)


def bind(host: str, port: int, *, other: bool = True) -> socket.socket:
    """A listening socket. `other`: on a free port if this one is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it every response waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            sock.bind((host.strip("[]"), port))
        except OSError:
            if not other:
                raise
            sock.bind((host.strip("[]"), 0))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise AttachError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return sock


def bind_unix(path: Path, mode: int = 0o600) -> socket.socket:
    """A listening Unix socket, by default one that only this user can connect to."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat(follow_symlinks=False).st_mode) and not _is_listening(path):
            path.unlink()  # left by a server that was killed
        sock.bind(str(path))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise AttachError(f"cannot listen on {path}: {error.strerror or error}; name another --socket") from None
    finally:
        os.umask(before)
    return sock


def _warm_up(state: ServerState) -> None:
    """Open the runs and load kernels, so that the first request does not wait."""
    state.read_ahead()
    preload_kernels()


def serve(handle: ServerHandle, started: Callable[[], None] = lambda: None) -> None:
    """Serve until Ctrl-C, from a process that is replaced when it dies or hangs."""
    logging.getLogger("tiltmeter.view.server").addHandler(logging.StreamHandler(sys.stderr))

    def restarted(why: str) -> None:
        handle.issue_codes()  # those of before may have been used: only the process that is gone knew
        anew = "" if handle.tokens is None else f"; to open it anew, once: {handle.url}"
        sys.stderr.write(f"tiltmeter: the page's process {why}; another one serves now. Open pages go on{anew}\n")

    started()
    try:
        supervise(lambda: _serve_here(handle), handle.state.run_list.marks, restarted)
    except RuntimeError as error:
        raise TiltmeterError(str(error)) from None
    finally:
        handle.sock.close()


def _serve_here(handle: ServerHandle) -> None:
    # A thread that reads a run opens many files and waits for the interpreter after each. With Python's 5 ms, a screen
    # takes a second while the event loop writes to a thousand streams.
    sys.setswitchinterval(SWITCH_SECONDS)
    server = QuietServer(config(App(handle.state), handle.certificate, handle.protocol))
    server.state = handle.state
    handle.begin()
    threading.Thread(target=_warm_up, args=(handle.state,), name="tiltmeter-ready", daemon=True).start()
    server.run(sockets=[handle.sock])


def config(
    app: App, certificate: tuple[Path, Path] | None = None, protocol: type[LimitedProtocol] = LimitedProtocol
) -> uvicorn.Config:
    """No access log, no trusted proxy headers, no WebSocket, no Server header; connections are limited."""
    file, key = certificate or (None, None)
    return uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
        http=protocol,
        ssl_certfile=file,
        ssl_keyfile=key,
    )


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _is_specific_address(host: str) -> bool:
    """Whether a browser can connect to it: not a wildcard address."""
    return host not in ("0.0.0.0", "::", "")
