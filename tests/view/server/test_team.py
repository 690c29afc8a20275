"""The server of a team: accounts by invitation or by a proxy, roles on every route, names on every act."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sqlite3
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

import httpx
from tests.sizes import size

from tiltmeter.cli.serve import serve as serve_verb
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.gold.label_files import read_request
from tiltmeter.gold.people import PeopleSource, RaterAnswers
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.reading_room.notes import RunNotes
from tiltmeter.rundir.remote.follow_store import StoreFollower
from tiltmeter.rundir.remote.objects import DiskFolder
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.remote.writer_lease import WriterLease
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.people import Failure
from tiltmeter.view.screens.history import build_history
from tiltmeter.view.server import labelling
from tiltmeter.view.server.access import RateLimiter, RequestError, TrustedHosts
from tiltmeter.view.server.app import App
from tiltmeter.view.server.routes import ROUTES, Route
from tiltmeter.view.server.run_list import RunList
from tiltmeter.view.server.state import ApiRequest, ServerState
from tiltmeter.view.server.team import accounts
from tiltmeter.view.server.team.access import TeamAccess
from tiltmeter.view.server.team.accounts import AccountBook
from tiltmeter.view.server.team.proxy import SECRET_HEADER, ProxySignIn, parse_networks
from tiltmeter.view.server.team.start import TeamOptions, copy_places, open_team_server

HOST = "lab.example"
PROXY, STRANGER = "10.0.0.7", "10.0.9.9"
HEADER = "x-forwarded-email"
SECRET = "5" * 64
#: What each route needs, said a second time: a route that is not here, or needs something else, fails.
NEEDS = {
    "open": {"login", "me"},
    "view": {
        "fleet", "summary", "plots", "geometry", "series", "readings", "rollouts", "rollout", "group", "members",
        "tokens", "phrases", "pinned", "alarms", "alarm", "actions", "compare", "verifier", "health", "report",
        "stream", "notes",
    },
    "label": {"label/next", "label", "label/undo"},
    "control": {"control"},
}  # fmt: skip
MAY = {"view": {"view"}, "label": {"label"}, "control": {"view", "control"}, "view,label": {"view", "label"}}


@dataclass
class Answered:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Team:
    app: App
    state: ServerState
    book: AccountBook
    run: str
    folder: Path

    def ask(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        query: str = "",
        body: object = None,
        client: str = STRANGER,
        host: str = HOST,
    ) -> Answered:
        """Straight into the application, with headers that no client library would send. The proxy sends its secret."""
        if client.endswith(PROXY):
            headers = [*headers, (SECRET_HEADER, SECRET)]
        return asyncio.run(self._ask(method, path, [("host", host), *headers], query, body, client))

    async def _ask(
        self, method: str, path: str, headers: list[tuple[str, str]], query: str, body: object, client: str
    ) -> Answered:
        reply, started, sent = Answered(), asyncio.Event(), False
        content = b"" if body is None else json.dumps(body).encode()
        if method == "POST":
            headers = [*headers, ("content-type", "application/json")]

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.sleep(3600)
            sent = True
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = [(name.decode(), value.decode()) for name, value in message["headers"]]
            else:
                reply.body += message.get("body", b"")
                started.set()

        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "scheme": "http",
            "query_string": query.encode("ascii"), "client": (client, 5), "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        }  # fmt: skip
        work = asyncio.ensure_future(self.app(scope, receive, send))
        first = asyncio.ensure_future(started.wait())  # a stream never ends
        await asyncio.wait({work, first}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, first):
            task.cancel()
        await asyncio.gather(work, first, return_exceptions=True)
        return reply

    def sign_in(self, name: str, roles: str) -> tuple[str, str]:
        """The header of a new session."""
        token, _ = self.book.redeem_code(self.book.invite(name, roles.split(",")))
        return "authorization", f"Bearer {token}"


def run_with_people(path: Path, steps: int = 6, raters: int = 1, word: str = "number") -> RunDirectory:
    """A run that asks people, with alarms."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        reward = np.random.default_rng(step).normal(size=32)
        batch = from_columns(
            step, np.repeat(np.arange(4), 8), reward=reward, prompt=["what is 1 plus 1"] * 32,
            completion=[f"{word} {step} {row}" for row in range(32)],
        )  # fmt: skip
        run.write(batch, 0, {"counters": {"seen": step + 1}})
    loop = MonitorLoop(run, Config.standard().with_gold(PeopleSource(raters), 0.5), strict=True)
    loop.poll()
    loop.close()
    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_with_people(tmp_path_factory.mktemp("recorded") / "a").path


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Path) -> Iterator[Team]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    labelling._SESSIONS.clear()
    labelling._ASSIGNMENTS.clear()
    labelling._secret_in.cache_clear()
    shutil.copytree(recorded, tmp_path / "runs" / "a")
    book = AccountBook(tmp_path / "state" / "server")
    proxy = ProxySignIn(HEADER, frozenset({"view"}), secret=SECRET, networks=parse_networks([f"{PROXY}/32"]))
    state = ServerState(RunList([tmp_path / "runs"]), TeamAccess(book, proxy), TrustedHosts(8787, [HOST]))
    state.rate, state.control_rate = RateLimiter(1e9), RateLimiter(1e9)
    [run] = state.run_list.ids()
    yield Team(App(state, {"/": _page()}), state, book, run, tmp_path)
    state.stream.close()


