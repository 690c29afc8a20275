"""News of a run as pages get them: soon, each once, in order, also after a page was away; for many pages at a time."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

import httpx

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.people import StepMessage
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import stream
from tiltmeter.view.server.access import AccessTokens, Person, RateLimiter, TrustedHosts
from tiltmeter.view.server.app import App
from tiltmeter.view.server.run_list import RunList
from tiltmeter.view.server.serve import QuietServer, bind, config
from tiltmeter.view.server.state import ServerState
from tiltmeter.view.server.stream import QUEUE, RESET, Client, Message

Pushed = tuple[str, dict[str, Any]]  # id and data


class Training:
    """A run that goes on while it is looked at: the real store, the real monitor."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory.create(path)
        self.run.open_attempt(launch="x", ranks=1, resume_step=None)
        self.step = -1
        self.watch = MonitorLoop(self.run, Config.standard())
        self.go()

    def go(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step += 1
            reward = np.random.default_rng(self.step).normal(size=16)
            batch = from_columns(self.step, np.repeat(np.arange(4), 4), reward=reward, gold=(reward > 0).astype(float))
            self.run.write(batch, 0, {"counters": {"seen": self.step + 1, "written": self.step + 1}})
        self.watch.poll()

    @property
    def id(self) -> str:
        return RunReader(self.run).id


@dataclass
class Server:
    url: str
    headers: dict[str, str]
    site: ServerState

    @contextmanager
    def listen(self, run: str, after: str = "") -> Iterator[Iterator[Pushed]]:
        """A page that listens. Ends with an error if nothing comes for ten seconds."""
        headers = {**self.headers, **({"Last-Event-ID": after} if after else {})}
        query = {"run": run} if run else {}
        with (
            httpx.Client(base_url=self.url, timeout=10.0, trust_env=False) as client,
            client.stream("GET", "/api/stream", params=query, headers=headers) as reply,
        ):
            assert reply.status_code == 200, reply.read()
            assert reply.headers["content-type"].startswith("text/event-stream")
            yield _events(reply)


def _events(reply: httpx.Response) -> Iterator[Pushed]:
    id = ""
    for line in reply.iter_lines():
        if line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            yield id, json.loads(line[6:])
            id = ""


@contextmanager
def serving(folder: Path, state: Path) -> Iterator[Server]:
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    keys = AccessTokens(state)
    site = ServerState(RunList([folder]), keys, TrustedHosts(port))
    site.rate = RateLimiter(1e9)
    server = QuietServer(config(App(site)))
    server.state = site
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    token = keys.redeem_code(keys.issue_code(Person({"view"})))[0]
    try:
        yield Server(f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}, site)
    finally:
        site.stream.close()
        server.should_exit = True
        thread.join(20)
        sock.close()
    assert not thread.is_alive()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    found = Training(tmp_path / "runs" / "tonight")
    yield found
    found.watch.close()


@pytest.fixture
def server(training: Training, tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "runs", tmp_path / "state") as found:
        yield found


def until(events: Iterator[Pushed], step: int) -> list[Pushed]:
    """Everything up to the message about a step."""
    found = []
    for event in events:
        found.append(event)
        if event[1]["kind"] == "step" and event[1]["step"] >= step:
            return found
    raise AssertionError(f"the stream ended before step {step}")


def told(events: list[Pushed]) -> list[Pushed]:
    """Those that stand for something that happened, without how things stood at a moment."""
    return [event for event in events if event[1]["kind"] != "state"]


def test_a_page_hears_first_how_things_stand(training: Training, server: Server) -> None:
    with server.listen(training.id) as events:
        id, first = next(events)
        assert first["kind"] == "state" and first["step"] == 0 and first["live"] is True and first["age_s"] < 30
        assert id.startswith("0-")


def test_a_step_reaches_the_page_within_two_seconds_of_the_monitor_writing_it(
    training: Training, server: Server
) -> None:
    with server.listen(training.id) as events:
        next(events)
        waits = []
        for step in range(1, 4):
            training.go()
            began = time.monotonic()
            until(events, step)
            waits.append(time.monotonic() - began)
    assert max(waits) < 2.0


@pytest.mark.parametrize("away", [0.0, 1.5])  # seconds: before and after the server has seen what happened
def test_a_page_that_was_away_gets_exactly_what_it_missed(training: Training, server: Server, away: float) -> None:
    with server.listen(training.id) as events:
        next(events)
        training.go(2)
        heard = until(events, 2)
    training.go(3)
    time.sleep(away)
    with server.listen(training.id, after=heard[-1][0]) as events:
        missed = until(events, 5)
    steps = [data["step"] for _, data in told(heard + missed) if data["kind"] == "step"]
    assert steps == [1, 2, 3, 4, 5]
    ids = [id for id, _ in told(heard + missed)]
    assert ids == sorted(set(ids), key=lambda id: int(id.split("-")[1])), "each once, in the order written"


