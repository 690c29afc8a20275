"""Flip one bit of a stored file, in thousands of copies: the reader must raise `StoreError` or return the truth.

Files of every shape a run directory has (text and tokens, numbers only, no rows, several row groups, packed) get a
flipped bit, a cut, or a block of zeros, which is what a bad disk leaves. Half of the flips fall anywhere, half into the
last bytes, where Parquet's own checksums do not reach. `silent` counts reads that returned something else than what
was stored; `other_errors` those that raised something a caller does not expect.

The positive control reads the same damaged files with plain pyarrow, in a process of its own because damaged bytes may
end it: if that showed no wrong values, the flips would prove nothing. Journal lines are flipped too: `journal_silent`
says how many flips change an event without anybody noticing.
"""

from __future__ import annotations

import os

# A fork must not happen beside threads; BLAS and jemalloc would start some.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from record import record
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import COLUMNS, Ragged, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import JournalReader
from tiltmeter.rundir.maintenance import pack, verify
from tiltmeter.rundir.store import RunDirectory

FULL = 2000  # flips of a run whose figures are recorded
TAIL = 3000  # bytes at the end of a file: footer, seal, metadata
PART = ("reward", "completion", "length")
CONTROL_CHUNK = 25  # damaged files that one process reads with plain pyarrow

Key = tuple[int, int]
Truths = dict[Key, tuple[dict[str, Any], dict[str, Any]]]  # by (step, rank): the batch in plain values, its metadata


# -- files to damage --------------------------------------------------------------------------------------------------