def _page() -> Any:
    from tiltmeter.view.server.app import Asset

    return Asset(b"page", b"", "text/html", "no-store")


def a_request(team: Team, route: Route) -> tuple[str, Any]:
    """A query or a body that the route takes."""
    values: dict[str, Any] = {
        "run": team.run, "name": "reward.mean", "target": "0-1-2",
        "id": "0-1-2", "kind": "ask_label", "step": 5, "reason": "", "nonce": secrets.token_hex(16),
        "task": "0" * 32, "answer": "a", "milliseconds": 5, "by": "logprob",
    }  # fmt: skip
    if "code" in route.required:
        values["code"] = team.book.invite("guest", ["view"])
    chosen = {name: values[name] for name in route.required}
    return ("", chosen) if route.method == "POST" else (urlencode(chosen), None)


# -- roles ------------------------------------------------------------------------------------------------------------


def test_every_route_has_a_role_that_this_test_knows() -> None:
    assert {
        role: {route.path.removeprefix("/api/") for route in ROUTES if route.role == role} for role in NEEDS
    } == NEEDS
    assert {route.role for route in ROUTES} <= NEEDS.keys()


def test_each_role_may_ask_the_routes_of_its_own_and_no_other(team: Team) -> None:
    """Every route, by every role, by token and through the proxy; also a revoked account, nobody, and a wrong token."""
    people: dict[str, tuple[list[tuple[str, str]], str, set[str]]] = {
        "nobody": ([], STRANGER, set()),
        "wrong token": ([("authorization", "Bearer x")], STRANGER, set()),
        "two tokens": ([team.sign_in("twin", "control"), team.sign_in("twin", "control")], STRANGER, set()),
    }
    for roles, may in MAY.items():
        name = roles.replace(",", "-")
        people[f"{roles} by token"] = ([team.sign_in(name, roles)], STRANGER, may)
        named = [(HEADER, name), ("origin", f"http://{HOST}")]
        people[f"{roles} by proxy"] = (named, PROXY, may)
        people[f"{roles}, header from elsewhere"] = (named, STRANGER, set())
    revoked = team.sign_in("gone", "control")
    team.book.revoke("gone")
    people["revoked by token"] = ([revoked], STRANGER, set())
    people["revoked by proxy"] = ([(HEADER, "gone"), ("origin", f"http://{HOST}")], PROXY, set())
    people["unknown to us, known to the proxy"] = (
        [(HEADER, "new@lab.example"), ("origin", f"http://{HOST}")],
        PROXY,
        {"view"},
    )
    answered = refused = 0
    # What a route answers with takes long and is tested elsewhere; who gets there is the question.
    routes = tuple(replace(route, handler=lambda _: Failure(error="")) for route in ROUTES)
    team = replace(team, app=App(team.state, {}, routes))
    for route in routes:
        for who, (headers, client, may) in people.items():
            query, body = a_request(team, route)
            status = team.ask(route.method, route.path, headers, query, body, client).status
            if route.role == "open" or route.role in may:
                assert status not in (401, 403), (who, route.path, status)
                answered += 1
            else:
                assert status in (401, 403), (who, route.path, status)
                refused += 1
    assert answered > 100 and refused > 250


