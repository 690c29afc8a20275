"""Who may ask the page's server what: every route of the table, every wrong name, origin, method and token."""

from __future__ import annotations

import asyncio
import errno
import gzip
import itertools
import json
import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

import httpx
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.reading_room.notes import user_name
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.server import access, app
from tiltmeter.view.server.access import HEADERS, AccessTokens, Person, RateLimiter, TrustedHosts, bind_refusal
from tiltmeter.view.server.app import App, assets
from tiltmeter.view.server.routes import ROUTES, Route
from tiltmeter.view.server.run_list import RunList
from tiltmeter.view.server.state import ApiRequest, ServerState

PORT = 8787
HERE = f"127.0.0.1:{PORT}"
HOSTS = (HERE, f"localhost:{PORT}", f"evil.example:{PORT}", "127.0.0.1")
ORIGINS = (None, "same", "null", "http://evil.example", f"http://localhost:{PORT}")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")
UNLIMITED = 1e9


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        body = gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body
        return json.loads(body)


@dataclass
class Place:
    """A server in this process: requests go straight into the application, with headers no client library allows."""

    app: App
    site: ServerState
    keys: AccessTokens
    run: str
    folder: Path
    rollout: str
    alarm: str
    loop: asyncio.AbstractEventLoop

    @property
    def tokens(self) -> dict[str, dict[str, str]]:
        keys = self.keys
        view = keys.redeem_code(keys.issue_code(Person({"view"})))[0]
        label = keys.redeem_code(keys.issue_code(Person({"label"}, "alice")))[0]
        control = keys.control_path.read_text()
        return {
            "none": {},
            "view": {"authorization": f"Bearer {view}"},
            "label": {"authorization": f"Bearer {label}"},
            "control": {"authorization": f"Bearer {view}", "tiltmeter-control": control},
        }

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        body: bytes | Iterator[bytes] = b"",
    ) -> Reply:
        return self.loop.run_until_complete(self._ask(method, path, dict(headers or {}), query, body))

    async def _ask(
        self, method: str, path: str, headers: dict[str, str], query: str, body: bytes | Iterator[bytes]
    ) -> Reply:
        reply, over = Reply(), asyncio.Event()
        pieces = iter([body]) if isinstance(body, bytes) else body
        given = {"host": HERE, **({"content-type": "application/json"} if method == "POST" else {}), **headers}

        async def receive() -> dict[str, Any]:
            piece = next(pieces, None)
            if piece is None:
                await over.wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": not isinstance(body, bytes)}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                reply.body += message.get("body", b"")
                over.set()

        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode("utf-8", "surrogatepass"),
            "query_string": query.encode("ascii"), "client": ("127.0.0.1", 5), "scheme": "http", "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        }  # fmt: skip
        await self.app(scope, receive, send)
        for name, value in HEADERS.items():
            assert reply.headers.get(name.lower()) == value, f"{method} {path} lacks {name}"
        assert not [name for name in reply.headers if name.startswith("access-control")]
        if path.startswith("/api"):
            assert reply.headers["cache-control"] == "no-store"
        return reply

    def valid(self, route: Route) -> tuple[str, bytes]:
        """A query or a body that the route takes."""
        values: dict[str, Any] = {
            "run": self.run, "name": "reward.mean", "code": self.keys.issue_code(Person({"view"})),
            "target": self.alarm, "id": self.alarm if route.path == "/api/alarm" else self.rollout,
            "kind": "acknowledge", "step": 39, "reason": "", "nonce": secrets.token_hex(16), "task": "0" * 32,
            "answer": "a", "milliseconds": 5, "by": "logprob",
        }  # fmt: skip
        given = {name: values[name] for name in route.required}
        if route.method == "POST":
            return "", json.dumps(given).encode()
        if route.path == "/api/compare":
            runs = self.site.run_list.ids()
            return urlencode([("run", run) for run in runs]), b""
        return urlencode(given), b""


