"""Kill a writing process with SIGKILL, again and again: whatever it had acknowledged must be there, whole.

Each cycle forks a writer from this process, which has imported pyarrow already (a fresh interpreter costs a second, a
fork a few milliseconds), waits for its first acknowledgement, lets it go on for 0 to 40 ms and kills it. Four kinds of
writer take turns: `RunDirectory.write` called directly; a real run (`open_run` and its writer thread) that waits when
the queue is full; one that thins; and the journal. Ten cycles share a directory, so that later attempts open, and
sweep, where earlier ones were killed.

The checker shares no code with the store. It lists names by its own rule, reads with plain pyarrow or `json`, and
computes what must be there from the seed. `--broken` runs the same cycles against a store that acknowledges too early
and writes in place: a harness that does not catch that one proves nothing.
"""

from __future__ import annotations

import os

# Before numpy and pyarrow are imported: a fork must not happen beside threads; BLAS and jemalloc would start some.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

import argparse
import json
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

import tiltmeter.rundir.journal
import tiltmeter.rundir.store
import tiltmeter.rundir.writer
from file_systems import FILE_SYSTEMS, simulate
from record import record
from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.journal import DURABLE, Event, Journal
from tiltmeter.rundir.store import RunDirectory

FULL = 1000  # cycles of a run whose figures are recorded
CYCLES_PER_DIRECTORY = 10
KILL_WITHIN = 0.040  # seconds after the first acknowledgement
FIRST_ACKNOWLEDGEMENT = 60.0  # seconds; beyond this the writer is broken, not slow
KINDS = ("store", "wait", "thin", "journal")
SHARES = (40, 25, 15, 20)

_ROLLOUTS = re.compile(r"([0-9]{6,})-([0-9]+)\.parquet")
_ODD_TEXTS = ("", "\x00", "\x1b]0;x\x07", "‮abc", "😀" * 3, "\ufeff", "\uffff", "\ud800", "a\udfffb", "é" * 7)
_ODD_REWARDS = (None, 0.0, -0.0, 1e-310, 1.7e308, float("nan"), float("inf"), float("-inf"))


@dataclass
class Rows:
    """What one step must say, in plain Python."""

    group: list[int]
    reward: list[float | None]
    completion: list[str]
    tokens: list[list[int]]