def test_the_matrix_fails_on_a_route_with_too_wide_a_role(team: Team) -> None:
    """The control of the test above: a route for nobody in particular answers nobody in particular."""

    def shown(request: ApiRequest) -> str:
        return "all"

    app = App(team.state, {}, (Route("GET", "/api/leak", "open", shown),))
    assert Team(app, team.state, team.book, team.run, team.folder).ask("GET", "/api/leak").status == 200


# -- invitations, sessions, names -------------------------------------------------------------------------------------


def test_an_invitation_works_once_also_when_many_try_at_once(team: Team) -> None:
    code = team.book.invite("alice", ["view"])
    together = threading.Barrier(8)

    def redeem(_: int) -> str:
        together.wait()
        try:
            return AccountBook(team.book.path.parent).redeem_code(code)[0]
        except RequestError:
            return ""

    with ThreadPoolExecutor(8) as threads:
        tokens = [token for token in threads.map(redeem, range(8)) if token]
    assert len(tokens) == 1 and team.book.find_session(tokens[0]) == "alice"


def test_a_session_cannot_be_chosen_and_ends(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    code = team.book.invite("alice", ["view"])
    reply = team.ask(
        "POST", "/api/login", [("authorization", "Bearer mine"), ("cookie", "token=mine")], "", {"code": code}
    )
    token = reply.json["token"]
    assert reply.status == 200 and token not in (code, "mine") and len(token) >= 43
    assert team.book.find_session("mine") is None and team.book.find_session(code) is None
    assert team.ask("GET", "/api/fleet", [], f"token={token}").status == 401  # never by the address
    assert team.ask("GET", "/api/fleet", [("cookie", f"token={token}")]).status == 401  # and never by a cookie
    assert team.ask("GET", "/api/fleet", [("authorization", f"Bearer {token}")]).status == 200
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + accounts.SESSION_SECONDS + 1)
    assert team.book.find_session(token) is None


def test_an_invitation_ends_after_a_week_and_with_the_next_one(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = team.book.invite("alice", ["view"]), team.book.invite("alice", ["label"])
    with pytest.raises(RequestError):
        team.book.redeem_code(first)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + accounts.INVITATION_SECONDS + 1)
    with pytest.raises(RequestError):
        team.book.redeem_code(second)


def test_no_reply_sets_a_cookie(team: Team) -> None:
    token = team.sign_in("alice", "control,label")
    for route in ROUTES:
        query, body = a_request(team, route)
        for headers in ([], [token]):
            reply = team.ask(route.method, route.path, headers, query, body)
            assert "set-cookie" not in {name.lower() for name, _ in reply.headers}, route.path


def test_a_revocation_counts_from_the_next_request_on(team: Team) -> None:
    token = team.sign_in("alice", "control")
    assert team.ask("GET", "/api/fleet", [token]).status == 200
    AccountBook(team.book.path.parent).revoke("Alice")  # another process
    assert team.ask("GET", "/api/fleet", [token]).status == 401
    assert team.ask("GET", "/api/fleet", [(HEADER, "alice")], client=PROXY).status == 403


def test_no_secret_lies_in_the_state_folder(team: Team) -> None:
    code = team.book.invite("bob", ["view"])
    token = team.sign_in("alice", "control")[1].removeprefix("Bearer ")
    with sqlite3.connect(team.book.path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in team.book.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        content = path.read_bytes()
        assert code.encode() not in content and token.encode() not in content
    assert team.book.path.stat().st_size > 0


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "é", "a\nb", "-x", "a,b"])
def test_a_name_that_is_none_is_refused(team: Team, name: str) -> None:
    with pytest.raises(AttachError):
        team.book.invite(name, ["view"])


def test_roles_that_are_none_are_refused(team: Team) -> None:
    for roles in (["admin"], [""], []):
        with pytest.raises(AttachError):
            team.book.invite("alice", roles)


# -- the proxy --------------------------------------------------------------------------------------------------------


