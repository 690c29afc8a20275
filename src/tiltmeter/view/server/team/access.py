"""`TeamAccess`: who a request is from, by the token of an account or by a reverse proxy that has signed them in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiltmeter.errors import AttachError
from tiltmeter.view.payloads.people import PageRole
from tiltmeter.view.server.access import AccessRole, Person, RequestError, bearer_token
from tiltmeter.view.server.team.accounts import AccountBook, account_name

if TYPE_CHECKING:
    from starlette.datastructures import Headers

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ProxySignIn:
    """A reverse proxy that signs people in and says in a header who they are.

    The header counts from the proxy's own addresses alone: everybody else could write what they like into it.
    """

    header: str
    proxies: Sequence[Network]
    roles: frozenset[PageRole] = frozenset()  # of people whom the proxy names and who have no account

    def name_of(self, headers: Headers, client: str) -> str | None:
        """The name that the proxy gives; None without one. Raises `RequestError` for one that cannot be."""
        if not self.header or not self._is_proxy(client):
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

    def _is_proxy(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.proxies)


@dataclass
class TeamAccess:
    """Access by account. Roles are looked up at every request, so that a revocation counts from the next one on."""

    book: AccountBook
    proxy: ProxySignIn = field(default_factory=lambda: ProxySignIn("", ()))
    control = True
    asks_token = False

    def identify(self, headers: Headers, client: str) -> Person | None:
        name = self.proxy.name_of(headers, client)
        if name is not None:
            roles = self.book.roles_of(name)
            return Person(self.proxy.roles if roles is None else roles, name, by_proxy=True)
        token = bearer_token(headers)
        if token is None or (name := self.book.find_session(token)) is None:
            return None
        return Person(self.book.roles_of(name) or frozenset(), name)

    def redeem_code(self, code: str) -> tuple[str, Person]:
        token, name = self.book.redeem_code(code)
        return token, Person(self.book.roles_of(name) or frozenset(), name)

    def refusal(self, role: AccessRole, person: Person | None) -> str:
        if person is None:
            return "nobody is signed in: open the link of your invitation, or ask for one (tiltmeter accounts --invite)"
        may = f"may {' and '.join(sorted(person.roles))}" if person.roles else "has no account here, or no longer"
        return f"{person.name} {may}, and this needs the role {role}: tiltmeter accounts --invite NAME --role {role}"


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