def rows_of(seed: int, cycle: int, step: int) -> Rows:
    """One step's content, from numbers alone: the writer and the checker each compute it for themselves."""
    rng = random.Random(f"{seed}/{cycle}/{step}")
    count = rng.choice((1, 3, 8, 32))
    long = rng.random() < 0.1  # now and then a file that takes long to write
    texts = [rng.choice(_ODD_TEXTS) + rng.randbytes(rng.randrange(20_000 if long else 400)).hex() for _ in range(count)]
    return Rows(
        group=[row // 4 for row in range(count)],
        reward=[rng.choice(_ODD_REWARDS) if rng.random() < 0.2 else rng.gauss(0.0, 1.0) for _ in range(count)],
        completion=texts,
        tokens=[[rng.getrandbits(17) for _ in range(rng.randrange(30))] for _ in range(count)],
    )


def event_of(seed: int, cycle: int, index: int) -> tuple[str, dict[str, Any]]:
    """Kind and data of one journal line; one in twenty is near the line limit, because long lines tear."""
    rng = random.Random(f"{seed}/{cycle}/event/{index}")
    kind = rng.choice(("reading", "step_done", "alarm", "fault", "note"))
    size = 29_000 if rng.random() < 0.05 else rng.randrange(300)
    return kind, {"value": rng.gauss(0.0, 1.0), "text": rng.choice(_ODD_TEXTS), "filler": rng.randbytes(size).hex()}


# -- writers: everything below runs in a forked process that will be killed ------------------------------------------


def write_with_the_store(directory: Path, seed: int, cycle: int, acknowledge: Callable[[str], None]) -> None:
    run = RunDirectory.create(directory)
    attempt = run.open_attempt(launch=f"crash-{cycle}", ranks=1, resume_step=None)
    for step in range(10_000):
        rows = rows_of(seed, cycle, step)
        batch = from_columns(step, rows.group, attempt=attempt, **_columns(rows))
        run.write(batch, 0, {"groups": "rank"})
        acknowledge(f"{attempt} {step} whole")


def write_with_a_run(
    directory: Path, seed: int, cycle: int, acknowledge: Callable[[str], None], *, on_full: Any
) -> None:
    tiltmeter.rundir.writer.SMALL_BATCHES = 0  # or batches of this size are never thinned
    run = open_run(directory, monitor=False, options=Options(on_full=on_full))
    writer = run._writer
    assert writer is not None
    told = Counter[str]()

    def after_write() -> None:
        # Batches leave the queue in order: whichever count grew says what became of the next step.
        step = sum(told.values())
        grown = next(name for name in ("written", "thinned", "dropped") if writer.counters[name] > told[name])
        told[grown] += 1
        if grown != "dropped":
            acknowledge(f"{run.attempt} {step} {'whole' if grown == 'written' else 'thin'}")

    writer._after_write = after_write
    for step in range(250):  # fewer than the queue may hold thinned: nothing is refused out of turn
        rows = rows_of(seed, cycle, step)
        run.observe(step=step, group=rows.group, **_columns(rows))
    signal.pause()


def write_the_journal(directory: Path, seed: int, cycle: int, acknowledge: Callable[[str], None]) -> None:
    journal = Journal(directory / "events", seq=cycle * 1_000_000)
    index, rng = 0, random.Random(f"{seed}/{cycle}/commits")
    while index < 100_000:
        size = rng.randrange(1, 6)
        made = [(number, *event_of(seed, cycle, number)) for number in range(index, index + size)]
        journal.commit(Event(kind, 0, index, data, f"{cycle}|{number}|{size}") for number, kind, data in made)
        if any(kind in DURABLE for _, kind, _ in made):
            for number, _, _ in made:
                acknowledge(f"event {cycle} {number}")
        index += size


def _columns(rows: Rows) -> dict[str, Any]:
    return {"reward": rows.reward, "completion": rows.completion, "tokens": rows.tokens}


def break_the_store(cycle: int) -> None:
    """Two mistakes real programs make: acknowledge what is still in a buffer, and write in place."""
    kept_open: list[IO[bytes]] = []
    pending: list[bytes] = []

    def careless_publish(path: Path, pieces: Sequence[bytes | pa.Buffer]) -> bool:
        if path.suffix != ".parquet":
            return publish(path, pieces)
        whole = b"".join(bytes(memoryview(piece)) for piece in pieces)
        if cycle % 2:
            kept_open.append(path.open("wb"))
            for start in range(0, len(whole), 1000):
                kept_open[-1].write(whole[start : start + 1000])
        else:
            with path.open("wb", buffering=0) as file:
                for start in range(0, len(whole), 1000):
                    file.write(whole[start : start + 1000])
        return True

    def careless_write_all(handle: int, piece: bytes | pa.Buffer) -> None:
        pending.append(bytes(memoryview(piece)))
        if len(pending) == 8:
            os.write(handle, b"".join(pending))
            pending.clear()

    tiltmeter.rundir.store.publish = careless_publish  # type: ignore[attr-defined]
    tiltmeter.rundir.journal.write_all = careless_write_all  # type: ignore[attr-defined]


# -- the killer -------------------------------------------------------------------------------------------------------


def kill_one(
    directory: Path, seed: int, cycle: int, kind: str, delay: float, *, broken: bool, file_system: str = ""
) -> list[str]:
    """One cycle: what the writer had acknowledged when it was killed."""
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork must not happen beside threads"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            if broken:
                break_the_store(cycle)
            if file_system:
                simulate(file_system, cycle)

            def acknowledge(text: str) -> None:
                os.write(writing, text.encode() + b"\n")

            if kind == "store":
                write_with_the_store(directory, seed, cycle, acknowledge)
            elif kind == "journal":
                write_the_journal(directory, seed, cycle, acknowledge)
            else:
                write_with_a_run(directory, seed, cycle, acknowledge, on_full=kind)
        except BaseException:  # noqa: BLE001  # whatever it was, the parent must hear that the writer failed
            traceback.print_exc()
        finally:
            os._exit(70)  # a writer is killed; one that gets here failed
    os.close(writing)
    try:
        heard, _, _ = select.select([reading], [], [], FIRST_ACKNOWLEDGEMENT)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        said = b""
        while part := os.read(reading, 1 << 16):
            said += part
    finally:
        os.close(reading)
    if not heard or not os.WIFSIGNALED(status):
        raise RuntimeError(f"cycle {cycle}: the {kind} writer failed by itself (see above), nothing was proved")
    return said.decode().splitlines()


# -- the checker: no code of the store below this line -----------------------------------------------------------------


@dataclass
class Acknowledged:
    """What the writers of one directory said is safe."""

    steps: dict[tuple[int, int], bool] = field(default_factory=dict)  # (attempt, step): whole?
    events: set[tuple[int, int]] = field(default_factory=set)  # (cycle, index)
    cycles: dict[int, int] = field(default_factory=dict)  # attempt: the cycle that wrote it

    def add(self, cycle: int, lines: list[str]) -> None:
        for line in lines:
            first, second, third = line.split()
            if first == "event":
                self.events.add((int(second), int(third)))
            else:
                self.cycles[int(first)] = cycle
                self.steps[int(first), int(second)] = third == "whole"


def check_rollouts(directory: Path, seed: int, told: Acknowledged) -> Counter[str]:
    """Every file under a final name must read whole and say what the seed says; no acknowledged step may lack."""
    found: Counter[str] = Counter()
    good: set[tuple[int, int, bool]] = set()
    for folder in (directory / "rollouts").iterdir() if (directory / "rollouts").is_dir() else ():
        for path in folder.iterdir():
            if (match := _ROLLOUTS.fullmatch(path.name)) is None:
                continue
            found["files"] += 1
            attempt, step = int(folder.name), int(match[1])
            # An attempt that acknowledged nothing was never seen: its writer is killed after its first word.
            whole = same_content(path, rows_of(seed, told.cycles[attempt], step))
            if whole is None:
                found["torn_reads"] += 1
            else:
                good.add((attempt, step, whole))
                found["rows"] += len(rows_of(seed, told.cycles[attempt], step).group)
    for (attempt, step), whole in told.steps.items():
        found["acknowledged"] += 1
        found["acknowledged_thinned"] += not whole
        found["lost"] += (attempt, step, whole) not in good
    return found


def same_content(path: Path, rows: Rows) -> bool | None:
    """True: every value as it must be. False: the numbers are, and text and tokens are absent. None: anything else."""
    try:
        source = pa.BufferReader(path.read_bytes())
        table = pq.ParquetFile(source, pre_buffer=False).read(use_threads=False)
        columns = table.to_pydict()
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    if columns.get("group") != rows.group or not _equal(columns.get("reward", []), rows.reward):
        return None
    if "completion" not in columns and "tokens" not in columns:
        return False
    texts = columns.get("completion", [])
    for row, raw in enumerate(columns.get("completion_raw", [])):
        if raw is not None:
            texts[row] = raw.decode("utf-8", "surrogatepass")
    return True if texts == rows.completion and columns.get("tokens") == rows.tokens else None


def _equal(left: list[float | None], right: list[float | None]) -> bool:
    # repr tells 0.0 from -0.0, shows every bit of a float, and lets NaN equal itself.
    return [repr(value) for value in left] == [repr(value) for value in right]


def check_events(directory: Path, seed: int, told: Acknowledged) -> Counter[str]:
    """Each line is a whole commit as it was made, or it does not parse; nothing that was acknowledged is lost."""
    found: Counter[str] = Counter()
    seen: set[tuple[int, int]] = set()
    for path in sorted((directory / "events").glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if not line:
                continue
            try:
                events = json.loads(line)["events"]
                names = [tuple(map(int, event["id"].split("|"))) for event in events]
            except (ValueError, KeyError, TypeError, AttributeError):
                found["torn_lines"] += 1
                continue
            first, size = names[0][1], names[0][2]
            whole = [number for _, number, _ in names] == list(range(first, first + size))
            for event, (cycle, index, _) in zip(events, names, strict=True):
                same = (event["kind"], event["data"]) == event_of(seed, cycle, index)
                if not whole or not same or (cycle, index) in seen:
                    found["events_changed"] += 1
                seen.add((cycle, index))
    found["events"] = len(seen)
    found["events_acknowledged"] = len(told.events)
    found["events_lost"] = len(told.events - seen)
    return found


# -- the campaign -----------------------------------------------------------------------------------------------------

COUNTS = (
    "cycles",
    "acknowledged",
    "acknowledged_thinned",
    "files",
    "rows",
    "lost",
    "torn_reads",
    "leftover_dot_files",
    "events_acknowledged",
    "events_lost",
    "events_changed",
    "torn_lines",
)


def campaign(cycles: int, seed: int, *, broken: bool, file_system: str = "") -> dict[str, float | int | str | bool]:
    started = time.monotonic()
    total: Counter[str] = Counter()
    rng = random.Random(seed)
    home = Path(tempfile.mkdtemp(prefix="tiltmeter-crash-"))
    # pyarrow loads pandas at its first table: seconds that every fork would pay for itself.
    warm = RunDirectory.create(home / "warm")
    warm.open_attempt(launch="warm", ranks=1, resume_step=None)
    rows = rows_of(seed, 0, 0)
    warm.write(from_columns(0, rows.group, **_columns(rows)), 0, {})
    try:
        for first in range(0, cycles, CYCLES_PER_DIRECTORY):
            directory = home / str(first)
            directory.mkdir()
            told = Acknowledged()
            for cycle in range(first, min(first + CYCLES_PER_DIRECTORY, cycles)):
                (kind,) = rng.choices(KINDS, SHARES)
                before = dot_files(directory)
                delay = rng.uniform(0, KILL_WITHIN)
                lines = kill_one(directory, seed, cycle, kind, delay, broken=broken, file_system=file_system)
                told.add(cycle, lines)
                total["cycles"] += 1
                total[f"cycles_{kind}"] += 1
                total["leftover_dot_files"] += len(dot_files(directory) - before)
            found = check_rollouts(directory, seed, told) + check_events(directory, seed, told)
            total += found
            if found["lost"] + found["torn_reads"] + found["events_lost"] + found["events_changed"] and not broken:
                kept = Path(tempfile.mkdtemp(prefix="tiltmeter-crash-kept-"))
                shutil.move(directory, kept)
                print(f"seed {seed}, cycles from {first}: kept in {kept}", file=sys.stderr)
            else:
                shutil.rmtree(directory)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    figures: dict[str, float | int | str | bool] = {name: total[name] for name in COUNTS}
    figures |= {f"cycles_{kind}": total[f"cycles_{kind}"] for kind in KINDS}
    return figures | {"seconds": round(time.monotonic() - started, 1)}


def dot_files(directory: Path) -> set[Path]:
    return set(directory.rglob(".*"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="50 cycles")
    parser.add_argument("--keep", action="store_true", help="record the figures although the run is not a full one")
    parser.add_argument("--broken", action="store_true", help="the positive control: a store that breaks its promise")
    parser.add_argument("--file-system", default="", choices=["", *FILE_SYSTEMS], help="a simulated one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    cycles = 50 if asked.quick else asked.cycles
    figures = campaign(cycles, asked.seed, broken=asked.broken, file_system=asked.file_system)
    keep = (asked.keep or cycles >= FULL) and not (asked.broken or asked.file_system)
    result = record("crash", figures, seed=asked.seed, keep=keep)
    if asked.json:
        print(json.dumps(result))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    caught = sum(int(figures[name]) for name in ("lost", "torn_reads", "events_lost", "events_changed"))
    return int(bool(caught) != asked.broken)


if __name__ == "__main__":
    sys.exit(main())
