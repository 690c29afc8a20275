"""Rights by run: of a run outside an account's patterns nothing is answered, listed, counted, labelled or sent."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

import httpx
from tests.view.server.test_proxy import options, serving
from tests.view.server.test_team import HEADER, HOST, PROXY, Team, a_request, run_with_people

from tiltmeter.cli.serve import serve as serve_verb
from tiltmeter.errors import AttachError
from tiltmeter.rundir.remote.follow_store import StoreFollower
from tiltmeter.view.screens.run_reader import run_id
from tiltmeter.view.server import handlers, labelling, stream
from tiltmeter.view.server import requests as controls
from tiltmeter.view.server.access import EVERY_RUN, RateLimiter, TrustedHosts, parse_patterns
from tiltmeter.view.server.app import App
from tiltmeter.view.server.routes import ROUTES, RUN
from tiltmeter.view.server.run_list import RunList, list_run
from tiltmeter.view.server.state import ServerState
from tiltmeter.view.server.team import accounts
from tiltmeter.view.server.team.access import TeamAccess
from tiltmeter.view.server.team.accounts import AccountBook
from tiltmeter.view.server.team.proxy import ProxySignIn
from tiltmeter.view.server.team.start import copy_places, open_team_server

WORD = "zebra"  # in the name and every text of the run that alice may not see
NOBODYS = "f" * 12


@pytest.fixture(scope="module")
def recorded_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    run_with_people(folder / "math" / "a", steps=3)
    run_with_people(folder / "code" / WORD, steps=3, word=WORD)
    return folder


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded_pair: Path) -> Iterator[Team]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    labelling._SESSIONS.clear()
    labelling._ASSIGNMENTS.clear()
    labelling._secret_in.cache_clear()
    shutil.copytree(recorded_pair, tmp_path / "runs")
    made = serve_folder(tmp_path, tmp_path / "runs")
    yield made
    made.state.stream.close()


def serve_folder(folder: Path, *roots: Path) -> Team:
    book = AccountBook(folder / "state" / "server")
    access = TeamAccess(book, ProxySignIn(HEADER, frozenset({"view"}), secret="5" * 64, runs=("math",)))
    state = ServerState(RunList(roots), access, TrustedHosts(8787, [HOST]))
    state.rate, state.control_rate = RateLimiter(1e9), RateLimiter(1e9)
    while state.run_list.rows(list_run).unread:
        pass
    return Team(App(state, {}), state, book, run_id(str((folder / "runs" / "math" / "a").resolve())), folder)


def theirs(team: Team) -> str:
    return run_id(str((team.folder / "runs" / "code" / WORD).resolve()))


def sign_in(team: Team, name: str, *runs: str, roles: str = "control,label") -> tuple[str, str]:
    token, _ = team.book.redeem_code(team.book.invite(name, roles.split(","), runs or None))
    return "authorization", f"Bearer {token}"


def without_ages(body: bytes) -> Any:
    return json.loads(re.sub(rb'"(age_s|time)":[-0-9.e]+', b'"\\1":0', body))


# -- every route ------------------------------------------------------------------------------------------------------


def test_of_a_run_that_one_may_not_see_every_route_says_that_it_is_not_there(team: Team) -> None:
    alice, boss = sign_in(team, "alice", "math"), sign_in(team, "boss")
    other, nowhere = replace(team, run=theirs(team)), replace(team, run=NOBODYS)
    files = sorted(path for path in (team.folder / "runs" / "code").rglob("*"))
    asked = set()
    for route in ROUTES:
        if "run" not in route.params:
            continue
        asked.add(route.path)
        answers = []
        for asks, who in ((other, alice), (nowhere, boss), (other, boss)):
            query, body = a_request(asks, route)
            if route.path in ("/api/stream", "/api/compare"):
                query = f"run={asks.run}" if route.path == "/api/stream" else f"run={team.run}&run={asks.run}"
            answers.append(team.ask(route.method, route.path, [who], query, body))
            if who is alice:
                assert sorted(path for path in (team.folder / "runs" / "code").rglob("*")) == files, route.path
        hidden, missing, seen = answers
        assert hidden.status == missing.status == 404 and hidden.body == missing.body, route.path
        assert seen.body != missing.body, route.path  # the question was a good one
    assert asked == {f"/api/{name}" for name in ROUTES_OF_RUNS}


ROUTES_OF_RUNS = {
    "summary", "plots", "geometry", "series", "readings", "rollouts", "rollout", "group", "members", "tokens", "notes",
    "phrases", "pinned", "alarms", "alarm", "actions", "compare", "verifier", "health", "report", "stream", "control",
}  # fmt: skip


def test_no_answer_to_anybody_else_has_a_word_of_it(team: Team) -> None:
    alice, boss, heard = sign_in(team, "alice", "math"), sign_in(team, "boss"), set()
    for route in ROUTES:
        query, body = a_request(team, route)
        queries = [query, "find=zebra", "find=archived:any", "group=model"] if route.path == "/api/fleet" else [query]
        for one in queries:
            reply = team.ask(route.method, route.path, [alice], one, body)
            assert WORD.encode() not in reply.body and theirs(team).encode() not in reply.body, (route.path, one)
            reply = team.ask(route.method, route.path, [boss], one, body)
            heard |= {route.path} if WORD.encode() in reply.body else set()
    assert "/api/fleet" in heard  # where it may be said, it is


def test_lists_counts_and_streams_are_those_of_a_server_without_it(team: Team) -> None:
    alone = serve_folder(team.folder, team.folder / "runs" / "math")
    alice, boss = sign_in(team, "alice", "math"), sign_in(team, "boss")
    asked = ((team, alice), (alone, boss))
    for query in ("", "find=zebra", "find=a", "find=archived:any", "group=lr", "sort=name&order=up", "limit=1"):
        limited, only = (one.ask("GET", "/api/fleet", [who], query) for one, who in asked)
        assert limited.status == only.status == 200 and without_ages(limited.body) == without_ages(only.body), query
    said = [one.ask("GET", "/api/stream", [who]).body for one, who in asked]
    assert b"1 runs" in said[0] and said[0].split(b"age_s")[0] == said[1].split(b"age_s")[0]
    assert b"2 runs" in team.ask("GET", "/api/stream", [boss]).body
    alone.state.stream.close()


def test_a_rater_gets_tasks_of_their_runs_alone(team: Team) -> None:
    """Also after a change: a task that was handed out before can no longer be answered or taken back."""
    rater = sign_in(team, "rater", "code", roles="label")
    task = team.ask("GET", "/api/label/next", [rater]).json
    assert WORD in str(task["texts"])
    body = {"task": task["task"], "answer": "a" if task["kind"] == "pair" else "1", "milliseconds": 700}
    second = team.ask("POST", "/api/label", [rater], "", body).json
    files = sorted((team.folder / "runs" / "code").rglob("*"))
    team.book.invite("rater", ["label"], ["math"])
    late = {**body, "task": second["task"], "answer": "a" if second["kind"] == "pair" else "1"}
    assert team.ask("POST", "/api/label", [rater], "", late).status == 404
    assert team.ask("POST", "/api/label/undo", [rater]).json["why"].startswith("There is no answer")
    assert sorted((team.folder / "runs" / "code").rglob("*")) == files
    task, seen = team.ask("GET", "/api/label/next", [rater]).json, 0
    while task["task"] and seen < 40:
        assert WORD not in json.dumps(task)
        body = {"task": task["task"], "answer": "a" if task["kind"] == "pair" else "1", "milliseconds": 700}
        task, seen = team.ask("POST", "/api/label", [rater], "", body).json, seen + 1
    assert seen > 3
    nothing = sign_in(team, "stranger", "elsewhere", roles="label")
    assert team.ask("GET", "/api/label/next", [nothing]).json["why"].startswith("No run here asks people")


def test_handlers_reach_runs_through_a_persons_rights_alone() -> None:
    for module in (handlers, controls):
        source = inspect.getsource(module)
        assert not re.search(r"state\.(reader|index)\b|run_list\.(reader|rows|ids)|RunList\(", source), module.__name__
    for route in ROUTES:  # a run is named `run`, so that the test above asks for it
        assert {name for name, parser in route.params.items() if parser is RUN} <= {"run"}, route.path


def test_people_whom_the_proxy_names_have_its_patterns_or_their_accounts_own(team: Team) -> None:
    for name, runs in (("guest", None), ("bob", ["code"]), ("carol", ["*"])):
        if runs is not None:
            team.book.invite(name, ["view"], runs)
        asks = [(HEADER, name)]
        body = team.ask("GET", "/api/fleet", asks, client=PROXY).body
        assert (WORD.encode() in body) == (name != "guest") and (team.run.encode() in body) == (name != "bob")


# -- patterns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["", "/data/runs", "../x", "a/../b", "a//b", "a\nb", "x" * 301, "a\\b", "."])
def test_a_pattern_that_is_no_path_is_refused(pattern: str) -> None:
    with pytest.raises(AttachError, match="--runs"):
        parse_patterns([pattern])


def test_without_patterns_a_new_account_sees_every_run_and_a_known_one_keeps_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "s"
    serve_verb(invite="alice", role="view", state=state)
    serve_verb(invite="bob", role="view", runs=["math", "code/*-7b"], state=state)
    serve_verb(invite="bob", role="view,label", state=state)
    book = AccountBook(state)
    book.revoke("bob")
    book.invite("bob", ["view"])  # who comes back has what they had
    capsys.readouterr()
    serve_verb(accounts=True, state=state, json=True)
    rows = {row["name"]: row["runs"] for row in json.loads(capsys.readouterr().out)["accounts"]}
    assert rows == {"alice": ["*"], "bob": ["math", "code/*-7b"]}
    serve_verb(accounts=True, state=state)
    out = capsys.readouterr().out
    assert "every run" in out and "runs math code/*-7b" in out


def test_accounts_of_an_earlier_version_see_every_run(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    with sqlite3.connect(tmp_path / "s" / accounts.FILE) as database:
        database.executescript(
            "CREATE TABLE account (name TEXT PRIMARY KEY, roles TEXT NOT NULL, created REAL NOT NULL, "
            "revoked REAL) STRICT;"
            "CREATE TABLE invitation (digest TEXT PRIMARY KEY, name TEXT NOT NULL, expires REAL NOT NULL) STRICT;"
            "CREATE TABLE session (digest TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, "
            "expires REAL NOT NULL) STRICT; CREATE TABLE served (url TEXT NOT NULL) STRICT;"
            "INSERT INTO account VALUES ('alice', 'view', 1.0, NULL); PRAGMA user_version = 1;"
        )
    for _ in range(2):
        rights = AccountBook(tmp_path / "s").rights_of("alice")
        assert rights is not None and rights.runs == EVERY_RUN and rights.roles == {"view"}


def test_a_copy_of_a_bucket_has_its_path_in_the_bucket(tmp_path: Path) -> None:
    follower = StoreFollower(["s3://bucket/runs", "s3://bucket/other/one"])
    follower.copies.update({
        Path("/cache/1"): "s3://bucket/runs/math/a", Path("/cache/2"): "s3://bucket/other/one",
    })  # fmt: skip
    assert copy_places(follower) == {"/cache/1": "math/a", "/cache/2": "one"}


# -- streams end ------------------------------------------------------------------------------------------------------


def seconds_to_end(lines: Iterator[str]) -> float:
    began = time.monotonic()
    for _ in lines:  # a beat comes every five seconds
        if time.monotonic() - began > 8.0:
            break
    return time.monotonic() - began


@pytest.mark.parametrize("how", ["revoked", "fewer runs", "other roles", "session over"])
def test_a_stream_ends_with_the_rights_that_it_was_opened_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "session over":
        monkeypatch.setattr(accounts, "SESSION_SECONDS", 1.0)
        monkeypatch.setattr(stream, "EXPIRY_SECONDS", 0.5)
    given = options(tmp_path, proxy_header="", url="http://localhost/")
    with serving(open_team_server(given)) as handle:
        book = AccountBook(tmp_path / "state")  # as another process has it
        base = f"http://127.0.0.1:{handle.port}"
        tokens = [book.redeem_code(book.invite(name, ["view"]))[0] for name in ("alice", "bob")]
        if how == "session over":
            with sqlite3.connect(book.path) as database:
                database.execute("UPDATE session SET expires = expires + 1000 WHERE name = 'bob'")
        headers = [{"Authorization": f"Bearer {token}"} for token in tokens]
        with (
            httpx.Client(base_url=base, timeout=20.0, trust_env=False) as client,
            client.stream("GET", "/api/stream", headers=headers[0]) as one,
            client.stream("GET", "/api/stream", headers=headers[1]) as other,
        ):
            lines, others = one.iter_lines(), other.iter_lines()
            assert next(lines).startswith("data: ") and next(others).startswith("data: ")
            if how == "revoked":
                book.revoke("alice")
            elif how == "fewer runs":
                book.invite("alice", ["view"], ["math"])
            elif how == "other roles":
                book.invite("alice", ["label"])
            assert seconds_to_end(lines) < 5.0
            assert any(line.startswith("data: ") for line in others)  # the other goes on, at the next beat
            assert handle.state.stream.clients == 1


def test_a_page_that_does_not_read_gets_nothing_more_after_its_end() -> None:
    client = stream.Client()
    client.put(stream.RESET)
    client.end()
    for _ in range(2 * stream.QUEUE):
        client.put(stream.RESET)
    assert client.queue.get_nowait() is None and client.queue.empty()
