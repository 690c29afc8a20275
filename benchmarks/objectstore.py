"""Runs on object storage under kills, faults, outages and two writers: is anything lost, torn, or there twice?

    python benchmarks/objectstore.py --json [--write] [--kills 1000] [--faults 1000] [--rounds 20] [--broken]

The store is moto's S3 server in a process of its own. A spool grows by steps (files, and lines of a journal as a
monitor writes them) while uploaders in processes of their own are killed, fail, stand still and come back. At the end a
copy is fetched and compared with the spool byte by byte; counts come from here, never from the code under test.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from objectstore_server import BUCKET, FaultyProxy, point_to, s3_process
from record import RESULTS, record, show
from tiltmeter.cli.demo import measure_demo_run
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, Journal, read_events
from tiltmeter.rundir.remote.copy import fetch
from tiltmeter.rundir.remote.objects import CloudFolder, ObjectFolder, open_objects
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.remote.writer_lease import JournalSpan, LeaseLostError, WriterLease, read_head
from tiltmeter.rundir.store import RunDirectory

PUT_DOLLARS, GET_DOLLARS = 0.005 / 1000, 0.0004 / 1000  # S3 standard, us-east-1: PUT and LIST, GET
COMMITTED, LOST_LEASE, REFUSED = 0, 3, 4  # exit codes of a writer


class Spool:
    """A run directory that grows as trainer and monitor would make it grow."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory.create(path)
        self.run.open_attempt(launch="x", ranks=1, resume_step=None)
        self._journal, self.steps = Journal(self.run.path / "events"), 0
        facts: dict[str, Any] = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": []}
        self._journal.commit([Event("attempt", 0, -1, {**facts, "gold": None}, "attempt|0|open")])

    def add_step(self, text: str = "answer " * 40) -> None:
        step, self.steps = self.steps, self.steps + 1
        self.run.write(from_columns(step, [0, 0], reward=[float(step), 0.0], completion=[text, "b"]), 0, {})
        done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 2, "seen": 1, "lost": {}}
        readings = {"measured": {f"reading.{k}": [0.5, 2, None] for k in range(70)}, "derived": {}}
        events = [
            Event("reading", 0, step, readings, f"reading|{step}"),
            Event("step_done", 0, step, done, f"s|{step}"),
        ]
        self._journal.commit(events)

    def close(self) -> None:
        self._journal.close()


def start(run: RunDirectory, folder: ObjectFolder, owner: str = "one", patience: float = 0.0) -> Uploader:
    lease = WriterLease(folder, owner)
    lease.take(wait=lambda _: time.sleep(0.02), patience=patience)
    uploader = Uploader(run, folder, lease)
    uploader.note_journal()
    return uploader


def compare(run: RunDirectory, folder: ObjectFolder, copy: Path) -> Counter[str]:
    """What a copy lacks, has otherwise, and has twice."""
    fetch(folder, copy)
    ours, theirs = _contents(run.path), _contents(copy)
    ids = Counter(line for name, data in theirs.items() if name.endswith(".jsonl") for line in data.splitlines())
    events = read_events(copy / "events")
    return Counter(
        lost=len(ours.keys() - theirs.keys()),
        torn=sum(theirs[name] != data for name, data in ours.items() if name in theirs),
        twice=sum(count - 1 for count in ids.values()) + len(theirs.keys() - ours.keys()),
        unread=len(read_events(run.path / "events")) - len(events),
    )


def _contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and not file.name.startswith(".") and "cache" not in file.relative_to(path).parts
    }


def in_child(work: Callable[[], int]) -> int:
    """Run in a process of its own; its number. Forked before any store is opened here: their threads do not survive."""
    if child := os.fork():
        return child
    code = 9
    try:
        code = work()
    finally:
        os._exit(code)


def kills(place: Path, address: str, number: int, seed: int) -> tuple[dict[str, int], Counter[str]]:
    """Kill -9 an uploader again and again while the run grows."""
    chance, spool = random.Random(seed), Spool(place / "run")

    def upload() -> int:
        uploader = start(spool.run, open_objects(address))
        while True:
            uploader.cycle()

    died_early = 0
    for _ in range(number):
        child = in_child(upload)
        until = time.monotonic() + chance.uniform(0.01, 0.4)
        while time.monotonic() < until:
            spool.add_step()
            time.sleep(0.01)
        if os.waitpid(child, os.WNOHANG)[0] == child:
            died_early += 1
            continue
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    spool.close()
    fails: Counter[str] = Counter()
    code = in_child(lambda: _finish(spool.run, address, place))
    fails += _counts(os.waitstatus_to_exitcode(os.waitpid(code, 0)[1]), place)
    return {"kills": number, "kill_steps": spool.steps, "uploaders_that_failed": died_early}, fails


