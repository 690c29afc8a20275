"""Who may ask: names the server answers to, tokens and one-time codes, limits, and the headers of every answer."""

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tiltmeter.durable import publish
from tiltmeter.errors import AttachError

Role = Literal["open", "view", "label", "control"]

CODE_SECONDS = 600.0
REQUESTS_PER_SECOND = 100.0
CONTROLS_PER_SECOND = 5.0
LARGEST_BODY = 1_000_000  # bytes
DEEPEST = 32  # levels of JSON
LONGEST_QUERY = 8192  # characters
CONTROL_HEADER = "tiltmeter-control"

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
#: On every answer, errors included.
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
    """A request that is not answered as asked: the status and a sentence for whoever asked."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


class Person(NamedTuple):
    """Whose token a request carries."""

    role: Literal["view", "label"]
    rater: str = ""


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


def stands_for_all(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def refused_bind(host: str, *, auth: bool, trusted: Iterable[str]) -> str:
    """Why the server must not listen on an address; empty if it may."""
    if is_loopback(host):
        return ""
    if not auth:
        return (
            f"refusing to listen on {host}: whoever reaches that address could try to read prompts, completions and "
            "rewards, and nothing is encrypted. Forward a port instead: ssh -L 8787:127.0.0.1:8787 HOST. If the "
            "network is yours, add --auth"
        )
    if stands_for_all(host) and not list(trusted):
        return f"{host} stands for every address: say by which name browsers will ask, with --trusted-host NAME"
    return ""


class Names:
    """The Host values that are answered, each with the origins a browser may send along.

    >>> names = Names(8787, ["lab.example"])
    >>> names.origins("localhost:8787"), names.origins("evil.example:8787")
    (frozenset({'http://localhost:8787'}), frozenset())
    """

    def __init__(self, port: int, trusted: Iterable[str] = (), host: str = "127.0.0.1") -> None:
        self.port = port
        own = {*LOOPBACK}
        if not stands_for_all(host):
            own.add(f"[{host}]" if ":" in host and not host.startswith("[") else host)
        self._known = {f"{name}:{port}".lower(): frozenset({f"http://{name}:{port}".lower()}) for name in own}
        for name in trusted:
            if not _HOST.fullmatch(name):
                raise AttachError(f"--trusted-host {name!r} is no host name: give a name, or a name and a port")
            named = name.lower()
            for shown in {named} if re.search(r":\d+$", named) else {named, f"{named}:{port}"}:
                self._known[shown] = frozenset({f"http://{shown}", f"https://{shown}"})

    def origins(self, host: str) -> frozenset[str]:
        return self._known.get(host.lower(), frozenset())

    def check(self, headers: Mapping[str, list[str]], *, shell: bool) -> None:
        """Refuse what another site's page, or a name that was bent to this address, makes a browser ask.

        `shell`: the page without data, which may also be what a person typed into the address bar.
        """
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not (origins := self.origins(hosts[0])):
            raise RequestError(
                400,
                f"this server answers to 127.0.0.1:{self.port} and localhost:{self.port} only; for another name or a "
                "port that is forwarded from elsewhere start it with --trusted-host NAME:PORT",
            )
        if any(origin.lower() not in origins for origin in headers.get("origin", [])):
            raise RequestError(403, "asked by a page of another origin")
        for site in headers.get("sec-fetch-site", []):
            if site != "same-origin" and not (shell and site == "none"):
                raise RequestError(403, "asked by another site: paste the address into the browser's address bar")


# -- tokens ---------------------------------------------------------------------------------------------------------


class Keys:
    """The tokens of this user's servers, kept beside those that sign requests, and the codes that are open now."""

    def __init__(self, folder: Path | None = None, raters: Iterable[str] = ()) -> None:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self.folder = folder or Path(home) / "tiltmeter" / "dashboard"
        self.raters = tuple(dict.fromkeys(raters))
        for name in self.raters:
            if not _RATER.fullmatch(name):
                raise AttachError(
                    f"{name!r} is no name of a rater: letters, digits, dot, dash and underscore, up to 64"
                )
        own_folder(self.folder)
        self._view, self._label, self._control = (
            make_secret(self.folder / f"{role}.token") for role in ("view", "label", "control")
        )
        self._codes: dict[str, tuple[float, Person]] = {}
        self._lock = threading.Lock()  # codes are swapped in threads, and each only once

    @property
    def control_path(self) -> Path:
        return self.folder / "control.token"

    def code(self, person: Person) -> str:
        """A code that can be swapped for a token once, within ten minutes."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[_digest(code)] = (time.monotonic() + CODE_SECONDS, person)
        return code

    def swap(self, code: str) -> tuple[str, Person]:
        now = time.monotonic()
        with self._lock:
            self._codes = {key: item for key, item in self._codes.items() if item[0] > now}
            found = self._codes.pop(_digest(code), None)
        if found is None:
            raise RequestError(401, "this code was used or is older than ten minutes: start tiltmeter view again")
        person = found[1]
        return (self._view if person.role == "view" else self._rater_token(person.rater)), person

    def who(self, authorization: Iterable[str]) -> Person | None:
        """Whose token it is; None if it is nobody's. Takes the same time whatever is wrong with it."""
        given = list(authorization)
        if len(given) != 1 or not given[0].startswith("Bearer "):
            return None
        token = given[0].removeprefix("Bearer ")
        name = token.rpartition(".")[0]
        viewer, rater = _same(token, self._view), _same(token, self._rater_token(name))
        if viewer:
            return Person("view")
        return Person("label", name) if rater and name in self.raters else None

    def may_control(self, given: Iterable[str]) -> bool:
        tokens = list(given)
        return len(tokens) == 1 and _same(tokens[0], self._control)

    def _rater_token(self, name: str) -> str:
        """Bound to the name: what one rater was given cannot be used to answer as another."""
        plain = name.encode("utf-8", "surrogatepass")
        return f"{name}.{hmac.new(self._label.encode(), plain, hashlib.sha256).hexdigest()}"


