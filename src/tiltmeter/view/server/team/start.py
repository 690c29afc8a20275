"""Starts the server of a team: its address, certificate, limits, accounts and the copies of runs on object storage."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError
from tiltmeter.rundir.remote.follow_store import StoreFollower
from tiltmeter.view.server.access import EVERY_RUN, TrustedHosts, is_loopback, is_wildcard_address, parse_patterns
from tiltmeter.view.server.connection_limits import LimitedProtocol
from tiltmeter.view.server.run_list import RunList
from tiltmeter.view.server.serve import ServerHandle, bind, bind_unix
from tiltmeter.view.server.state import ServerState
from tiltmeter.view.server.team.access import TeamAccess
from tiltmeter.view.server.team.accounts import AccountBook, parse_roles
from tiltmeter.view.server.team.proxy import (
    SECRET_VARIABLE,
    ProxySignIn,
    check_socket_folder,
    includes_loopback,
    parse_networks,
    parse_user,
    peer_name,
    peer_uid,
    read_proxy_secret,
)

MOST_CONNECTIONS = 4096
MOST_STREAMS = 2048
OTHER_FILES = 512  # that the process has open besides connections


class TeamProtocol(LimitedProtocol):
    """Connections of a whole team."""

    most_connections = MOST_CONNECTIONS


class ProxyProtocol(TeamProtocol):
    """Connections over a Unix socket, to which the proxy's user alone may talk."""

    uid = -1  # of the proxy

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if peer_uid(transport.get_extra_info("socket")) == self.uid:
            self.client = (peer_name(self.uid), 0)
        else:
            self._give_up()


@dataclass(frozen=True)
class TeamOptions:
    """Options of `tiltmeter serve`."""

    runs: Sequence[Path]
    addresses: Sequence[str]  # of object storage
    state: Path
    host: str = "127.0.0.1"
    port: int = 8787
    url: str = ""
    certificate: tuple[Path, Path] | None = None
    socket: Path | None = None  # in place of host and port
    proxy_header: str = ""
    proxy_user: str = ""  # who may talk to the socket
    proxy_secret: Path | None = None
    proxies: Sequence[str] = ()  # addresses from which the secret counts
    proxy_roles: Sequence[str] = ()
    proxy_runs: Sequence[str] = ()


def open_team_server(options: TeamOptions) -> ServerHandle:
    """Bind the socket and open the accounts. Raises `AttachError` for what would not be safe."""
    _check(options)
    for path in options.runs:
        if not path.is_dir():
            raise AttachError(f"{path} is no folder: give run directories, or folders that hold some")
    book = AccountBook(options.state)
    proxy = _open_proxy(options)
    sock, port, protocol = _listen(options, proxy)
    scheme = "http" if options.certificate is None else "https"
    shown_host = f"[{options.host}]" if ":" in options.host else options.host
    address = urlsplit(options.url or f"{scheme}://{shown_host}:{port}/")
    hosts = TrustedHosts(port, [address.netloc], options.host, scheme=scheme)
    run_list, follower = RunList(options.runs), StoreFollower(options.addresses)
    run_list.more_roots = lambda: copy_places(follower)
    state = ServerState(run_list, TeamAccess(book, proxy), hosts, address.path.rstrip("/"), follower.complete)
    state.stream.most_clients = MOST_STREAMS
    shown = f"{address.scheme}://{address.netloc}{state.root}/"
    book.remember_url(shown)
    _allow_files()
    return ServerHandle(state, sock, port, shown, None, options.certificate, protocol, follower.start)


def _open_proxy(options: TeamOptions) -> ProxySignIn:
    """The proxy, by which it is known. Raises `AttachError` for one that anybody could pass for."""
    roles = parse_roles(options.proxy_roles) if options.proxy_roles else frozenset()
    runs = parse_patterns(options.proxy_runs) if options.proxy_runs else EVERY_RUN
    if options.socket is not None:
        return ProxySignIn(options.proxy_header, roles, parse_user(options.proxy_user), runs=runs)
    if not options.proxy_header:
        return ProxySignIn()
    secret = read_proxy_secret(options.proxy_secret)
    if not secret:
        raise AttachError(proxy_refusal(options))
    return ProxySignIn(options.proxy_header, roles, None, secret, parse_networks(options.proxies), runs)