def _finish(run: RunDirectory, address: str, place: Path) -> int:
    """Upload the rest and compare, in a process of its own; what differs is left in a file."""
    folder = open_objects(address)
    start(run, folder).cycle()
    found = compare(run, folder, place / "copy")
    (place / "counts").write_text(repr(dict(found)))
    return 0


def _counts(code: int, place: Path) -> Counter[str]:
    if code:
        return Counter(failed=1)
    text = (place / "counts").read_text().strip("{}")
    return Counter({part.split(":")[0].strip(" '"): int(part.split(":")[1]) for part in text.split(",")})


def faults(place: Path, proxy: FaultyProxy, address: str, number: int) -> tuple[dict[str, Any], Counter[str]]:
    """Requests that fail, are throttled, are done without a reply, or get half of one; uploaders go on, or new ones."""
    spool = Spool(place / "run")
    proxy.share, uploader = 0.12, None
    while sum(count for fault, count in proxy.counts.items() if fault) < number:
        spool.add_step()
        try:
            uploader = uploader or start(spool.run, open_objects(address))
            uploader.cycle()
        except OSError:
            uploader = None if spool.steps % 3 == 0 else uploader
    spool.close()
    by_kind = {fault: count for fault, count in sorted(proxy.counts.items()) if fault}
    proxy.share = 0.0
    folder = open_objects(address)
    start(spool.run, folder).cycle()
    return {"faults": sum(by_kind.values()), "faults_by_kind": by_kind, "fault_steps": spool.steps}, compare(
        spool.run, folder, place / "copy"
    )


def two_writers(place: Path, address: str, rounds: int) -> dict[str, int]:
    """A writer is stopped (SIGSTOP), another takes over and writes, the first is woken; and two start at one moment.
    Every change of the head has a number: two writers are those whose numbers do not lie apart."""
    mixed = 0

    def hold(owner: str, commits: int) -> int:
        lease = WriterLease(open_objects(address), owner)
        with (place / owner).open("w") as numbers:
            try:
                lease.take(wait=lambda _: time.sleep(0.01), patience=0.3)
                for number in range(commits):
                    numbers.write(f"{lease.head.renewed}\n")
                    numbers.flush()
                    lease.commit({"1": JournalSpan(number, number)})
            except LeaseLostError:
                return LOST_LEASE
            except AttachError:
                return REFUSED
        return COMMITTED

    def numbers_of(owner: str) -> list[int]:
        return [int(line) for line in (place / owner).read_text().split()]

    def apart(one: str, two: str) -> bool:
        ours, theirs = numbers_of(one), numbers_of(two)
        return not ours or not theirs or max(ours) < min(theirs) or max(theirs) < min(ours)

    def began(owner: str) -> bool:
        return (place / owner).exists() and bool(numbers_of(owner))

    for number in range(rounds):
        first, second = f"a{number}", f"b{number}"
        child = in_child(partial(hold, first, 1_000_000))
        _until(partial(began, first))
        os.kill(child, signal.SIGSTOP)
        taken = os.waitstatus_to_exitcode(os.waitpid(in_child(partial(hold, second, 20)), 0)[1])
        os.kill(child, signal.SIGCONT)
        woken = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        mixed += (taken, woken) != (COMMITTED, LOST_LEASE) or not apart(first, second)
    for number in range(rounds):
        pair = [f"c{number}", f"d{number}"]
        racers = [in_child(partial(hold, name, 30)) for name in pair]
        ends = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in racers}
        mixed += not ends <= {COMMITTED, LOST_LEASE, REFUSED} or COMMITTED not in ends or not apart(*pair)
    return {"stopped_and_woken": rounds, "started_at_once": rounds, "two_writers": mixed}


def outage(place: Path) -> tuple[dict[str, int], Counter[str]]:
    """An hour of steps of 5 s while the store is away: all waits. With too small a spool: what goes is counted."""
    spool, folder = Spool(place / "run"), _Switch(_memory())
    uploader = start(spool.run, folder)
    uploader.cycle()
    folder.is_away = True
    for _ in range(720):
        spool.add_step()
        if spool.steps % 12 == 0:
            _cycle_in_vain(uploader)
    folder.is_away = False
    uploader.cycle()
    spool.close()
    same = compare(spool.run, folder.inner, place / "copy")
    small, away = Spool(place / "small"), _Switch(_memory())
    uploader = start(small.run, away)
    for _ in range(20):
        small.add_step()
    uploader.cycle()
    uploader.bound = 40 * 2000
    away.is_away = True
    for _ in range(200):
        small.add_step()
        uploader._note_steps((small.run.path / "events" / "0.jsonl").read_bytes()[-6000:])
        _cycle_in_vain(uploader)
    away.is_away = False
    uploader.cycle()
    small.close()
    fetch(away.inner, place / "small-copy")
    there = len(RunDirectory(place / "small-copy").files(0))
    told = read_head(away.inner)[0].lost_files
    return {
        "outage_steps": 720,
        "beyond_bound_lost": small.steps - there,
        "beyond_bound_told": told,
        "beyond_bound_miscounted": abs(small.steps - there - told),
    }, same