def test_the_proxys_header_counts_from_the_proxy_alone(team: Team) -> None:
    team.book.invite("alice", ["control"])
    header = [(HEADER, "alice")]
    assert team.ask("GET", "/api/fleet", header, client=PROXY).status == 200
    assert team.ask("GET", "/api/fleet", header, client=f"::ffff:{PROXY}").status == 200
    for client in (STRANGER, "127.0.0.1", "::1", "10.0.0.70", "socket", "uid 0", ""):
        for secret in ([], [(SECRET_HEADER, SECRET)]):
            assert team.ask("GET", "/api/fleet", [*header, *secret], client=client).status == 401, client


def test_a_header_that_was_smuggled_in_is_nobody(team: Team) -> None:
    """Twice, joined by a comma, with another spelling of its name, or with something behind the name."""
    team.book.invite("alice", ["control"])
    for headers in (
        [(HEADER, "bob"), (HEADER, "alice")],
        [(HEADER, "bob, alice")],
        [(HEADER, "alice\r\nx: y")],
        [(HEADER, "")],
        [(HEADER, "alice bob")],
    ):
        assert team.ask("GET", "/api/fleet", headers, client=PROXY).status == 400, headers
    for header in ("x_forwarded_email", "forwarded", "x-forwarded-user", "x-forwarded-for"):
        assert team.ask("GET", "/api/fleet", [(header, "alice")], client=PROXY).status == 401, header
    claims = [(HEADER, "carol"), ("x-forwarded-for", "alice"), team.sign_in("alice", "control")]
    me = team.ask("GET", "/api/me", claims, client=PROXY).json
    assert me["name"] == "carol" and me["roles"] == ["view"]  # who the proxy names, not who a token is of


def test_another_site_cannot_act_through_the_proxys_cookie(team: Team) -> None:
    team.book.invite("alice", ["control"])
    route = next(route for route in ROUTES if route.path == "/api/control")
    named = (HEADER, "alice")
    for headers, status in (
        ([("origin", "https://evil.example")], 403),
        ([("origin", "null")], 403),
        ([("sec-fetch-site", "cross-site")], 403),
        ([("sec-fetch-site", "same-site")], 403),
        ([], 403),  # nothing says which page asks
        ([("origin", f"https://{HOST}")], 202),
    ):
        _, body = a_request(team, route)
        assert team.ask("POST", route.path, [named, *headers], "", body, PROXY).status == status, headers
    plain = [named, ("origin", f"https://{HOST}"), ("content-type", "text/plain")]
    _, body = a_request(team, route)
    assert team.ask("POST", route.path, plain, "", body, PROXY).status == 415  # a form needs no leave of ours


def test_everybody_as_a_proxy_is_refused() -> None:
    for text in ("0.0.0.0/0", "::/0", "proxy.example", "10.0.0.1/8"):
        with pytest.raises(AttachError):
            parse_networks([text])


# -- acts and labels carry names --------------------------------------------------------------------------------------


def test_an_act_stands_in_the_journal_with_its_author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = RunDirectory.create(tmp_path / "runs" / "a")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(40):
        reward = np.random.default_rng(step).normal(size=16)
        gold = (reward < 0).astype(float)
        run.write(from_columns(step, np.repeat(np.arange(4), 4), reward=reward, gold=gold), 0, {})
    loop = MonitorLoop(run, Config.standard(), strict=True)
    loop.poll()
    book = AccountBook(tmp_path / "state" / "server")
    state = ServerState(RunList([tmp_path / "runs"]), TeamAccess(book), TrustedHosts(8787, [HOST]))
    [id] = state.run_list.ids()
    team = Team(App(state, {}), state, book, id, tmp_path)
    token = team.sign_in("alice", "control")
    alarm = team.ask("GET", "/api/alarms", [token], f"run={id}").json["rows"][0]["id"]
    body = {"run": id, "kind": "acknowledge", "target": alarm, "step": 39, "reason": "seen", "nonce": "n" * 16}
    assert team.ask("POST", "/api/control", [token], "", body).status == 202
    loop.poll()
    loop.close()
    decisions = [event.data for event in read_events(run.path / "events") if event.data.get("note") == "decision"]
    assert [decision["told"]["author"] for decision in decisions] == ["alice"]
    texts = [entry.text for entry in build_history(read_events(run.path / "events")).entries]
    assert any(text.startswith("Acknowledged") and text.endswith("by alice: seen") for text in texts), texts


