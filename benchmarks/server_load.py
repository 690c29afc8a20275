"""A team on one server: people who read pages, raters who label, and pages that only listen, all at once.

    python benchmarks/server_load.py [--people 200] [--idle 1000] [--minutes 10] [--json] [--write]

One `tiltmeter serve` over TCP, in a process of its own. A quarter of the people label; the others have a page open that
listens, and open a screen of some run every few seconds. Idle connections are pages that only listen. One run is live:
it gets a step every two seconds. Time of a page is the server's own, from the request to the response
(`Server-Timing`); the time until a client had it stands beside it. Labels are counted in the run directory afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from page_runs import make
from record import record, show
from tiltmeter.data.batches import from_columns
from tiltmeter.gold.label_files import read_request
from tiltmeter.gold.people import PeopleSource, RaterAnswers
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.server.team.accounts import AccountBook

THINK_SECONDS = 6.0  # between two screens, or two labels, of one person; exponential
LIVE_SECONDS = 2.0
LABEL_STEPS = 40
ACCOUNTS = 10_000  # in the book whose look-up is timed
SCREENS = ("fleet", "summary", "plots", "rollouts", "alarms", "actions", "health", "readings", "phrases", "geometry")


@dataclass
class Client:
    """HTTP/1.1 over one kept connection, and no more of it than this needs: the client shares the machine's cores."""

    port: int
    token: str
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        for last in (False, True):
            reader, writer = self.streams or await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
            was_open, self.streams = self.streams is not None, (reader, writer)
            try:
                writer.write(self._head(method, path, len(content)) + content)
                status, headers = await read_head(reader)
                return status, headers, await reader.readexactly(int(headers["content-length"]))
            except (OSError, asyncio.IncompleteReadError):
                writer.close()  # a kept connection may have ended meanwhile
                self.streams = None
                if last or not was_open:
                    raise
        raise AssertionError

    def _head(self, method: str, path: str, length: int) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {self.token}"]
        lines += ["Accept-Encoding: gzip", f"Content-Length: {length}"]
        lines += ["Content-Type: application/json"] if method == "POST" else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), headers


@dataclass
class Tally:
    """What was asked and what came of it."""

    server_ms: dict[str, list[float]] = field(default_factory=lambda: {screen: [] for screen in (*SCREENS, "label")})
    client_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)  # that the server said it had stored, by rater
    listening: int = 0
    ended: int = 0  # streams that ended before their time

    def add(self, screen: str, headers: dict[str, str], seconds: float) -> None:
        server, cpu = re.findall(r"dur=([0-9.]+)", headers["server-timing"])
        self.server_ms[screen].append(float(server))
        self.cpu_ms.append(float(cpu))
        self.client_ms.append(1000 * seconds)


