"""`TeamAccess`: who a request is from, by the token of an account or by a reverse proxy that has signed them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiltmeter.view.server.access import AccessRole, Person, bearer_token, digest
from tiltmeter.view.server.team.accounts import NO_RIGHTS, AccountBook
from tiltmeter.view.server.team.proxy import ProxySignIn

if TYPE_CHECKING:
    from starlette.datastructures import MutableHeaders


@dataclass
class TeamAccess:
    """Access by account. Roles are looked up at every request, so that a revocation counts from the next one on."""

    book: AccountBook
    proxy: ProxySignIn = field(default_factory=ProxySignIn)
    control = True
    asks_token = False

    def identify(self, headers: MutableHeaders, client: str) -> Person | None:
        name = self.proxy.name_of(headers, client)
        if name is not None:
            return self._named_by_proxy(name)
        token = bearer_token(headers)
        return None if token is None else self._signed_in(digest(token))

    def renew(self, person: Person) -> Person | None:
        return self._named_by_proxy(person.name) if person.by_proxy else self._signed_in(person.session)

    def version(self) -> int:
        return self.book.version()

    def _named_by_proxy(self, name: str) -> Person:
        roles, runs = self.book.rights_of(name) or (self.proxy.roles, self.proxy.runs)
        return Person(roles, name, by_proxy=True, runs=runs)

    def _signed_in(self, session: str) -> Person | None:
        name = self.book.name_of_session(session)
        if name is None:
            return None
        roles, runs = self.book.rights_of(name) or NO_RIGHTS
        return Person(roles, name, runs=runs, session=session)

    def redeem_code(self, code: str) -> tuple[str, Person]:
        token, name = self.book.redeem_code(code)
        roles, runs = self.book.rights_of(name) or NO_RIGHTS
        return token, Person(roles, name, runs=runs, session=digest(token))

    def refusal(self, role: AccessRole, person: Person | None) -> str:
        if person is None:
            return "nobody is signed in: open the link of your invitation, or ask for one (tiltmeter serve --invite)"
        may = f"may {' and '.join(sorted(person.roles))}" if person.roles else "has no account here, or no longer"
        return f"{person.name} {may}, and this needs the role {role}: tiltmeter serve --invite NAME --role {role}"