def proxy_refusal(options: TeamOptions) -> str:
    """Why a proxy known by its address alone is not believed, and the line that starts a server which believes it."""
    header, addresses = options.proxy_header, ", ".join(options.proxies)
    if own := next((text for text in options.proxies if includes_loopback(text)), ""):
        why = f"--trusted-proxy {own}: every user of this machine asks from there, and could be anybody by {header}"
    elif addresses:
        why = f"--trusted-proxy {addresses}: an address is no proof, and who asks from it could be anybody by {header}"
    else:
        why = f"everybody could send {header}"
    proxies = [text for text in options.proxies if not includes_loopback(text)]
    words = ["tiltmeter", "serve", *map(str, options.runs), *options.addresses]
    for name, value, usual in (
        ("--host", options.host, "127.0.0.1"), ("--port", str(options.port), "8787"), ("--url", options.url, ""),
        ("--proxy-header", header, ""), ("--proxy-role", ",".join(options.proxy_roles), ""),
        ("--state", str(options.state), str(default_state())),
        ("--tls-cert", str((options.certificate or ("",))[0]), ""),
        ("--tls-key", str((options.certificate or ("",))[-1]), ""),
        *(("--trusted-proxy", text, "") for text in proxies),
        *(("--proxy-runs", text, "") for text in options.proxy_runs),
        ("--proxy-secret", str(options.state / "proxy.secret"), ""),
    ):  # fmt: skip
        words += [name, value] if value != usual else []
    return (
        f"{why}. Let the proxy send a secret in Tiltmeter-Proxy-Secret (the file is made if missing; --socket or "
        f"{SECRET_VARIABLE} would do as well): {shlex.join(words)}"
    )


def _listen(options: TeamOptions, proxy: ProxySignIn) -> tuple[socket.socket, int, type[TeamProtocol]]:
    if options.socket is None or proxy.uid is None:
        sock = bind(options.host, options.port, other=False)
        return sock, int(sock.getsockname()[1]), TeamProtocol
    check_socket_folder(options.socket)
    protocol = type("OwnProxyProtocol", (ProxyProtocol,), {"uid": proxy.uid})
    # Everybody may connect, since the proxy is another user; whose connection it is decides the kernel's word.
    return bind_unix(options.socket, 0o666), options.port, protocol


def copy_places(follower: StoreFollower) -> dict[str, str]:
    """The folders of copies, each with its run's path below the address that is served."""
    places = {}
    for path, address in list(follower.copies.items()):
        root = next((root for root in follower.addresses if f"{address}/".startswith(f"{root}/")), "")
        places[str(path)] = address.removeprefix(root).strip("/") or address.rpartition("/")[2]
    return places


def default_state() -> Path:
    """Where accounts are kept if nothing else is said."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "tiltmeter" / "server"


def _check(options: TeamOptions) -> None:
    address = urlsplit(options.url)
    if options.url and (address.scheme not in ("http", "https") or not address.netloc or address.query):
        raise AttachError(
            f"--url {options.url}: give the address by which people reach it, as https://lab.example/runs/"
        )
    if not options.proxy_header and (options.proxies or options.proxy_secret or options.proxy_user):
        raise AttachError(
            "--trusted-proxy, --proxy-secret and --proxy-user need --proxy-header: where the proxy names people"
        )
    if options.socket is not None or options.proxy_user:
        _check_socket(options)
    if options.certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*options.certificate)
        except (OSError, ssl.SSLError) as error:
            raise AttachError(f"the certificate or its key cannot be used: {error}") from None
    if options.socket is not None or is_loopback(options.host):
        return
    if options.certificate is None and not options.proxies:
        raise AttachError(
            f"refusing to listen on {options.host} without encryption: give --tls-cert and --tls-key, or put a reverse "
            "proxy with TLS before it (--trusted-proxy and --proxy-secret, or --socket)"
        )
    if is_wildcard_address(options.host) and not options.url:
        raise AttachError(f"{options.host} stands for every address: say by which one people reach it, with --url")


def _check_socket(options: TeamOptions) -> None:
    if options.socket is None or not options.proxy_user or not options.proxy_header or not options.url:
        raise AttachError(
            "--socket, --proxy-user, --proxy-header and --url go together: the proxy, how it names people, and the "
            "address by which they reach it"
        )
    if options.proxies or options.proxy_secret or options.certificate:
        raise AttachError(
            "over --socket the proxy is known by its user: leave out --trusted-proxy, --proxy-secret and --tls-cert"
        )


def _allow_files() -> None:
    """Ask for as many open files as there may be connections; with fewer, fewer connections are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft != resource.RLIM_INFINITY:
        TeamProtocol.most_connections = min(MOST_CONNECTIONS, max(64, soft - OTHER_FILES))