async def listen(port: int, token: str, run: str, tally: Tally, until: float) -> None:
    """An open page that only listens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    writer.write(Client(port, token)._head("GET", f"/api/stream?run={run}" if run else "/api/stream", 0))
    status, _ = await read_head(reader)
    if status != 200:
        tally.errors.append(f"stream: {status}")
        return
    tally.listening += 1
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            while await reader.read(65536):
                pass
        tally.ended += 1
    except TimeoutError:
        pass
    finally:
        writer.close()


async def read_pages(client: Client, runs: list[str], tally: Tally, until: float, rng: random.Random) -> None:
    await asyncio.sleep(rng.uniform(0, THINK_SECONDS))
    while time.monotonic() < until:
        screen, run = rng.choice(SCREENS), rng.choice(runs)
        path = f"/api/{screen}" + ("" if screen == "fleet" else f"?run={run}")
        began = time.monotonic()
        status, headers, body = await client.ask("GET", path)
        if status == 200:
            tally.add(screen, headers, time.monotonic() - began)
        else:
            tally.errors.append(f"{screen}: {status} {body[:100]!r}")
        await asyncio.sleep(rng.expovariate(1 / THINK_SECONDS))


async def label(client: Client, name: str, tally: Tally, until: float, rng: random.Random) -> None:
    await asyncio.sleep(rng.uniform(0, THINK_SECONDS))
    task: dict[str, Any] = {}
    while time.monotonic() < until:
        began = time.monotonic()
        if not task.get("task"):
            status, headers, body = await client.ask("GET", "/api/label/next")
        else:
            answer = rng.choice(("a", "b")) if task["kind"] == "pair" else "0.5"
            answer_body = {"task": task["task"], "answer": answer, "milliseconds": 900}
            status, headers, body = await client.ask("POST", "/api/label", answer_body)
            tally.labels[name] += status == 200
        if status == 200:
            tally.add("label", headers, time.monotonic() - began)
            task = json.loads(gunzip(body, headers))
        else:
            tally.errors.append(f"label: {status} {body[:100]!r}")
            task = {}
        await asyncio.sleep(rng.expovariate(1 / THINK_SECONDS))


def gunzip(body: bytes, headers: dict[str, str]) -> bytes:
    import gzip

    return gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body


def make_people_run(path: Path) -> RunDirectory:
    """A run that asks people about every rollout."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(LABEL_STEPS):
        reward = np.random.default_rng(step).normal(size=128)
        batch = from_columns(
            step, np.repeat(np.arange(16), 8), reward=reward, prompt=["what is 1 plus 1"] * 128,
            completion=[f"the answer of step {step} is number {row}" for row in range(128)],
        )  # fmt: skip
        run.write(batch, 0, {"counters": {"seen": step + 1}})
    loop = MonitorLoop(run, Config.standard().with_gold(PeopleSource(3), 1.0), strict=True)
    loop.poll()
    loop.close()
    return run


