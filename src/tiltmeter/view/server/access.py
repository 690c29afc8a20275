"""Access control of the server: trusted host names, tokens and one-time codes, runs, rate limits, and headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import publish

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from starlette.datastructures import Headers, MutableHeaders

AccessRole = Literal["open", "view", "label", "control"]

CODE_SECONDS = 600.0
REQUESTS_PER_SECOND = 100.0
CONTROLS_PER_SECOND = 5.0
LARGEST_BODY = 1_000_000  # bytes
DEEPEST_JSON = 32  # levels of JSON
LONGEST_QUERY = 8192  # characters
CONTROL_HEADER = "tiltmeter-control"
EVERY_RUN = ("*",)
MOST_PATTERNS = 64
LONGEST_PATTERN = 300  # characters

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
#: On every response, errors included.
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_RATER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")


class RequestError(Exception):
    """A refused request: the HTTP status and a sentence for the client."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


class Person(NamedTuple):
    """The person whose request it is: what they may do, and the name that their labels and acts carry."""

    roles: AbstractSet[AccessRole]
    name: str = ""
    by_proxy: bool = False  # a cookie of the proxy's signed them in, which a browser adds to any request
    runs: tuple[str, ...] = EVERY_RUN  # patterns of the runs that they may see, label and act on
    session: str = ""  # the hash of the token by which they are signed in, where tokens end one by one


class Access(Protocol):
    """How a server tells who asks."""

    control: bool  # whether anybody may act on runs here
    asks_token: bool  # whether acting needs the control token besides

    def identify(self, headers: MutableHeaders, client: str) -> Person | None:
        """The person of a request, or None. `client`: the address that it came from. Takes a proxy's secret away."""
        ...

    def renew(self, person: Person) -> Person | None:
        """The same person with today's rights; None if they are no longer signed in."""
        ...

    def version(self) -> int:
        """A number that changes whenever somebody's rights may have changed."""
        ...

    def redeem_code(self, code: str) -> tuple[str, Person]:
        """A new token for a code that works once. Raises `RequestError`."""
        ...

    def refusal(self, role: AccessRole, person: Person | None) -> str:
        """Why this person may not do what the role allows, and how they may."""
        ...


# -- names ----------------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("node7")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_wildcard_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def bind_refusal(host: str, *, auth: bool, trusted: Iterable[str]) -> str:
    """The reason why the server must not listen on an address; empty if it may."""
    if is_loopback(host):
        return ""
    if not auth:
        return (
            f"refusing to listen on {host}: whoever reaches that address could try to read prompts, completions and "
            "rewards, and nothing is encrypted. Forward a port instead: ssh -L 8787:127.0.0.1:8787 HOST. If the "
            "network is yours, add --auth"
        )
    if is_wildcard_address(host) and not list(trusted):
        return f"{host} stands for every address: say by which name browsers will ask, with --trusted-host NAME"
    return ""


class TrustedHosts:
    """The accepted Host values, each with the origins that a browser may send.

    >>> names = TrustedHosts(8787, ["lab.example"])
    >>> names.origins("localhost:8787"), names.origins("evil.example:8787")
    (frozenset({'http://localhost:8787'}), frozenset())
    """

    def __init__(
        self, port: int, trusted: Iterable[str] = (), host: str = "127.0.0.1", *, scheme: str = "http"
    ) -> None:
        self.port = port
        own_names = {*LOOPBACK}
        if not is_wildcard_address(host):
            own_names.add(f"[{host}]" if ":" in host and not host.startswith("[") else host)
        self._origins = {
            f"{name}:{port}".lower(): frozenset({f"{scheme}://{name}:{port}".lower()}) for name in own_names
        }
        for name in trusted:
            if not _HOST.fullmatch(name):
                raise AttachError(f"--trusted-host {name!r} is no host name: give a name, or a name and a port")
            lower_name = name.lower()
            for host_value in {lower_name} if re.search(r":\d+$", lower_name) else {lower_name, f"{lower_name}:{port}"}:
                self._origins[host_value] = frozenset({f"http://{host_value}", f"https://{host_value}"})

    def origins(self, host: str) -> frozenset[str]:
        return self._origins.get(host.lower(), frozenset())

    def check(self, hosts: list[str], from_origins: list[str], sites: list[str], *, shell: bool) -> None:
        """Refuse cross-site requests and DNS rebinding, by all values of Host, Origin and Sec-Fetch-Site.

        `shell`: the page without data, which may also be opened from the address bar.
        """
        if len(hosts) != 1 or not (origins := self.origins(hosts[0])):
            raise RequestError(
                400,
                f"this server answers to 127.0.0.1:{self.port} and localhost:{self.port} only; for another name or a "
                "port that is forwarded from elsewhere start it with --trusted-host NAME:PORT",
            )
        if any(origin.lower() not in origins for origin in from_origins):
            raise RequestError(403, "asked by a page of another origin")
        for site in sites:
            if site != "same-origin" and not (shell and site == "none"):
                raise RequestError(403, "asked by another site: paste the address into the browser's address bar")