def make_run(path: Path, seed: int, *, packed: bool) -> RunDirectory:
    """A small finished run with a file of every shape, as it was written or packed."""
    rng = np.random.default_rng(seed)
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    facts = {"groups": "rank", "counters": {"seen": 7, "written": 7}}
    for step in range(7):
        rows = 0 if step == 5 else 12
        lengths = [int(n) for n in rng.integers(0, 40, rows)]
        columns: dict[str, Any] = {"reward": rng.normal(size=rows), "length": lengths}
        if step % 2 == 0:
            columns |= {
                "completion": [rng.bytes(n).hex() + ("\ud800" if step == 4 else "é") for n in lengths],
                "prompt": ["the same question"] * rows,
                "tokens": [rng.integers(0, 150_000, n) for n in lengths],
                "logprob": [rng.normal(size=n) for n in lengths],
                "rewards": {
                    "format": [1, None, float("nan"), float("inf")] * (rows // 4),
                    "a b": rng.normal(size=rows),
                },
                "truncated": [n > 30 for n in lengths],
                "scalars": {"loss": 0.25, "lr": 1e-5},
            }
        if step == 6:
            columns["length"] = [400_000] * rows  # a row group each
            columns = {name: columns[name] for name in ("reward", "length", "completion")}
        run.write(from_columns(step, [row // 4 for row in range(rows)], attempt=attempt, **columns), 0, facts)
    run.close_rank(attempt, 0, {"seen": 7, "written": 7})
    if packed:
        assert pack(run) == 7
    return run


def plain(batch: RolloutBatch) -> dict[str, Any]:
    """Every value of a batch, bit for bit, in something that compares."""

    def flat(value: Any) -> Any:
        if isinstance(value, Ragged):
            return flat(value.values), flat(value.offsets)
        return (value.dtype.str, value.tobytes()) if isinstance(value, np.ndarray) else value

    values = {name: flat(getattr(batch, name)) for name in COLUMNS if name != "rewards"}
    values |= {f"rewards.{name}": flat(part) for name, part in batch.rewards.items()}
    values |= {f"flag.{name}": flat(codes) for name, codes in batch.flags.items()}
    return values | {"scalars": dict(batch.scalars), "key": (batch.attempt, batch.step, batch.fingerprint)}


def read_all(run: RunDirectory) -> Truths:
    found = {}
    for file in run.files(0):
        batch, facts, _ = run.read(file)
        found[file.step, file.rank] = plain(batch), facts
    return found


# -- damage -----------------------------------------------------------------------------------------------------------


def flip(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(max(0, len(content) - TAIL) if rng.random() < 0.5 else 0, len(content))
    damaged = bytearray(content)
    damaged[at] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.choice((rng.randrange(len(content)), len(content) - rng.randrange(1, 40)))]


def blank(content: bytes, rng: random.Random) -> bytes:
    """A block of zeros, as a file system leaves that knew the size and lost the data."""
    size = rng.choice((16, 512, 4096))
    at = rng.randrange(0, len(content), 16)
    return content[:at] + bytes(len(content[at : at + size])) + content[at + size :]


WAYS = {"flips": flip, "cuts": cut, "blanks": blank}


def outcome(path: Path, truths: Truths, affected: set[Key]) -> str:
    """What a fresh reader makes of a run with one damaged file: `truth`, `detected`, or what must not be."""
    run = RunDirectory(path)
    said: set[str] = set()
    try:
        files = run.files(0)
    except StoreError:
        return "detected"
    except Exception as error:  # noqa: BLE001  # any other kind is what is counted
        return f"other_errors {type(error).__name__} from files()"
    for file in files:
        key = (file.step, file.rank)
        if key not in affected:
            continue
        try:
            batch, facts, _ = run.read(file)
        except StoreError:
            said.add("detected")
        except Exception as error:  # noqa: BLE001
            return f"other_errors {type(error).__name__} from read()"
        else:
            if (plain(batch), facts) != truths[key]:
                return f"silent at {key}"
            said.add("truth")
        # A reader of some columns checks only those: what it does return must be true all the same.
        try:
            part, _, _ = run.read(file, PART)
        except StoreError:
            continue
        except Exception as error:  # noqa: BLE001
            return f"other_errors {type(error).__name__} from read() of some columns"
        if any(plain(part)[name] != truths[key][0][name] for name in PART):
            return f"silent at {key}, reading some columns"
    if {(file.step, file.rank) for file in files} != set(truths):
        return "silent: a step is missing from the listing"
    return "detected" if "detected" in said else "truth"


def damage(home: Path, seed: int, flips: int, count: Counter[str]) -> list[str]:
    """`flips` flipped bits, a tenth as many cuts and blanks, over all files of a plain and of a packed run."""
    rng = random.Random(seed)
    wrong: list[str] = []
    runs = {kind: make_run(home / kind, seed, packed=kind == "packed") for kind in ("loose", "packed")}
    truths = {kind: read_all(run) for kind, run in runs.items()}
    assert truths["loose"] == truths["packed"], "packing changed something"
    for way, damaged in WAYS.items():
        for _ in range(flips if way == "flips" else max(10, flips // 10)):
            kind = rng.choice(("loose", "loose", "packed"))
            run = runs[kind]
            files = run.files(0)
            file = rng.choice(files)
            content = file.path.read_bytes()
            changed = damaged(content, rng)
            if changed == content:
                continue
            affected = {(f.step, f.rank) for f in files if f.path == file.path}
            try:
                file.path.write_bytes(changed)
                said = outcome(run.path, truths[kind], affected)
            finally:
                file.path.write_bytes(content)
            count[way] += 1
            count[f"{way}_{kind}"] += 1
            count[said.split(" ")[0].rstrip(":")] += 1
            if said not in ("truth", "detected"):
                wrong.append(f"{way} in {kind} {file.name}: {said}")
    return wrong


def verify_sees(home: Path, seed: int, tries: int, count: Counter[str]) -> None:
    """`tiltmeter verify` must report damage, not stumble over it."""
    rng = random.Random(seed + 1)
    for kind in ("loose", "packed"):
        run = RunDirectory(home / kind)
        for _ in range(tries):
            file = rng.choice(run.files(0))
            content = file.path.read_bytes()
            try:
                file.path.write_bytes(flip(content, rng))
                affected = {(f.step, f.rank) for f in run.files(0) if f.path == file.path}
                if outcome(run.path, read_truth(run, content, file.path), affected) == "detected":
                    count["verify_tried"] += 1
                    try:
                        count["verify_reported"] += bool(verify(RunDirectory(run.path)))
                    except Exception:  # noqa: BLE001  # counted: it is the command that looks for damage
                        count["verify_crashed"] += 1
            finally:
                file.path.write_bytes(content)


def read_truth(run: RunDirectory, content: bytes, path: Path) -> Truths:
    damaged = path.read_bytes()
    path.write_bytes(content)
    try:
        return read_all(RunDirectory(run.path))
    finally:
        path.write_bytes(damaged)


# -- the positive control ---------------------------------------------------------------------------------------------


def plain_pyarrow(home: Path, seed: int, flips: int, count: Counter[str]) -> None:
    """The same flips, read as any script would read a Parquet file: no seal, no page checksums."""
    rng = random.Random(seed + 2)
    contents = [file.path.read_bytes() for file in RunDirectory(home / "loose").files(0) if file.step != 5]
    done = 0
    while done < flips:
        chunk = []
        for _ in range(min(CONTROL_CHUNK, flips - done)):
            content = rng.choice(contents)
            damaged = bytearray(content)
            damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            chunk.append((content, bytes(damaged)))
        done += len(chunk)
        answers = _in_a_child(chunk)
        count["plain_flips"] += len(answers)
        count["plain_silent"] += answers.count("s")
        count["plain_detected"] += answers.count("d")
        # The first without an answer ended the process; those after it were never read.
        count["plain_died"] += len(answers) < len(chunk)


def _in_a_child(chunk: list[tuple[bytes, bytes]]) -> str:
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork must not happen beside threads"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # a damaged size must not take the machine
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for content, damaged in chunk:
            try:
                got = _table(damaged).to_pydict()
                same = repr(got) == repr(_table(content).to_pydict())
                os.write(writing, b"t" if same else b"s")
            except BaseException:  # noqa: BLE001  # pyarrow noticed, in whatever words
                os.write(writing, b"d")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answers = pipe.read().decode()
    os.waitpid(child, 0)
    return answers


def _table(content: bytes) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)


# -- the journal ------------------------------------------------------------------------------------------------------


def journal(home: Path, seed: int, flips: int, count: Counter[str]) -> None:
    """One bit of one line: an event less and a line counted as skipped, or an event that says something else."""
    rng = random.Random(seed + 3)
    run = RunDirectory(home / "loose")
    events = home / "events"
    watch = MonitorLoop(run, Config.standard(), events_folder=events)
    watch.poll()
    watch.close()
    path = events / "0.jsonl"
    content = path.read_bytes()
    truth = {e.id: e for e in JournalReader(events).poll()}
    for _ in range(flips):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        tail = JournalReader(events)
        found = list(tail.poll())
        count["journal_flips"] += 1
        changed = [event for event in found if truth.get(event.id) != event]
        if changed:
            count["journal_silent"] += 1
        elif tail.skipped:
            count["journal_detected"] += 1
        else:
            count["journal_unnoticed"] += 1  # a line end, a digit beyond precision: nothing said is different
        try:
            MonitorLoop(run, Config.standard(), events_folder=events).close()
        except Exception:  # noqa: BLE001  # counted: a monitor that cannot start again on this journal
            count["journal_restart_failed"] += 1
    path.write_bytes(content)


# -- the campaign -----------------------------------------------------------------------------------------------------

COUNTS = (
    *("flips", "flips_loose", "flips_packed", "cuts", "blanks", "detected", "truth", "silent", "other_errors"),
    *("verify_tried", "verify_reported", "verify_crashed"),
    *("plain_flips", "plain_silent", "plain_detected", "plain_died"),
    *("journal_flips", "journal_detected", "journal_silent", "journal_unnoticed", "journal_restart_failed"),
)


def campaign(flips: int, seed: int) -> tuple[dict[str, float | int | str | bool], list[str]]:
    started = time.monotonic()
    count: Counter[str] = Counter()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    home = Path(tempfile.mkdtemp(prefix="tiltmeter-bitflips-", dir=memory))
    try:
        wrong = damage(home, seed, flips, count)
        verify_sees(home, seed, max(5, flips // 40), count)
        plain_pyarrow(home, seed, max(100, flips // 4), count)
        journal(home, seed, max(50, flips // 4), count)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    figures: dict[str, float | int | str | bool] = {name: count[name] for name in COUNTS}
    return figures | {"seconds": round(time.monotonic() - started, 1)}, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="300 flips")
    parser.add_argument("--keep", action="store_true", help="record the figures although the run is not a full one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    flips = 300 if asked.quick else asked.flips
    figures, wrong = campaign(flips, asked.seed)
    result = record("bitflips", figures, seed=asked.seed, keep=asked.keep or flips >= FULL)
    if asked.json:
        print(json.dumps(result))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    for line in wrong[:20]:
        print(f"seed {asked.seed}: {line}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