def train(path: Path, stop: threading.Event) -> None:
    """A live run: a step, and its measuring, every two seconds."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    loop, step = MonitorLoop(run, Config.standard(), strict=True), 0
    while not stop.wait(LIVE_SECONDS):
        rng = np.random.default_rng(step)
        reward = rng.normal(size=64)
        gold = (reward + rng.normal(size=64) > 0).astype(float)
        run.write(from_columns(step, np.repeat(np.arange(8), 8), reward=reward, gold=gold), 0, {})
        loop.poll()
        step += 1
    loop.close()


def count_labels(run: RunDirectory) -> tuple[Counter[str], int]:
    """Standing answers in the run directory by rater, and those that one rater gave twice to one task."""
    stored: list[tuple[object, ...]] = []
    for step in range(LABEL_STEPS):
        if (request := read_request(run, 0, step)) is not None:
            answers = RaterAnswers(run, request).read_new().standing
            stored += [(one.rater, step, frozenset(one.shown), one.repeat) for one in answers]
    return Counter(str(one[0]) for one in stored), len(stored) - len(set(stored))


def child_of(pid: int) -> str:
    deadline = time.monotonic() + 60
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < deadline, "it did not start to serve"
        time.sleep(0.05)
    return children[0]


def resident_mb(pid: int) -> float:
    """Memory of the process that serves: the child of the one that was started."""
    return int(Path(f"/proc/{child_of(pid)}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{child_of(pid)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def watch_memory(pid: int, samples: list[float], until: float) -> None:
    while time.monotonic() < until:
        samples.append(resident_mb(pid))
        await asyncio.sleep(1.0)


async def load(
    port: int, pid: int, tokens: list[str], raters: int, idle: int, minutes: float
) -> tuple[Tally, list[float]]:
    tally, memory, rng = Tally(), list[float](), random.Random(7)
    first = Client(port, tokens[-1])
    while True:  # until every run is read
        fleet = json.loads(gunzip(*reversed((await first.ask("GET", "/api/fleet"))[1:])))
        if not fleet["unread"]:
            break
        await asyncio.sleep(0.5)
    runs = [row["run"] for row in fleet["runs"]]
    until = time.monotonic() + 60 * minutes
    work = [
        label(Client(port, token), f"p{number}", tally, until, random.Random(rng.random()))
        for number, token in enumerate(tokens[:raters])
    ]
    readers = tokens[raters:]
    for token in readers:
        work.append(read_pages(Client(port, token), runs, tally, until, random.Random(rng.random())))
        work.append(listen(port, token, rng.choice(runs), tally, until))
    work += [listen(port, readers[n % len(readers)], "", tally, until) for n in range(idle)]
    work.append(watch_memory(pid, memory, until))
    await asyncio.gather(*work)
    return tally, memory


def time_book(folder: Path) -> dict[str, float]:
    """Look-ups and writes of a large book of accounts."""
    book = AccountBook(folder)
    began = time.perf_counter()
    codes = [book.invite(f"person{number}", ["view"]) for number in range(200)]
    token = book.redeem_code(codes[0])[0]
    writes = 201 / (time.perf_counter() - began)
    with book._open() as database:
        rows = [(f"other{number}", "view", 0.0) for number in range(ACCOUNTS - 200)]
        database.executemany("INSERT INTO account (name, roles, created) VALUES (?, ?, ?)", rows)
        database.executemany(
            "INSERT INTO session VALUES (?, ?, 0, 1e12)",
            [(f"{number:064x}", name) for number, (name, *_) in enumerate(rows)],
        )
    began = time.perf_counter()
    for _ in range(2000):
        name = book.find_session(token)
        assert name is not None and "view" in (book.rights_of(name) or ((),))[0]
    return {"lookup_us": round(1e6 * (time.perf_counter() - began) / 4000, 1), "writes_per_second": round(writes)}


def measure(folder: Path, people: int, idle: int, minutes: float) -> dict[str, Any]:
    make(folder / "runs")
    labelled = make_people_run(folder / "runs" / "people")
    book = AccountBook(folder / "state")
    raters = people // 4
    roles = ["label"] * raters + ["view"] * (people - raters)
    tokens = [book.redeem_code(book.invite(f"p{number}", [role]))[0] for number, role in enumerate(roles)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    stop = threading.Event()
    trainer = threading.Thread(target=train, args=(folder / "runs" / "live", stop))
    trainer.start()
    command = [sys.executable, "-m", "tiltmeter", "serve", str(folder / "runs"), "--port", "0", "--json"]
    server = subprocess.Popen([*command, "--state", str(folder / "state")], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        began, cpu = time.monotonic(), cpu_seconds(server.pid)
        tally, memory = asyncio.run(load(port, server.pid, tokens, raters, idle, minutes))
        share = (cpu_seconds(server.pid) - cpu) / (time.monotonic() - began)
    finally:
        server.terminate()
        server.wait(30)
        stop.set()
        trainer.join()
    stored, doubled = count_labels(labelled)
    every = np.array([value for screen in tally.server_ms.values() for value in screen])
    settled = memory[len(memory) // 5 :] or memory  # caches fill first
    tenth = max(1, len(settled) // 10)
    return {
        "people": people,
        "raters": raters,
        "idle_connections": idle,
        "listening": tally.listening,
        "streams_ended": tally.ended,
        "minutes": minutes,
        "pages": len(every),
        "errors": len(tally.errors),
        "first_errors": tally.errors[:3],
        "p50_ms": round(float(np.percentile(every, 50)), 1),
        "p95_ms": round(float(np.percentile(every, 95)), 1),
        "p99_ms": round(float(np.percentile(every, 99)), 1),
        "p95_cpu_ms": round(float(np.percentile(tally.cpu_ms, 95)), 1),
        "client_p95_ms": round(float(np.percentile(tally.client_ms, 95)), 1),
        "p95_ms_by_screen": {
            screen: round(float(np.percentile(values, 95)), 1) for screen, values in tally.server_ms.items() if values
        },
        "labels": tally.labels.total(),
        "labels_lost": (tally.labels - stored).total(),
        "labels_doubled": doubled,
        "memory_mb": round(float(np.median(settled[-tenth:])), 1),
        "memory_growth": round(float(np.median(settled[-tenth:]) / np.median(settled[:tenth])), 3),
        "cpu_share": round(share, 2),
        "accounts": ACCOUNTS,
        **time_book(folder / "book"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/home"
        figures = measure(Path(folder), options.people, options.idle, options.minutes)
    show(record("server_load", figures, seed=7, keep=options.write), as_json=options.json)
    raise SystemExit(1 if figures["labels_lost"] or figures["labels_doubled"] or figures["errors"] else 0)


if __name__ == "__main__":
    main()