def test_a_comment_carries_the_name_of_the_account(team: Team) -> None:
    token = team.sign_in("alice", "control")
    for target in ("0-3", "0-3-1"):  # a step, and a rollout
        body = {
            "run": team.run, "kind": "note", "target": target, "step": 5, "reason": "look here",
            "nonce": secrets.token_hex(16),
        }  # fmt: skip
        assert team.ask("POST", "/api/control", [token], "", body).status == 202
    notes = RunNotes(team.state.run_list.reader(team.run).run.path)
    notes.poll()
    for target in ("0-3", "0-3-1"):
        assert [(entry.author, entry.text) for entry in notes.of(target).values()] == [("alice", "look here")]


def test_of_many_raters_at_once_no_label_is_lost_or_doubled(team: Team) -> None:
    """Raters in threads answer until nothing is left, each answer sent twice, as a browser does that lost the reply."""
    people = size(12, 50)
    tokens = {f"rater{number}": team.sign_in(f"rater{number}", "label") for number in range(people)}
    together, mine = threading.Barrier(people), {name: set[str]() for name in tokens}
    troubles: list[str] = []

    def rate(name: str) -> None:
        together.wait()
        task = team.ask("GET", "/api/label/next", [tokens[name]]).json
        while task.get("task") and len(mine[name]) < 40:
            body = {"task": task["task"], "answer": "a" if task["kind"] == "pair" else "1", "milliseconds": 700}
            replies = [team.ask("POST", "/api/label", [tokens[name]], "", body) for _ in range(2)]
            if [reply.status for reply in replies] != [200, 200]:
                troubles.append(f"{name}: {[reply.body[:200] for reply in replies]}")
                return
            mine[name].add(task["task"])
            task = replies[-1].json

    with ThreadPoolExecutor(people) as threads:
        list(threads.map(rate, tokens))
    assert not troubles, troubles[:3]
    run = team.state.run_list.reader(team.run).run
    stored: dict[str, int] = dict.fromkeys(tokens, 0)
    seen = set()
    for step in range(6):
        request = read_request(run, 0, step)
        if request is None:
            continue
        for answer in RaterAnswers(run, request).read_new().standing:
            key = (answer.rater, step, frozenset(answer.shown), answer.repeat)
            assert key not in seen, f"twice: {key}"
            seen.add(key)
            stored[answer.rater] += 1
    assert stored == {name: len(tasks) for name, tasks in mine.items()}
    assert sum(stored.values()) > 10


def test_a_rater_labels_a_run_of_which_the_server_has_only_a_copy(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is in a bucket: the answer reaches the machine that writes it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(team.folder / "cache"))
    run = RunDirectory(team.folder / "runs" / "a")
    folder = DiskFolder(team.folder / "store" / "a")
    lease = WriterLease(folder, "trainer")
    lease.take()
    writer = Uploader(run, folder, lease)
    writer.cycle()
    follower = StoreFollower([f"file://{team.folder}/store"])
    follower.look()
    team.state.run_list = RunList([])
    team.state.run_list.more_roots = lambda: copy_places(follower)
    team.state.complete_copy = follower.complete
    token = team.sign_in("rater", "label")
    task = team.ask("GET", "/api/label/next", [token]).json
    assert task["task"], task
    body = {"task": task["task"], "answer": "a" if task["kind"] == "pair" else "1", "milliseconds": 700}
    assert team.ask("POST", "/api/label", [token], "", body).status == 200
    assert not (run.path / "gold" / "people").exists()  # not there yet
    writer.cycle()
    requests = [request for step in range(6) if (request := read_request(run, 0, step)) is not None]
    stored = [one for request in requests for one in RaterAnswers(run, request).read_new().standing]
    assert [(one.rater, one.answer) for one in stored] == [("rater", body["answer"])]


# -- the address: sub-paths, TLS, other hosts -------------------------------------------------------------------------