def own_folder(folder: Path) -> None:
    """A folder that only this user can look into, made if it is not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat(follow_symlinks=False)
    except OSError as error:
        raise AttachError(f"cannot keep tokens in {folder}: {error}; set XDG_STATE_HOME to a place you own") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise AttachError(f"{folder} is not a folder of yours: remove it, or set XDG_STATE_HOME to a place you own")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise AttachError(f"{folder} can be read by others, and tokens are kept there: chmod 700 {folder}")


def make_secret(path: Path) -> str:
    """The 256 bits in a file that is this user's alone, made if there are none."""
    try:
        publish(path, [secrets.token_hex(32).encode()])
    except FileExistsError:
        pass  # made by an earlier start
    except OSError as error:
        raise AttachError(f"cannot keep a token in {path.parent}: {error}") from None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise AttachError(f"cannot read {path}: {error.strerror}; delete it and start again") from None
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise AttachError(f"{path} is not yours alone: chmod 600 {path}")
        token = os.read(handle, 128).strip().decode("ascii", "replace")
    finally:
        os.close(handle)
    if not re.fullmatch(r"[0-9a-f]{64}", token):
        raise AttachError(f"{path} is not a token: delete it and start again")
    return token


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass"))


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


# -- limits ---------------------------------------------------------------------------------------------------------


@dataclass
class Rate:
    """So many requests a second for each who asks; what was saved up is never more than one second's worth.

    >>> rate = Rate(2.0)
    >>> [rate.allows("somebody", now=0.0) for _ in range(3)], rate.allows("somebody", now=0.5)
    ([True, True, False], True)
    """

    per_second: float
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def allows(self, who: str, *, now: float | None = None) -> bool:
        now = time.monotonic() if now is None else now
        if len(self._left) > 4096:
            self._left.clear()  # many addresses: all of them start anew, which costs one second's worth each
        left, then = self._left.get(who, (self.per_second, now))
        left = min(self.per_second, left + (now - then) * self.per_second)
        self._left[who] = (left - 1.0 if left >= 1.0 else left, now)
        return left >= 1.0


def read_json(body: bytes) -> dict[str, Any]:
    """A JSON object within the limits, and nothing that JSON does not have."""
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON, or is nested too deeply") from None
    level, depth = [found], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise RequestError(400, f"the body is nested more than {DEEPEST} levels deep")
        parts = [item for item in level if isinstance(item, (dict, list))]
        level = [inner for item in parts for inner in (item.values() if isinstance(item, dict) else item)]
    if not isinstance(found, dict):
        raise RequestError(400, "the body must be a JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
