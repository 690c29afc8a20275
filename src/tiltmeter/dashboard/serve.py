"""Listening: the socket, the one-time addresses, and a server that ends quietly."""

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

from tiltmeter.dashboard.access import Keys, Names, Person, refused_bind
from tiltmeter.dashboard.app import App
from tiltmeter.dashboard.shelf import Shelf
from tiltmeter.dashboard.site import Site
from tiltmeter.errors import AttachError
from tiltmeter.page.phrases import warm


@dataclass(frozen=True)
class Wish:
    """How somebody wants to look at runs."""

    runs: Sequence[Path]
    host: str = "127.0.0.1"
    port: int = 8787
    socket: Path | None = None
    trusted: Sequence[str] = ()
    auth: bool = False
    control: bool = False
    raters: Sequence[str] = ()


@dataclass
class Open:
    """A server that listens: what to tell whoever started it."""

    site: Site
    sock: socket.socket
    port: int
    url: str  # with a one-time code
    raters: dict[str, str] = field(default_factory=dict)


class Quiet(uvicorn.Server):
    """Ends at the first Ctrl-C: pages that listen are let go at once and not waited for."""

    site: Site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.site.stream.close()
        super().handle_exit(sig, frame)


def prepare(wish: Wish) -> Open:
    """Bind, and make the addresses. Raises `AttachError` for an address that must not be listened on."""
    if wish.socket is None and (why := refused_bind(wish.host, auth=wish.auth, trusted=wish.trusted)):
        raise AttachError(why)
    for path in wish.runs:
        if not path.is_dir():
            raise AttachError(f"{path} is no folder: give run directories, or folders that hold some")
    keys = Keys(raters=wish.raters)
    sock = bind_unix(wish.socket) if wish.socket is not None else bind(wish.host, wish.port)
    port = wish.port if wish.socket is not None else int(sock.getsockname()[1])
    names = Names(port, wish.trusted, wish.host)
    site = Site(Shelf(wish.runs), keys, names, wish.control)
    shown = wish.host if wish.socket is None and ":" not in wish.host else "127.0.0.1"
    if not _is_name(shown):
        shown = wish.trusted[0].partition(":")[0] if wish.trusted else "127.0.0.1"
    address = f"http://{shown}:{port}/"
    raters = {name: f"{address}#code={keys.code(Person('label', name))}" for name in keys.raters}
    return Open(site, sock, port, f"{address}#code={keys.code(Person('view'))}", raters)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; where the port is taken, on a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns delayed sending off only then: without, every answer waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            sock.bind((host.strip("[]"), port))
        except OSError:
            sock.bind((host.strip("[]"), 0))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise AttachError(f"cannot listen on {host}: {error.strerror or error}") from None
    return sock


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket that only this user can connect to."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat(follow_symlinks=False).st_mode) and not _answers(path):
            path.unlink()  # left by a server that was killed
        sock.bind(str(path))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise AttachError(f"cannot listen on {path}: {error.strerror or error}; name another --socket") from None
    finally:
        os.umask(before)
    return sock


def _get_ready(site: Site) -> None:
    """What the first reader would wait for, done before anybody asks: runs are opened, and kernels loaded."""
    site.read_ahead()
    warm()


def serve(found: Open, started: Callable[[], None] = lambda: None) -> None:
    """Answer until Ctrl-C."""
    logging.getLogger("tiltmeter.dashboard").addHandler(logging.StreamHandler(sys.stderr))
    server = Quiet(config(App(found.site)))
    server.site = found.site
    threading.Thread(target=_get_ready, args=(found.site,), name="tiltmeter-ready", daemon=True).start()
    started()
    try:
        server.run(sockets=[found.sock])
    except KeyboardInterrupt:
        pass
    finally:
        found.sock.close()


def config(app: App) -> uvicorn.Config:
    """No access log, no proxy that is believed, no WebSocket, no name of the server in answers."""
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
        http="h11",
    )


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _is_name(host: str) -> bool:
    """Whether a browser can ask for it: not an address that stands for every other."""
    return host not in ("0.0.0.0", "::", "")