def test_a_sub_path_is_served_whether_or_not_the_proxy_takes_it_away(team: Team) -> None:
    team.state.root = "/tools/tilt"
    token = team.sign_in("alice", "view")
    for path in ("/tools/tilt/api/fleet", "/api/fleet"):
        assert team.ask("GET", path, [token]).status == 200, path
    assert team.ask("GET", "/tools/tilt/").body == b"page"
    bare = team.ask("GET", "/tools/tilt")
    assert bare.status == 308 and dict(bare.headers)["location"] == "/tools/tilt/"
    for path in ("/tools/tiltapi/fleet", "/tools/tilt//evil.example", "/tools/tilt/tools/tilt/api/fleet", "/tools"):
        assert team.ask("GET", path, [token]).status == 404, path


def test_a_server_that_would_not_be_safe_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def options(**other: Any) -> TeamOptions:
        return TeamOptions(**{"runs": [tmp_path], "addresses": [], "state": tmp_path / "state", "port": 0, **other})

    for other, words in (
        ({"host": "0.0.0.0"}, "without encryption"),
        ({"proxies": ["10.0.0.1"]}, "need --proxy-header"),
        ({"proxy_secret": tmp_path / "secret"}, "need --proxy-header"),
        ({"host": "0.0.0.0", "proxies": ["10.0.0.1"], "proxy_header": "X-Email"}, "--url"),
        ({"host": "0.0.0.0", "proxy_secret": tmp_path / "secret", "proxy_header": "X-Email"}, "without encryption"),
        ({"socket": tmp_path / "s"}, "go together"),
        ({"proxy_user": "root", "proxy_header": "X-Email"}, "go together"),
        ({"url": "lab.example"}, "--url"),
        ({"certificate": (tmp_path / "no.pem", tmp_path / "no.key")}, "certificate"),
        ({"proxy_header": "X-Email", "proxy_secret": tmp_path / "secret", "proxies": ["0.0.0.0/0"]}, "everybody"),
    ):
        with pytest.raises(AttachError, match=words):
            open_team_server(options(**other))
    open_team_server(options()).sock.close()


def test_the_real_server_speaks_tls_takes_an_invitation_and_ends(tmp_path: Path) -> None:
    run_with_people(tmp_path / "runs" / "a", steps=2)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    state = ["--state", str(tmp_path / "state" / "team")]
    verb = [sys.executable, "-m", "tiltmeter"]
    server = subprocess.Popen(
        [*verb, "serve", str(tmp_path / "runs"), "--port", "0", "--host", "localhost", "--tls-cert", cert,
         "--tls-key", key, *state, "--json"],
        stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        assert url.startswith("https://localhost:")
        book = AccountBook(tmp_path / "state" / "team")
        assert book.url() == url
        with httpx.Client(verify=ssl.create_default_context(cafile=str(cert)), timeout=60) as client:
            code = book.invite("alice", ["view"])
            token = client.post(f"{url}api/login", json={"code": code}).json()["token"]
            headers = {"Authorization": f"Bearer {token}"}
            assert client.get(f"{url}api/me", headers=headers).json()["name"] == "alice"
            assert client.get(f"{url}api/fleet", headers=headers).status_code == 200
            with client.stream("GET", f"{url}api/stream", headers=headers) as listening:
                lines = listening.iter_lines()
                assert next(lines).startswith("data: ")
                book.revoke("alice")
                began = time.monotonic()
                while time.monotonic() - began < 20.0 and next(lines, None) is not None:
                    pass
                assert time.monotonic() - began < 10.0  # at the next second; the machine may be busy
            assert client.get(f"{url}api/fleet", headers=headers).status_code == 401
        plain = url.replace("https", "http")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{plain}api/me", timeout=5)
    finally:
        server.terminate()
        assert server.wait(30) == 0
        server.stdout.close()


def test_the_list_of_accounts_has_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve_verb(invite="alice", role="label", state=tmp_path / "s")
    code = capsys.readouterr().out.partition("#code=")[2].strip()
    serve_verb(accounts=True, state=tmp_path / "s", json=True)
    out = capsys.readouterr().out
    [row] = json.loads(out)["accounts"]
    assert row["name"] == "alice" and row["roles"] == ["label"] and row["invited"] and code not in out
