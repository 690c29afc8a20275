"""`ProxySignIn`: a reverse proxy that signs people in, known by its user on a Unix socket or by a shared secret."""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tiltmeter.errors import AttachError
from tiltmeter.view.payloads.people import PageRole
from tiltmeter.view.server.access import (
    EVERY_RUN,
    RequestError,
    constant_time_equal,
    is_loopback,
    load_or_create_secret,
)
from tiltmeter.view.server.team.accounts import account_name

if TYPE_CHECKING:
    from starlette.datastructures import MutableHeaders

SECRET_HEADER = "tiltmeter-proxy-secret"
SECRET_VARIABLE = "TILTMETER_PROXY_SECRET"
SHORTEST_SECRET = 32  # characters
UNMAPPED_UID = 65534  # what the kernel says of every user of another user namespace

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ProxySignIn:
    """A reverse proxy that signs people in and says in a header who they are.

    The header counts if the request comes over the server's socket from the proxy's user, or with the secret. An
    address alone proves nothing: every user of the proxy's machine asks from the same one.
    """

    header: str = ""
    roles: frozenset[PageRole] = frozenset()  # of people whom the proxy names and who have no account
    uid: int | None = None  # of the proxy, where the server listens on a Unix socket
    secret: str = field(default="", repr=False)
    networks: Sequence[Network] = ()  # from which the secret counts; empty: from everywhere
    runs: tuple[str, ...] = EVERY_RUN  # patterns of what people without an account may see

    def name_of(self, headers: MutableHeaders, client: str) -> str | None:
        """The name that the proxy gives; None without one. Raises `RequestError` for one that cannot be."""
        secrets = take_header(headers, SECRET_HEADER)
        if not self.header or not self._is_proxy(client, secrets):
            return None
        values = headers.getlist(self.header)
        if not values:
            return None
        try:
            if len(values) != 1:
                raise AttachError("it is there more than once")
            return account_name(values[0])
        except AttachError as error:
            raise RequestError(400, f"the proxy's {self.header} is no name of a person: {error}") from None

    def _is_proxy(self, client: str, secrets: Sequence[str]) -> bool:
        if self.uid is not None:
            return client == peer_name(self.uid)
        if not self.secret or len(secrets) != 1 or not constant_time_equal(secrets[0], self.secret):
            return False
        return not self.networks or self._is_in_networks(client)

    def _is_in_networks(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)


def take_header(headers: MutableHeaders, name: str) -> list[str]:
    """All values of a header, which is removed: nothing behind this sees it."""
    values = headers.getlist(name)
    del headers[name]
    return values


# -- a socket ---------------------------------------------------------------------------------------------------------


def peer_uid(sock: socket.socket) -> int:
    """The user who connected to a Unix socket, as the kernel says."""
    facts = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", facts)
    return int(uid)


def peer_name(uid: int) -> str:
    """In place of an address, which a Unix socket has none of; no address looks like it."""
    return f"uid {uid}"


def parse_user(text: str) -> int:
    """The uid of a user, given by name or number.

    >>> parse_user("root"), parse_user("33")
    (0, 33)
    """
    try:
        uid = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else pwd.getpwnam(text).pw_uid
    except KeyError:
        raise AttachError(f"--proxy-user {text}: this machine has no such user") from None
    if uid == UNMAPPED_UID:
        raise AttachError(
            f"--proxy-user {text}: every user of another container looks like this one: run the proxy as another user"
        )
    return uid


def check_socket_folder(path: Path) -> None:
    """Refuse a folder in which another user could put a socket of theirs in place of this one."""
    try:
        mode = path.parent.stat().st_mode
    except OSError as error:
        raise AttachError(f"--socket {path}: {path.parent}: {error.strerror}") from None
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise AttachError(f"--socket {path}: others may write to that folder: chmod go-w {path.parent}")


# -- a secret ---------------------------------------------------------------------------------------------------------


def read_proxy_secret(path: Path | None) -> str:
    """The secret in a file of this user alone, which is made if it is missing, or in the environment; "" if in neither.

    It is taken out of the environment, which processes that this one starts would get.
    """
    secret = os.environ.pop(SECRET_VARIABLE, "")
    if path is not None and secret:
        raise AttachError(f"--proxy-secret and {SECRET_VARIABLE} are both there: give one")
    if path is not None:
        return load_or_create_secret(path.expanduser())
    if secret and not re.fullmatch(rf"[!-~]{{{SHORTEST_SECRET},1024}}", secret):
        raise AttachError(
            f"{SECRET_VARIABLE} needs at least {SHORTEST_SECRET} characters, letters and digits: openssl rand -hex 32"
        )
    return secret


# -- addresses --------------------------------------------------------------------------------------------------------


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Addresses of proxies, or networks in CIDR notation.

    >>> parse_networks(["10.0.0.7", "fd00::/8"])
    [IPv4Network('10.0.0.7/32'), IPv6Network('fd00::/8')]
    """
    networks = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text.strip())
        except ValueError as error:
            raise AttachError(f"--trusted-proxy {text}: {error}") from None
        if network.prefixlen == 0:
            raise AttachError(f"--trusted-proxy {text} is everybody: name the proxy's own address")
        networks.append(network)
    return networks


def includes_loopback(text: str) -> bool:
    """Whether an address or network is this machine's own, or has it in it.

    >>> [includes_loopback(text) for text in ("127.0.0.1", "localhost", "::/0", "::ffff:127.0.0.1", "10.0.0.0/8")]
    [True, True, True, True, False]
    """
    text = text.strip()
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return is_loopback(text)
    own = ("127.0.0.0/8", "::1/128", "::ffff:127.0.0.0/104")
    return any(network.version == one.version and network.overlaps(one) for one in map(ipaddress.ip_network, own))