def test_resuming_is_exact_on_another_server_too(training: Training, server: Server, tmp_path: Path) -> None:
    """What a page heard last names a place in the journal, not in a server's memory."""
    with server.listen(training.id) as events:
        next(events)
        training.go(2)
        last = until(events, 2)[-1][0]
    training.go(2)
    with serving(tmp_path / "runs", tmp_path / "state") as other, other.listen(training.id, after=last) as events:
        assert [data["step"] for _, data in told(until(events, 4)) if data["kind"] == "step"] == [3, 4]


@pytest.mark.parametrize("after", ["0-999999", "7-0", "nonsense", "0-0; drop", "-1--1"])
def test_a_page_with_an_id_that_stands_for_nothing_starts_anew(training: Training, server: Server, after: str) -> None:
    with server.listen(training.id, after=after) as events:
        assert next(events)[1] == {"kind": "reset"}
        assert next(events)[1]["kind"] == "state"


def test_alarms_are_told_in_the_words_of_the_page(tmp_path: Path) -> None:
    """A healthy run that turns bad: the entry that the overview lists is what a listener gets."""
    run = RunDirectory.create(tmp_path / "runs" / "bad")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    watch = MonitorLoop(run, Config.standard())
    with serving(tmp_path / "runs", tmp_path / "state") as server:
        with server.listen(RunReader(run).id) as events:
            next(events)
            for step in range(40):
                reward = np.random.default_rng(step).normal(size=16)
                batch = from_columns(step, np.repeat(np.arange(4), 4), reward=reward, gold=(reward < 0).astype(float))
                run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
            watch.poll()
            entries = [data["entry"] for _, data in until(events, 39) if data["kind"] == "event"]
        watch.close()
        with httpx.Client(base_url=server.url, headers=server.headers, trust_env=False) as client:
            listed = client.get("/api/summary", params={"run": RunReader(run).id}).json()["entries"]
    assert any(entry["kind"] == "alarm" for entry in entries)
    assert [entry for entry in listed if entry["kind"] == "alarm"] == [e for e in entries if e["kind"] == "alarm"]


def test_twenty_pages_hear_of_a_step_at_the_same_time(training: Training, server: Server) -> None:
    ready = threading.Barrier(21)

    def page(_: int) -> tuple[float, list[Pushed]]:
        with server.listen(training.id) as events:
            next(events)
            ready.wait(30)
            heard = until(events, 1)
            return time.monotonic(), told(heard)

    with ThreadPoolExecutor(20) as pool:
        pages = [pool.submit(page, number) for number in range(20)]
        ready.wait(30)
        assert len(server.site.stream._channels) == 1, "one reader for all of them"
        training.go()
        began = time.monotonic()
        heard = [page.result(30) for page in pages]
    assert max(at for at, _ in heard) - began < 2.0
    assert all(events == heard[0][1] for _, events in heard)


def test_the_number_of_listeners_is_bounded_and_a_place_is_free_again(
    training: Training, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.site.stream, "most_clients", 2)
    with server.listen(training.id) as one, server.listen(training.id) as two:
        next(one), next(two)
        refused = httpx.get(f"{server.url}/api/stream?run={training.id}", headers=server.headers, trust_env=False)
        assert refused.status_code == 503 and "close one" in refused.json()["error"]
    deadline = time.monotonic() + 10
    while server.site.stream.clients:
        assert time.monotonic() < deadline, "a page that has gone is let go"
        time.sleep(0.05)
    with server.listen(training.id) as again:
        assert next(again)[1]["kind"] == "state"


def test_a_page_that_does_not_read_is_told_to_start_anew_and_costs_no_more_memory() -> None:
    client = Client()
    for number in range(10 * QUEUE):
        client.put(Message(StepMessage(attempt=0, step=number), f"0-{number}"))
        assert client.queue.qsize() <= QUEUE
    waiting = [client.queue.get_nowait() for _ in range(client.queue.qsize())]
    assert waiting[0] == RESET and RESET not in waiting[1:]
    steps = [
        message.data.step for message in waiting[1:] if message is not None and isinstance(message.data, StepMessage)
    ]
    assert steps == list(range(10 * QUEUE - len(steps), 10 * QUEUE)), "after that, nothing is missing"


def test_pages_hear_how_old_their_data_are_though_nothing_happens(
    training: Training, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.6)
    with server.listen(training.id) as events:
        ages = [next(events)[1]["age_s"] for _ in range(3)]
    assert ages == sorted(ages) and ages[-1] > ages[0]


def test_the_fleet_is_told_when_any_run_moves(
    training: Training, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FLEET_SECONDS", 0.5)
    monkeypatch.setattr(stream, "BEAT_SECONDS", 60.0)
    with server.listen("") as events:
        assert next(events)[1]["step"] == 0
        training.go()
        moved = next(event for event in events if event[1]["step"] == 1)
    assert moved[1]["kind"] == "state" and "1 live" in moved[1]["sentence"]


def test_a_page_of_a_run_that_was_begun_anew_is_told_to_start_anew(
    training: Training, server: Server, tmp_path: Path
) -> None:
    with server.listen(training.id) as events:
        next(events)
        training.watch.close()
        shutil.rmtree(training.run.path)
        again = Training(training.run.path)
        kinds = [event[1]["kind"] for event in events]  # until the stream ends: the page then comes back
    again.watch.close()
    assert kinds[-1] == "reset"