class _Switch:
    """A store that can be away."""

    def __init__(self, inner: ObjectFolder) -> None:
        self.inner, self.is_away = inner, False

    def __getattr__(self, name: str) -> Any:
        if self.is_away:
            raise OSError("the store is away")
        return getattr(self.inner, name)


def _cycle_in_vain(uploader: Uploader) -> None:
    try:
        uploader.cycle()
    except OSError:
        pass  # as in the thread, which tries again


def _memory() -> CloudFolder:
    from obstore.store import MemoryStore

    return CloudFolder(MemoryStore())


def requests(place: Path, steps: int = 1000) -> dict[str, Any]:
    """Requests and money for 1,000 steps that take longer than a cycle, so that each has a cycle of its own, with two
    files of labels a step; and for a reader who looks once."""
    spool, folder = Spool(place / "run"), _memory()
    uploader = start(spool.run, folder)
    uploader.cycle()
    folder.requests.clear()
    for step in range(steps):
        spool.add_step()
        for key in (f"requests/0-{step:06d}.jsonl", f"labels/0-{step:06d}/all.json"):
            path = spool.run.path / "gold" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
            if "labels" in key:  # as if steps took ten seconds each
                os.utime(path.parent, (time.time() - 10.0 * (steps - step),) * 2)
        uploader._next_inbox = 0.0  # which is looked at every ten seconds
        uploader.cycle(whole=False)
    spool.close()
    writing = dict(folder.requests)
    folder.requests.clear()
    fetch(folder, place / "copy")
    reading = dict(folder.requests)
    dollars = sum(count * (GET_DOLLARS if kind == "get" else PUT_DOLLARS) for kind, count in writing.items())
    return {
        "requests_per_1000_steps": sum(writing.values()),
        "requests_by_kind": writing,
        "dollars_per_1000_steps": round(dollars, 4),
        "reader_requests": sum(reading.values()),
    }


def live_equals_replay(place: Path, address: str) -> dict[str, bool]:
    """The journal that a copy has replays to the same events."""
    demo = measure_demo_run("hacked", place / "hacked")
    folder = open_objects(address)
    start(demo.run, folder).cycle()
    fetch(folder, place / "copy")
    again = replay(RunDirectory(place / "copy"), Config.standard())
    return {"replay_same": again.difference is None and len(again.events) == len(demo.events)}


def _lose_objects() -> None:
    """The control: one object in fifty is said to be made, and is not."""
    real = CloudFolder.create

    def create(self: CloudFolder, key: str, data: bytes) -> bool:
        return True if zlib.crc32(key.encode()) % 50 == 0 and "parquet" in key else real(self, key, data)

    CloudFolder.create = create  # type: ignore[method-assign]


def _until(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", action="store_true", help="a store that loses objects, which must be seen")
    options = parser.parse_args()
    if options.broken:
        _lose_objects()
    figures: dict[str, Any] = {}
    wrong: Counter[str] = Counter()
    place = Path(tempfile.mkdtemp(prefix="tiltmeter-objectstore-"))
    word = secrets.token_hex(4)
    try:
        with s3_process() as server:
            # Forks first: no store has been opened in this process yet.
            (place / "kills").mkdir()
            figures, counts = kills(place / "kills", f"s3://{BUCKET}/{word}/kills", options.kills, options.seed)
            wrong += counts
            (place / "writers").mkdir()
            figures |= two_writers(place / "writers", f"s3://{BUCKET}/{word}/writers", options.rounds)
            proxy = FaultyProxy(server, options.seed)
            point_to(proxy.place)
            (place / "faults").mkdir()
            found, counts = faults(place / "faults", proxy, f"s3://{BUCKET}/{word}/faults", options.faults)
            figures, wrong = figures | found, wrong + counts
            (place / "replay").mkdir()
            figures |= live_equals_replay(place / "replay", f"s3://{BUCKET}/{word}/replay")
            proxy.shutdown()
        (place / "outage").mkdir()
        found, counts = outage(place / "outage")
        figures, wrong = figures | found, wrong + counts
        (place / "requests").mkdir()
        figures |= requests(place / "requests")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    figures |= {name: wrong[name] for name in ("lost", "torn", "twice", "unread", "failed")}
    earlier = RESULTS / "objectstore.json"
    if earlier.exists():  # what objectstore_handoff.py has put there
        figures["handoff"] = json.loads(earlier.read_text()).get("handoff")
    show(record("objectstore", figures, seed=options.seed, keep=options.write), as_json=options.json)
    bad = (
        sum(wrong.values()) + figures["two_writers"] + figures["beyond_bound_miscounted"] + (not figures["replay_same"])
    )
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
