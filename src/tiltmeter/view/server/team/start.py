"""Starts the server of a team: its address, certificate, limits, accounts and the copies of runs on object storage."""

from __future__ import annotations

import resource
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError
from tiltmeter.rundir.remote.follow_store import StoreFollower
from tiltmeter.view.server.access import TrustedHosts, is_loopback, is_wildcard_address
from tiltmeter.view.server.connection_limits import LimitedProtocol
from tiltmeter.view.server.run_list import RunList
from tiltmeter.view.server.serve import ServerHandle, bind
from tiltmeter.view.server.state import ServerState
from tiltmeter.view.server.team.access import ProxySignIn, TeamAccess, parse_networks
from tiltmeter.view.server.team.accounts import AccountBook, parse_roles

MOST_CONNECTIONS = 4096
MOST_STREAMS = 2048
OTHER_FILES = 512  # that the process has open besides connections


class TeamProtocol(LimitedProtocol):
    """Connections of a whole team."""

    most_connections = MOST_CONNECTIONS


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
    proxies: Sequence[str] = ()
    proxy_header: str = ""
    proxy_roles: Sequence[str] = ()


def open_team_server(options: TeamOptions) -> ServerHandle:
    """Bind the socket and open the accounts. Raises `AttachError` for what would not be safe."""
    _check(options)
    for path in options.runs:
        if not path.is_dir():
            raise AttachError(f"{path} is no folder: give run directories, or folders that hold some")
    book = AccountBook(options.state)
    roles = parse_roles(options.proxy_roles) if options.proxy_roles else frozenset()
    proxy = ProxySignIn(options.proxy_header, parse_networks(options.proxies), roles)
    sock = bind(options.host, options.port, other=False)
    port = int(sock.getsockname()[1])
    scheme = "http" if options.certificate is None else "https"
    shown_host = f"[{options.host}]" if ":" in options.host else options.host
    address = urlsplit(options.url or f"{scheme}://{shown_host}:{port}/")
    hosts = TrustedHosts(port, [address.netloc], options.host, scheme=scheme)
    run_list, follower = RunList(options.runs), StoreFollower(options.addresses)
    run_list.more_roots = lambda: [str(path) for path in list(follower.copies)]
    state = ServerState(run_list, TeamAccess(book, proxy), hosts, address.path.rstrip("/"), follower.complete)
    state.stream.most_clients = MOST_STREAMS
    shown = f"{address.scheme}://{address.netloc}{state.root}/"
    book.remember_url(shown)
    _allow_files()
    return ServerHandle(state, sock, port, shown, None, options.certificate, TeamProtocol, follower.start)


def _check(options: TeamOptions) -> None:
    address = urlsplit(options.url)
    if options.url and (address.scheme not in ("http", "https") or not address.netloc or address.query):
        raise AttachError(
            f"--url {options.url}: give the address by which people reach it, as https://lab.example/runs/"
        )
    if bool(options.proxy_header) != bool(options.proxies):
        raise AttachError("--proxy-header and --trusted-proxy go together: a name counts from these addresses alone")
    if options.certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*options.certificate)
        except (OSError, ssl.SSLError) as error:
            raise AttachError(f"the certificate or its key cannot be used: {error}") from None
    if is_loopback(options.host):
        return
    if options.certificate is None and not options.proxies:
        raise AttachError(
            f"refusing to listen on {options.host} without encryption: give --tls-cert and --tls-key, or put a reverse "
            "proxy with TLS before it and name that with --trusted-proxy"
        )
    if is_wildcard_address(options.host) and not options.url:
        raise AttachError(f"{options.host} stands for every address: say by which one people reach it, with --url")


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