def made(path: Path, *, harm: bool = True) -> Path:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(40):
        rng = np.random.default_rng(step)
        reward = rng.normal(size=16)
        batch = from_columns(
            step, np.repeat(np.arange(4), 4), reward=reward, gold=(reward < 0 if harm else reward > 0).astype(float),
            prompt=["what is 1 plus 1"] * 16, completion=["the answer is two"] * 16,
        )  # fmt: skip
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
    run.close_rank(0, 0, {"seen": 40, "written": 40})
    loop = MonitorLoop(run, Config.standard(), strict=True)
    loop.poll()
    loop.close()
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("dashboard")
    (folder / "canary.txt").write_text("CANARY-7f3a")
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    made(folder / "runs" / "a")
    made(folder / "runs" / "b", harm=False)
    keys = AccessTokens(raters=["alice"], control=True)
    site = ServerState(RunList([folder / "runs"]), keys, TrustedHosts(PORT))
    site.rate, site.control_rate = RateLimiter(UNLIMITED), RateLimiter(UNLIMITED)
    run = next(id for id in site.run_list.ids() if site.run_list.reader(id).name == "a")
    loop = asyncio.new_event_loop()
    site.run_list.reader(run).refresh()
    place = Place(App(site), site, keys, run, folder, "0-39-0", "", loop)
    place.alarm = place.ask("GET", "/api/alarms", place.tokens["view"], f"run={run}").json["rows"][0]["id"]
    yield place
    site.stream.close()
    loop.run_until_complete(asyncio.sleep(0.6))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


def requests_left(place: Place) -> set[str]:
    runs = place.folder / "runs"
    return {str(path) for folder in ("control", "gold", "notes") for path in runs.rglob(f"{folder}/**/*.json")}


# -- the table --------------------------------------------------------------------------------------------------------


def test_every_route_of_the_contract_is_in_the_table() -> None:
    types = (Path(__file__).parents[3] / "web" / "src" / "types.ts").read_text()
    named = set(re.findall(r"(GET|POST) (/api/[a-z/]+)", types))
    assert named == {(route.method, route.path) for route in ROUTES} - {("GET", "/api/report")}
    assert len({route.path for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_only_the_same_origin_with_the_right_token_is_answered(place: Place, route: Route) -> None:
    """Hosts, origins, methods and tokens in every combination; what must be refused is refused for the right reason."""
    answered = 0
    enough = {"open": {"none", "view", "label", "control"}, "view": {"view", "control"}, "label": {"label"}}
    enough["control"] = {"control"}
    unknown_task = 404 if route.path == "/api/label" else route.status
    tokens = place.tokens
    for host, origin, method, who in itertools.product(HOSTS, ORIGINS, METHODS, tokens):
        query, body = place.valid(route) if method == route.method else ("", b"")
        origin = f"http://{host}" if origin == "same" else origin
        headers = {"host": host, **tokens[who], **({"origin": origin} if origin else {})}
        reply = place.ask(method, route.path, headers, query, body)
        if host not in HOSTS[:2]:
            expected = {400}
        elif origin not in (None, f"http://{host}"):
            expected = {403}
        elif method != route.method:
            expected = {405}
        elif who not in enough[route.role]:
            expected = {401} if who == "none" else {403}
        else:
            expected, answered = {unknown_task}, answered + 1
        assert reply.status in expected, (host, origin, method, who, reply.status, reply.body[:200])
        if expected == {405}:
            assert reply.headers["allow"] == route.method
    names_and_origins = 2 + 2 + 1  # both names, with no origin or their own, and localhost once more
    assert answered == names_and_origins * len(enough[route.role])


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "SAME-ORIGIN", ""])
def test_what_another_site_asks_is_refused_on_every_route(place: Place, site: str) -> None:
    token = place.tokens["control"]
    for route in ROUTES:
        query, body = place.valid(route)
        reply = place.ask(route.method, route.path, {**token, "sec-fetch-site": site}, query, body)
        assert reply.status == 403, route.path
    assert place.ask("GET", "/", {"sec-fetch-site": site}).status == (200 if site == "none" else 403)


def test_unknown_missing_repeated_and_malformed_parameters_are_refused(place: Place) -> None:
    token = place.tokens["control"]
    for route in ROUTES:
        who = place.tokens["label"] if route.role == "label" else token
        query, body = place.valid(route)
        if route.method == "GET":
            wrong = [(f"{query}&extra=1", b""), (f"{query}&run=%ff", b""), ("&&", b""), ("a" * 9000, b"")]
            wrong += [("", b"")] if route.required else []
            wrong += [(f"{query}&{query}", b"")] if route.required and not route.repeatable else []
        else:
            told = json.loads(body) if body else {}
            wrong = [("", json.dumps({**told, "extra": 1}).encode()), ("extra=1", body)]
            wrong += [("", json.dumps({**told, name: [1]}).encode()) for name in route.params]
        for asked, content in wrong:
            reply = place.ask(route.method, route.path, who, asked, content)
            assert reply.status in (400, 414), (route.path, asked[:80], content[:80], reply.status)