# -- tokens ---------------------------------------------------------------------------------------------------------


class AccessTokens:
    """The access tokens of this user's servers, stored in the user's state folder, and the open one-time codes."""

    asks_token = True

    def __init__(self, folder: Path | None = None, raters: Iterable[str] = (), *, control: bool = False) -> None:
        self.control = control
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self.folder = folder or Path(home) / "tiltmeter" / "dashboard"
        self.raters = tuple(dict.fromkeys(raters))
        for name in self.raters:
            if not _RATER.fullmatch(name):
                raise AttachError(
                    f"{name!r} is no name of a rater: letters, digits, dot, dash and underscore, up to 64"
                )
        ensure_private_folder(self.folder)
        self._view, self._label, self._control = (
            load_or_create_secret(self.folder / f"{role}.token") for role in ("view", "label", "control")
        )
        self._codes: dict[str, tuple[float, Person]] = {}
        self._lock = threading.Lock()  # codes are redeemed in threads, each only once

    @property
    def control_path(self) -> Path:
        return self.folder / "control.token"

    def issue_code(self, person: Person) -> str:
        """A one-time code that can be exchanged for a token within ten minutes."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[digest(code)] = (time.monotonic() + CODE_SECONDS, person)
        return code

    def forget_codes(self) -> None:
        """No code that was issued works any more."""
        with self._lock:
            self._codes.clear()

    def redeem_code(self, code: str) -> tuple[str, Person]:
        now = time.monotonic()
        with self._lock:
            self._codes = {key: item for key, item in self._codes.items() if item[0] > now}
            entry = self._codes.pop(digest(code), None)
        if entry is None:
            raise RequestError(401, "this code was used or is older than ten minutes: start tiltmeter view again")
        person = entry[1]
        return (self._view if "view" in person.roles else self.rater_token(person.name)), person

    def identify(self, headers: MutableHeaders, client: str) -> Person | None:
        """The person of the token, or None. Takes constant time, whatever is wrong with it."""
        person = None if (token := bearer_token(headers)) is None else self.person_of(token)
        if person and "view" in person.roles and self.may_control(headers.getlist(CONTROL_HEADER)):
            return Person({"view", "control"})
        return person

    def renew(self, person: Person) -> Person | None:
        return person  # tokens of this server hold as long as it does

    def version(self) -> int:
        return 0

    def person_of(self, token: str) -> Person | None:
        name = token.rpartition(".")[0]
        viewer, rater = constant_time_equal(token, self._view), constant_time_equal(token, self.rater_token(name))
        if viewer:
            return Person({"view"})
        return Person({"label"}, name) if rater and name in self.raters else None

    def refusal(self, role: AccessRole, person: Person | None) -> str:
        if person is None:
            how = "tiltmeter view RUNS --raters NAME prints" if role == "label" else "tiltmeter view prints"
            return f"no valid token: open the address that {how}"
        if role == "control" and "view" in person.roles:
            if not self.control:
                return "this server only shows: start it with tiltmeter view --control to act on runs"
            return f"the control token is missing or wrong; it is in {self.control_path}"
        return f"a token to {' and '.join(sorted(person.roles))} is not enough for this"

    def may_control(self, values: Iterable[str]) -> bool:
        tokens = list(values)
        return len(tokens) == 1 and constant_time_equal(tokens[0], self._control)

    def rater_token(self, name: str) -> str:
        """The token of a rater, bound to the name: it cannot be used to answer as another rater."""
        plain = name.encode("utf-8", "surrogatepass")
        return f"{name}.{hmac.new(self._label.encode(), plain, hashlib.sha256).hexdigest()}"


def ensure_private_folder(folder: Path) -> None:
    """Create a folder that only this user can read, or check that it is one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat(follow_symlinks=False)
    except OSError as error:
        raise AttachError(f"cannot keep tokens in {folder}: {error}; set XDG_STATE_HOME to a place you own") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise AttachError(f"{folder} is not a folder of yours: remove it, or set XDG_STATE_HOME to a place you own")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise AttachError(f"{folder} can be read by others, and tokens are kept there: chmod 700 {folder}")