def test_no_reply_tells_what_went_wrong_inside(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def broken(asked: ApiRequest) -> dict[str, Any]:
        raise ZeroDivisionError(f"at {place.folder}")

    app = App(place.site, {}, (Route("GET", "/api/broken", "view", broken),))
    other = Place(app, place.site, place.keys, place.run, place.folder, "", "", place.loop)
    reply = other.ask("GET", "/api/broken", place.tokens["view"])
    name = re.search(r"[0-9a-f]{12}", reply.json["error"])
    assert reply.status == 500 and name and name[0] in caplog.text and "ZeroDivisionError" in caplog.text
    assert "Zero" not in reply.json["error"] and str(place.folder) not in reply.json["error"]


# -- paths ------------------------------------------------------------------------------------------------------------

OPENED: list[str] = []
WATCHING = threading.Event()


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if WATCHING.is_set() and event == "open" and isinstance(arguments[0], (str, bytes)):
        OPENED.append(os.fsdecode(arguments[0]))


def traversals(canary: Path, count: int) -> list[str]:
    steps = ["..", "%2e%2e", "..%2f", "....//", "..\\", ".%00.", "\u2024\u2024", "%252e%252e", "..;", "\uff0e\uff0e"]
    tails = [str(canary), canary.name, "etc/passwd", "run.json", "events/0.jsonl"]
    heads = ["", "/", "file://", "\\\\", "~/", "0-39-", "C:", "\x00", "' OR read_text('", "http://127.0.0.1/", "$(cat "]
    found = [
        f"{head}{(step + '/') * depth}{tail}{end}"
        for depth in range(12)
        for head, step, tail, end in itertools.product(heads, steps, tails, ("", "%00", ".json"))
    ]
    rng = np.random.default_rng(6)
    return [found[k] for k in rng.choice(len(found), count, replace=False)]


def test_traversal_strings_in_every_parameter_read_nothing(place: Place) -> None:
    canary = place.folder / "canary.txt"
    sys.addaudithook(_listen)
    places = [(route, name) for route in ROUTES for name in route.params]
    tokens = place.tokens
    WATCHING.set()
    try:
        for number, text in enumerate(traversals(canary, size(300, 5000))):
            route, name = places[number % len(places)]
            query, body = place.valid(route)
            headers = tokens["label"] if route.role == "label" else tokens["control"]
            if route.method == "GET":
                kept = [part for part in query.split("&") if part and not part.startswith(f"{name}=")]
                query = "&".join([*kept, f"{name}={quote(text, safe='')}"])
            else:
                body = json.dumps({**json.loads(body), name: text}).encode()
            reply = place.ask(route.method, route.path, headers, query, body)
            allowed = (200, 202) if name in ("phrase", "reason", "find", "group") else ()
            assert reply.status in (400, 401, 404, 409, *allowed), (route.path, name, text, reply.status)
            assert b"CANARY" not in reply.body
    finally:
        WATCHING.clear()
    inside = str(place.folder / "runs")
    ours = (inside, str(place.folder / "state"))
    assert any(path.startswith(inside) for path in OPENED)  # the hook hears
    assert not [path for path in OPENED if str(place.folder) in path and not path.startswith(ours)]
    assert not [path for path in OPENED if "passwd" in path]


def test_addresses_are_a_fixed_list(place: Place) -> None:
    for path in ("//", "/index.html", "/../pyproject.toml", "/static/index.html", "/api/", "/api/fleet/", "/run.json"):
        assert place.ask("GET", path, place.tokens["view"]).status == 404, path


# -- control ----------------------------------------------------------------------------------------------------------


def test_random_control_requests_change_nothing(place: Place) -> None:
    """Nine in ten with a token that is none, the others with the right one and something else wrong."""
    rng = np.random.default_rng(14)
    before, right = requests_left(place), place.tokens["control"]
    kinds = ["acknowledge", "mute", "false_alarm", "ask_label", "approve", "reject", "undo", "apply", "beta", ""]
    kinds += ["tag", "note", "view", "archive", "remove"]
    statuses = set()
    for number in range(size(300, 10_000)):
        # Right in all but the target, which is none of the run's; or right in all but the step, which is not yet.
        body: dict[str, Any] = {
            "run": place.run, "kind": str(rng.choice(kinds)), "target": f"{rng.integers(2**48):012x}", "step": 39,
            "reason": "x", "nonce": f"{rng.integers(2**62):016x}",
        }  # fmt: skip
        headers = dict(right)
        if number % 10:
            body["target"], body["kind"] = place.alarm, "acknowledge"
            wrong = {"authorization": f"Bearer {rng.bytes(32).hex()}"} if number % 2 else {}
            headers |= {"tiltmeter-control": rng.bytes(32).hex(), **wrong}
        elif number % 20:
            body["target"], body["kind"], body["step"] = place.alarm, "acknowledge", int(rng.integers(40, 10**6))
        reply = place.ask("POST", "/api/control", headers, "", json.dumps(body).encode())
        statuses.add(reply.status)
        assert reply.status != 202
    assert requests_left(place) == before
    assert statuses == {400, 401, 403, 404, 409}


def test_a_request_counts_once_and_an_old_one_not_at_all(place: Place) -> None:
    token, before = place.tokens["control"], requests_left(place)
    body = {"run": place.run, "kind": "acknowledge", "target": place.alarm, "step": 39, "reason": ""}
    body["nonce"] = secrets.token_hex(16)
    first, again = (place.ask("POST", "/api/control", token, "", json.dumps(body).encode()) for _ in range(2))
    assert (first.status, again.status) == (202, 409)
    assert len(requests_left(place) - before) == 1
    assert first.json["request"].startswith("note-")
    other = {**body, "kind": "ask_label", "target": "0-5-1"}
    assert place.ask("POST", "/api/control", token, "", json.dumps(other).encode()).status == 409, "the nonce is spent"
    assert len(requests_left(place) - before) == 1


def test_a_label_can_be_asked_for_one_rollout_and_lies_apart_from_what_was_drawn(place: Place) -> None:
    token, before = place.tokens["control"], requests_left(place)
    wrong = ("0-7000-3", "../../x", "0-7-3.json", "0-7-16")
    for target, status in (("0-7-3", 202), ("0-7-3", 409), *((one, 404) for one in wrong)):
        body = {"run": place.run, "kind": "ask_label", "target": target, "step": 39, "reason": "odd"}
        body["nonce"] = secrets.token_hex(16)
        assert place.ask("POST", "/api/control", token, "", json.dumps(body).encode()).status == status, target
    (left,) = requests_left(place) - before
    assert left.endswith("gold/picked/0-7-3.json") and json.loads(Path(left).read_text())["picked"] is True


def test_a_tag_needs_the_control_token_and_is_stored_with_its_author(place: Place) -> None:
    body = {"run": place.run, "kind": "tag", "target": "0-7-3", "step": 39, "reason": "cheats"}
    before = requests_left(place)

    def send(who: str, **changes: str) -> int:
        sent = {**body, **changes, "nonce": secrets.token_hex(16)}
        return place.ask("POST", "/api/control", place.tokens[who], "", json.dumps(sent).encode()).status

    assert [send(who) for who in ("none", "view", "label")] == [401, 403, 403] and requests_left(place) == before
    assert send("control") == 202 and send("control") == 409, "a tag stands once"
    assert [send("control", target=target) for target in ("0-7-99", "9-7-3", "../x")] == [404, 404, 404]
    assert send("control", reason="two words") == 409 and send("control", kind="archive", target="0-7-3") == 409
    (left,) = requests_left(place) - before
    entry = json.loads(Path(left).read_text())
    assert (entry["kind"], entry["target"], entry["text"], entry["author"]) == ("tag", "0-7-3", "cheats", user_name())
    notes = place.ask("GET", "/api/notes", place.tokens["view"], f"run={place.run}&target=0-7-3").json
    assert [row["text"] for row in notes["rows"]] == ["cheats"] and notes["tags"] == [{"tag": "cheats", "count": 1}]
    found = place.ask("GET", "/api/rollouts", place.tokens["view"], f"run={place.run}&find=tag:cheats")
    deadline = time.monotonic() + 60
    while found.json["ready"] < 1 and time.monotonic() < deadline:
        found = place.ask("GET", "/api/rollouts", place.tokens["view"], f"run={place.run}&find=tag:cheats")
    assert [(row["id"], row["tags"]) for row in found.json["rows"]] == [("0-7-3", ["cheats"])]
    assert send("control", kind="remove", reason=notes["rows"][0]["id"]) == 202
    again = place.ask("GET", "/api/rollouts", place.tokens["view"], f"run={place.run}&find=tag:cheats").json
    assert again["rows"] == [] and Path(left).exists(), "nothing is deleted"


def test_an_archived_run_is_hidden_and_counted_and_can_be_shown(place: Place) -> None:
    def fleet(find: str = "") -> Any:
        return place.ask("GET", "/api/fleet", place.tokens["view"], urlencode({"find": find})).json

    def send(kind: str, reason: str = "") -> int:
        sent = {"run": place.run, "kind": kind, "target": "", "step": 39, "reason": reason}
        sent["nonce"] = secrets.token_hex(16)
        return place.ask("POST", "/api/control", place.tokens["control"], "", json.dumps(sent).encode()).status

    before = fleet()
    assert {row["name"]: row["state"] for row in before["runs"]}["a"] == "ACT" and before["hidden"] == {}
    assert send("tag", "keep") == 202 and send("archive", "old settings") == 202
    hidden = fleet()
    assert [row["name"] for row in hidden["runs"]] == ["b"] and hidden["total"] == before["total"] - 1
    assert hidden["hidden"] == {"ACT": 1}, "one that needs a person is counted"
    assert [row["name"] for row in fleet("archived:yes")["runs"]] == ["a"]
    shown = fleet("archived:any")
    assert {row["name"]: row["archived"] for row in shown["runs"]} == {"a": True, "b": False} and shown["hidden"] == {}
    assert [row["name"] for row in fleet("tag:keep archived:any")["runs"]] == ["a"]
    notes = place.ask("GET", "/api/notes", place.tokens["view"], f"run={place.run}").json
    assert notes["archived"] and send("remove", notes["rows"][-1]["id"]) == 202
    assert {row["name"] for row in fleet()["runs"]} == {"a", "b"} and fleet()["tags"] == ["keep"]


def test_a_server_that_was_not_told_to_act_says_how(place: Place) -> None:
    place.keys.control = False
    try:
        reply = place.ask("POST", "/api/control", place.tokens["control"], "", b"{}")
    finally:
        place.keys.control = True
    assert reply.status == 403 and "--control" in reply.json["error"]


# -- tokens and codes -------------------------------------------------------------------------------------------------


def test_a_code_works_once_and_not_after_ten_minutes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(code: str) -> Reply:
        return place.ask("POST", "/api/login", {}, "", json.dumps({"code": code}).encode())

    code = place.keys.issue_code(Person({"view"}))
    assert swap(code).json["roles"] == ["view"] and swap(code).status == 401
    assert swap("").status == 401 and swap("x" * 101).status == 400
    monkeypatch.setattr(access, "CODE_SECONDS", -1.0)
    assert swap(place.keys.issue_code(Person({"view"}))).status == 401


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads that take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
def test_of_many_who_swap_a_code_at_once_one_gets_the_token(tmp_path: Path) -> None:
    keys = AccessTokens(tmp_path / "state")
    for _ in range(size(600, 5000)):
        keys.issue_code(Person({"view"}))  # the more are open, the longer a swap takes
    for _ in range(50):
        code, together = keys.issue_code(Person({"view"})), threading.Barrier(4)
        got: list[str] = []

        def swap(code: str = code, together: threading.Barrier = together, got: list[str] = got) -> None:
            together.wait()
            with suppress(access.RequestError):
                got.append(keys.redeem_code(code)[0])

        threads = [threading.Thread(target=swap) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1


def test_a_label_token_is_bound_to_its_rater_and_to_those_who_were_named(place: Place) -> None:
    keys = place.keys
    alice = keys.redeem_code(keys.issue_code(Person({"label"}, "alice")))[0]
    assert keys.person_of(alice) == Person({"label"}, "alice")
    for wrong in (alice.replace("alice", "bob"), alice.replace("alice", ""), f"alice.{'0' * 64}", "", "é"):
        assert keys.person_of(wrong) is None
    assert AccessTokens(raters=["bob"]).person_of(alice) is None
    with pytest.raises(AttachError, match="no name"):
        AccessTokens(raters=["../alice"])


def test_tokens_lie_in_files_that_nobody_else_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    keys = AccessTokens(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["control.token", "label.token", "view.token"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 and len(path.read_text()) == 64 for path in files)
    assert len({path.read_text() for path in files}) == 3
    again = AccessTokens(folder)
    token = keys.redeem_code(keys.issue_code(Person({"view"})))[0]
    assert again.person_of(token) == Person({"view"})  # a restart keeps pages logged in
    files[0].chmod(0o644)
    with pytest.raises(AttachError, match="chmod 600"):
        AccessTokens(folder)
    files[0].unlink()
    files[0].symlink_to(files[1])
    with pytest.raises(AttachError, match="cannot read"):
        AccessTokens(folder)
    folder.chmod(0o755)
    with pytest.raises(AttachError, match="chmod 700"):
        AccessTokens(folder)


def test_a_rater_gets_tasks_answers_them_and_takes_an_answer_back_and_sees_nothing_else(
    place: Place, tmp_path: Path
) -> None:
    run = RunDirectory.create(tmp_path / "judged")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(3):
        reward = np.random.default_rng(step).normal(size=32)
        batch = from_columns(
            step, np.repeat(np.arange(4), 8), reward=reward, prompt=["what is 1 plus 1"] * 32,
            completion=[f"number {row}" for row in range(32)],
        )  # fmt: skip
        run.write(batch, 0, {"counters": {"seen": step + 1}})
    watch = MonitorLoop(run, Config.standard().with_gold(PeopleSource(1), 0.5), strict=True)
    watch.poll()
    site = ServerState(RunList([tmp_path]), place.keys, TrustedHosts(PORT))
    other = Place(App(site), site, place.keys, site.run_list.ids()[0], tmp_path, "", "", place.loop)
    token = place.tokens["label"]
    task = other.ask("GET", "/api/label/next", token).json
    assert task["task"] and task["rater"] == "alice" and len(task["texts"]) == 2
    said = {"task": task["task"], "answer": "a", "milliseconds": 900}
    after = other.ask("POST", "/api/label", token, "", json.dumps(said).encode()).json
    assert after["done"] == 1 and after["task"] != task["task"]
    back = other.ask("POST", "/api/label/undo", token, "", b"{}").json
    assert (back["task"], back["texts"], back["done"]) == (task["task"], task["texts"], 0)
    assert not {"reward", "step", "attempt", "run", "weight", "chance"} & {*task, *after, *back}
    assert {route.path for route in ROUTES if route.role == "label"} == {
        "/api/label/next", "/api/label", "/api/label/undo",
    }  # fmt: skip
    watch.close()


# -- limits -----------------------------------------------------------------------------------------------------------


def test_bodies_are_limited_before_they_are_read(place: Place) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield b"[" * 65_536

    began = time.monotonic()
    ask: Callable[..., Reply] = lambda body, **headers: place.ask(  # noqa: E731
        "POST", "/api/login", {name.replace("_", "-"): value for name, value in headers.items()}, "", body
    )
    assert ask(endless()).status == 413 and sent < 1_200_000
    assert ask(b"{}", content_length="2000000").status == 413
    assert ask(gzip.compress(b" " * 10_000_000), content_encoding="gzip").status == 415
    assert ask(b'{"code": ' + b"[" * 100_000 + b"]" * 100_000 + b"}").status == 400
    assert ask(b'{"code": ' + b"[" * 40 + b"]" * 40 + b"}").status == 400
    for wrong in (b"", b"[]", b'{"code": NaN}', b"\xff", b'{"code": 1' + b"0" * 5000 + b"}", b'"x"'):
        assert ask(wrong).status == 400, wrong[:20]
    assert ask(b'{"code": "x"}', content_type="text/plain").status == 415
    assert ask(b"code=x", content_type="application/x-www-form-urlencoded").status == 415
    assert time.monotonic() - began < 5.0


def test_a_body_that_does_not_come_is_not_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.2)
    began = time.monotonic()
    assert place.ask("POST", "/api/login", {}, "", iter([b'{"code": '])).status == 408
    assert time.monotonic() - began < 5.0


def test_a_full_disk_is_told_to_whoever_acts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    body = {"run": place.run, "kind": "ask_label", "target": "0-9-3", "step": 39, "reason": "odd"}
    body["nonce"] = secrets.token_hex(16)
    reply = place.ask("POST", "/api/control", place.tokens["control"], "", json.dumps(body).encode())
    assert reply.status == 507 and "No space" in reply.json["error"]


def test_whoever_asks_too_often_waits_and_nobody_else(place: Place) -> None:
    tokens = place.tokens
    place.site.rate = RateLimiter(100.0)
    try:
        statuses = [place.ask("GET", "/api/fleet", {}).status for _ in range(300)]
        assert 401 in statuses and statuses.count(429) > 100
        assert place.ask("GET", "/api/alarms", tokens["view"], f"run={place.run}").status == 200
    finally:
        place.site.rate = RateLimiter(UNLIMITED)


def test_files_of_the_page_are_packed_once_and_kept_for_ever_by_browsers(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "index-DYY_nk0J.js").write_text("0")
    (tmp_path / "report.js").write_text("0")
    (tmp_path / "secret.toml").write_text("0")
    (tmp_path / "link-12345678.js").symlink_to(tmp_path / "secret.toml")
    found = assets(tmp_path)
    assert set(found) == {"/", "/index-DYY_nk0J.js", "/report.js"}
    assert found["/"].cache == found["/report.js"].cache == "no-store"
    assert "immutable" in found["/index-DYY_nk0J.js"].cache
    assert "make page" in assets(tmp_path / "nothing")["/"].plain.decode()


# -- listening --------------------------------------------------------------------------------------------------------


def test_other_addresses_than_loopback_are_refused_without_auth() -> None:
    assert not bind_refusal("127.0.0.1", auth=False, trusted=[]) and not bind_refusal("::1", auth=False, trusted=[])
    for host in ("0.0.0.0", "::", "10.0.0.4", "node7", ""):
        assert "--auth" in bind_refusal(host, auth=False, trusted=["lab"])
    assert "--trusted-host" in bind_refusal("0.0.0.0", auth=True, trusted=[])
    assert not bind_refusal("0.0.0.0", auth=True, trusted=["lab.example"])
    assert TrustedHosts(1, host="0.0.0.0").origins("0.0.0.0:1") == frozenset()
    names = TrustedHosts(8787, ["lab.example", "localhost:9000"])
    assert names.origins("LAB.example") and names.origins("lab.example:8787") and names.origins("localhost:9000")
    assert not names.origins("lab.example:9") and not names.origins("lab.example.evil")
    with pytest.raises(AttachError, match="no host name"):
        TrustedHosts(1, ["http://lab"])


def view(*arguments: str | Path, state: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tiltmeter", "view", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_STATE_HOME": str(state)},
    )  # fmt: skip


def test_the_command_refuses_what_it_must_not_listen_on(place: Place, tmp_path: Path) -> None:
    process = view(place.folder / "runs", "--host", "0.0.0.0", state=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and "--auth" in err and not out


def test_the_command_serves_a_page_to_whoever_has_the_code_and_ends_quietly(place: Place, tmp_path: Path) -> None:
    """Over a port, then over a Unix socket; a port that is taken gives another one."""
    first = view(place.folder / "runs", "--port", "0", "--json", "--raters", "alice,bob", state=tmp_path / "state")
    assert first.stdout is not None
    told = json.loads(first.stdout.readline())
    path = tmp_path / "view.sock"
    taken = str(told["port"])
    others = [
        view(place.folder / "runs", "--port", taken, "--json", state=tmp_path / "state"),
        view(place.folder / "runs", "--socket", path, "--json", state=tmp_path / "state"),
    ]
    lines = [json.loads(other.stdout.readline()) for other in others if other.stdout is not None]
    try:
        assert set(told["raters"]) == {"alice", "bob"} and lines[0]["port"] != told["port"]
        base, _, code = told["url"].partition("#code=")
        with httpx.Client(base_url=base, trust_env=False) as client:
            assert client.get("/").status_code == 200
            token = client.post("/api/login", json={"code": code}).json()["token"]
            fleet = client.get("/api/fleet", headers={"Authorization": f"Bearer {token}"})
            assert {row["name"] for row in fleet.json()["runs"]} == {"a", "b"}
            assert client.get("/api/fleet", headers={"Host": "evil.example"}).status_code == 400
            assert "server" not in fleet.headers
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://127.0.0.1:8787") as client:
            deadline = time.monotonic() + 10
            while client.get("/").status_code != 200:
                assert time.monotonic() < deadline
    finally:
        for process in (first, *others):
            process.send_signal(signal.SIGINT)
        ended = [process.communicate(timeout=300) for process in (first, *others)]
    assert [process.returncode for process in (first, *others)] == [0, 0, 0]
    assert [err for _, err in ended] == ["", "", ""]
    assert not path.exists()