def load_or_create_secret(path: Path) -> str:
    """The 256-bit secret in a file that only this user can read, created if missing."""
    try:
        publish(path, [secrets.token_hex(32).encode()])
    except FileExistsError:
        pass  # created by an earlier start
    except OSError as error:
        raise AttachError(f"cannot keep a token in {path.parent}: {error}") from None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise AttachError(f"cannot read {path}: {error.strerror}; delete it and start again") from None
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise AttachError(f"{path} is not yours alone: chmod 600 {path}")
        token = os.read(handle, 128).strip().decode("ascii", "replace")
    finally:
        os.close(handle)
    if not re.fullmatch(r"[0-9a-f]{64}", token):
        raise AttachError(f"{path} is not a token: delete it and start again")
    return token


def bearer_token(headers: Headers) -> str | None:
    """The token of a request; None if it has none, or several."""
    values = headers.getlist("authorization")
    if len(values) != 1 or not values[0].startswith("Bearer "):
        return None
    return values[0].removeprefix("Bearer ")


def constant_time_equal(token: str, expected: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass"))


def digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


# -- runs -------------------------------------------------------------------------------------------------------------


def covers(patterns: Iterable[str], place: str) -> bool:
    """Whether one of the patterns covers a run, by its path below the folder or address that is served.

    A pattern is compared name by name and covers everything below what it matches: `*` never reaches over a slash.

    >>> [covers(["math", "code/*-7b"], place) for place in ("math", "math/a/out", "mathematics/a", "code/x-7b/out")]
    [True, True, False, True]
    >>> covers(["*"], "any/run"), covers([], "any/run")
    (True, False)
    """
    names = place.split("/")
    return any(_covers(pattern.split("/"), names) for pattern in patterns)


def _covers(pattern: list[str], names: list[str]) -> bool:
    return len(pattern) <= len(names) and all(map(fnmatchcase, names, pattern))


def parse_patterns(texts: Iterable[str]) -> tuple[str, ...]:
    """Patterns as a person writes them.

    >>> parse_patterns(["math/", "code/*-7b"]), parse_patterns(["math", "*"])
    (('math', 'code/*-7b'), ('*',))
    """
    patterns = tuple(dict.fromkeys(text.strip().removesuffix("/") for text in texts))
    for pattern in patterns:
        names = pattern.split("/")
        if len(pattern) > LONGEST_PATTERN or any(name in ("", ".", "..") for name in names) or "\\" in pattern:
            raise AttachError(
                f"--runs {pattern!r}: give a path below the folder that is served, as 'math' or 'code/*-7b'"
            )
        if re.search(r"[\x00-\x1f\x7f]", pattern):
            raise AttachError(f"--runs {pattern!r} has a control character")
    if not 1 <= len(patterns) <= MOST_PATTERNS:
        raise AttachError(f"--runs: 1 to {MOST_PATTERNS} patterns; '*' is every run")
    return EVERY_RUN if "*" in patterns else patterns


# -- limits ---------------------------------------------------------------------------------------------------------


@dataclass
class RateLimiter:
    """A token-bucket limit of requests a second for each client; the bucket holds one second's worth.

    >>> rate = RateLimiter(2.0)
    >>> [rate.allows("somebody", now=0.0) for _ in range(3)], rate.allows("somebody", now=0.5)
    ([True, True, False], True)
    """

    per_second: float
    _budgets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def allows(self, who: str, *, now: float | None = None) -> bool:
        now = time.monotonic() if now is None else now
        if len(self._budgets) > 4096:
            self._budgets.clear()  # many clients: reset all of them, which grants each one second's worth
        budget, last_time = self._budgets.get(who, (self.per_second, now))
        budget = min(self.per_second, budget + (now - last_time) * self.per_second)
        self._budgets[who] = (budget - 1.0 if budget >= 1.0 else budget, now)
        return budget >= 1.0


def read_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object within the limits; NaN and Infinity are refused."""
    try:
        parsed = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON, or is nested too deeply") from None
    level, depth = [parsed], 0
    while level:
        depth += 1
        if depth > DEEPEST_JSON:
            raise RequestError(400, f"the body is nested more than {DEEPEST_JSON} levels deep")
        parts = [item for item in level if isinstance(item, (dict, list))]
        level = [inner for item in parts for inner in (item.values() if isinstance(item, dict) else item)]
    if not isinstance(parsed, dict):
        raise RequestError(400, "the body must be a JSON object")
    return parsed


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
