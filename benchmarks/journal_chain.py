"""The signed chain over the journal: what it costs the monitor, how long a check takes, and who names a changed line.

    python benchmarks/journal_chain.py [DIRECTORY] [--steps 100000] [--watched 3000] [--pairs 8] [--json] [--write]

`chain_cost_ratio`: CPU time of a step of the real `run_monitor` with the chain by that without, over pairs of processes
that watch `--watched` steps one after the other, in turns; the first tenth of each is left out. The ratio is of the
sums, `chain_cost_low` and `chain_cost_high` are the 95 % interval of its logarithm over pairs. As in `journal_scale`
nothing is measured in these processes, so that a step of theirs costs less than a real one and the ratio is higher.
`chain_us_a_step`: CPU time of the chain's own code for a line of that size, by itself.

The long run is one of those runs, with the events of its last step written again by the real journal up to `--steps`.
`verify_s`: every line of it is hashed again; `check_unchanged_s`: a reader that has seen it before.
`open_s`: until a server that has opened no run has served the overview, with a cache; `named_s`: until the overview
says that the journal is signed and intact, from the same moment.

Then a number in the line of step CHANGED_STEP of a watched run is changed, with a right checksum and the file's old
time. `surfaces_named`: of terminal, page, list, copy, monitor's cache and `verify`, how many say so where nobody has
looked at the run before, and `surfaces_named_with_cache` where all caches are full; `surfaces_calm`: how many of all
these still had a state that is not BLIND or an exit code of 0.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from journal_scale import SECONDS, megabytes, watch_long_run
from page_browser import served
from record import record, show
from tiltmeter.monitor import list_entry_writer
from tiltmeter.monitor import loop as monitor_loop
from tiltmeter.monitor.list_entry_writer import leave_list_entry
from tiltmeter.rundir.journal import Journal, encode_commit, parse
from tiltmeter.rundir.journal_chain.check import ChainCheck, JournalState
from tiltmeter.rundir.journal_links import ChainEnd, make_key, run_name_in_chain
from tiltmeter.rundir.remote.objects import open_objects
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.remote.writer_lease import WriterLease
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.list_entry import read_list_entry
from tiltmeter.view.screens.run_reader import RunReader, run_id
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.server.run_list import RunList, list_run

CHANGED_STEP = 12
NAMED = f"the journal was changed at or just before step {CHANGED_STEP} "
T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)  # Student's, of 2 to 12 pairs


# -- cost -------------------------------------------------------------------------------------------------------------


class NoCheck:
    """Stands for `ChainCheck` in a monitor without a chain."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def update(self, *_: object) -> JournalState:
        return JournalState("none", "")

    def save(self) -> None: ...


def watch_without_chain(path: Path, steps: int) -> None:
    vars(monitor_loop)["ChainEnd"] = lambda *_: None
    vars(monitor_loop)["make_key"] = lambda _: None
    vars(list_entry_writer)["ChainCheck"] = NoCheck
    watch_long_run(path, steps)


def watched_cpu(path: Path, steps: int, *, chain: bool) -> float:
    """CPU seconds of the last nine tenths of a run that is watched in a process of its own."""
    command = [sys.executable, __file__, str(path), "--watched", str(steps), "--child", "chain" if chain else "plain"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS)
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    return float(samples[-1]["cpu_s"] - samples[0]["cpu_s"])


def cost(folder: Path, steps: int, pairs: int) -> dict[str, Any]:
    with_chain, without = list[float](), list[float]()
    for pair in range(pairs):
        for chain in (True, False) if pair % 2 else (False, True):
            path = folder / f"{'chain' if chain else 'plain'}-{pair}"
            (with_chain if chain else without).append(watched_cpu(path, steps, chain=chain))
            if pair or not chain:
                shutil.rmtree(path)
    logs = [math.log(a / b) for a, b in zip(with_chain, without, strict=True)]
    mean = statistics.fmean(logs)
    half = T_95[pairs - 2] * statistics.stdev(logs) / math.sqrt(pairs) if pairs > 1 else math.inf
    return {
        "watched": steps,
        "pairs": pairs,
        "cpu_ms_a_step": round(1e3 * sum(with_chain) / (pairs * 0.9 * steps), 3),
        "cpu_ms_a_step_without": round(1e3 * sum(without) / (pairs * 0.9 * steps), 3),
        "chain_cost_ratio": round(sum(with_chain) / sum(without), 4),
        "chain_cost_low": round(math.exp(mean - half), 4),
        "chain_cost_high": round(math.exp(mean + half), 4),
    }


def own_cost(run: RunDirectory) -> dict[str, Any]:
    """The chain's own code on a line as it is written, by itself."""
    line = last_line(run)
    events, chain, count = parse(line), ChainEnd("x", make_key(run), b""), 2000
    times = []
    for one in (chain, None):
        begun = time.process_time()
        for _ in range(count):
            encode_commit(events, 0, 0.0, one)
        times.append(time.process_time() - begun)
    return {"line_bytes": len(line), "chain_us_a_step": round(1e6 * (times[0] - times[1]) / count, 1)}


def last_line(run: RunDirectory) -> bytes:
    lines = (run.path / "events" / "0.jsonl").read_bytes().splitlines(keepends=True)
    return next(line for line in reversed(lines) if b'"kind":"step_done"' in line)


# -- a long run -------------------------------------------------------------------------------------------------------


def lengthen(run: RunDirectory, first: int, steps: int) -> None:
    """Write the events of the last step again, with the numbers of later ones."""
    events = parse(last_line(run))
    last = events[0].step
    chain = ChainEnd(run_name_in_chain(run), make_key(run))
    journal = Journal(run.path / "events", 100 * first, durable=False, chain=chain)
    for step in range(first, steps):
        journal.commit(replace(one, step=step, id=one.id.replace(f"|{last}|", f"|{step}|")) for one in events)
    journal.close()


def long_run(run: RunDirectory, state: Path, watched: int, steps: int) -> dict[str, Any]:
    lengthen(run, watched, steps)
    leave_list_entry(run)
    time.sleep(3.0)  # a file that was written to a moment ago is not taken to be as it was
    seconds = []
    for anew in (True, False):
        begun = time.perf_counter()
        found = ChainCheck(run, anew=anew).update()
        seconds.append(time.perf_counter() - begun)
        assert found.level == "signed", found
    return {
        "steps": steps,
        "journal_mb": megabytes(run.path / "events"),
        "verify_s": round(seconds[0], 2),
        "check_unchanged_s": round(seconds[1], 4),
        **open_page(run.path, state),
    }


def open_page(path: Path, state: Path) -> dict[str, float]:
    """Seconds until the overview is served, and until it says how the journal stands, with what was seen forgotten."""
    shutil.rmtree(state / "tiltmeter" / "journals", ignore_errors=True)
    with served(path, state) as server:
        code = urlsplit(server.url).fragment.partition("code=")[2] or server.url.rpartition("=")[2]
        with httpx.Client(base_url=server.origin, timeout=SECONDS) as client:
            token = client.post("/api/login", json={"code": code}).raise_for_status().json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            begun, opened = time.perf_counter(), 0.0
            while True:
                page = client.get("/api/summary", params={"run": run_id(path.resolve())}).raise_for_status().json()
                opened = opened or time.perf_counter() - begun
                if "Journal: signed and intact." in page["asides"]:
                    return {"open_s": round(opened, 2), "named_s": round(time.perf_counter() - begun, 2)}
                time.sleep(0.5)


# -- a changed line ---------------------------------------------------------------------------------------------------


def change_line(path: Path) -> None:
    """Change a number in an early line, as somebody would who knows the format."""
    times, lines = path.stat(), path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"step_done"' in line and b'"step":%d,' % CHANGED_STEP in line)
    body = lines[at][:-19].replace(b'"rows":16', b'"rows":15')
    assert body != lines[at][:-19]
    lines[at] = b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(b"}", zlib.crc32(body)))
    path.write_bytes(b"".join(lines))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def command(*words: str | Path) -> tuple[str, bool]:
    """What a command says, and whether it ends as if all were well."""
    done = subprocess.run([sys.executable, "-m", "tiltmeter", *map(str, words)], capture_output=True, text=True)
    return " ".join(done.stdout.split()), done.returncode == 0


def page_says(run: RunDirectory) -> tuple[str, bool]:
    reader, begun = RunReader(run), time.monotonic()
    page = summary(reader)
    while "Journal: not checked yet." in page.asides and time.monotonic() - begun < 60:
        reader.refresh(force=True)
        page = summary(reader)
    return page.sentence, page.state in ("OK", "WATCH")


def list_says(run: RunDirectory) -> tuple[str, bool]:
    runs, begun = RunList([run.path]), time.monotonic()
    (listed,) = runs.rows(list_run).listed
    while "not checked yet" in listed.row.what and time.monotonic() - begun < 60:
        (listed,) = runs.rows(list_run).listed
    return listed.row.what, listed.row.state in ("OK", "WATCH")


def cache_says(run: RunDirectory) -> tuple[str, bool]:
    leave_list_entry(run)
    left = read_list_entry(str(run.path), time.time())
    assert left is not None
    return left[0].sentence, left[0].state in ("OK", "WATCH")


def surfaces(run: RunDirectory, address: str) -> dict[str, Callable[[], tuple[str, bool]]]:
    return {
        "terminal": lambda: command("show", run.path),
        "page": lambda: page_says(run),
        "list": lambda: list_says(run),
        "copy": lambda: command("show", address),
        "cache": lambda: cache_says(run),
        "verify": lambda: command("verify", run.path),
    }


def changed(original: Path, folder: Path, state: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {"surfaces": 6, "surfaces_calm": 0}
    for name, looked in (("surfaces_named", False), ("surfaces_named_with_cache", True)):
        shutil.rmtree(state / "tiltmeter" / "journals", ignore_errors=True)
        run, store = RunDirectory(folder / name / "run"), folder / name / "store"
        shutil.copytree(original, run.path)
        store.mkdir()
        address = f"file://{store}/run"
        if looked:
            upload(run, address)
            for say in surfaces(run, address).values():
                assert NAMED not in say()[0]
            time.sleep(3.0)  # until what was seen counts as unchanged
            for say in surfaces(run, address).values():
                say()
            change_bucket(store / "run")
        change_line(run.path / "events" / "0.jsonl")
        if not looked:
            upload(run, address)
        said = {surface: say() for surface, say in surfaces(run, address).items()}
        missed = [surface for surface, (text, _) in said.items() if NAMED not in text]
        figures[name] = len(said) - len(missed)
        figures[f"{name}_missed"] = missed
        figures["surfaces_calm"] += sum(calm for _, calm in said.values())
    return figures


def upload(run: RunDirectory, address: str) -> None:
    lease = WriterLease(open_objects(address), "benchmark")
    lease.take(patience=0.0)
    uploader = Uploader(run, open_objects(address), lease)
    uploader.note_journal()
    uploader.cycle()


def change_bucket(store: Path) -> None:
    """Change the line in the first segment, and let the head agree with it."""
    segments = sorted((store / "events" / "0").iterdir())
    change_line(segments[0])
    head = json.loads((store / "head.json").read_text())
    head["journal"]["0"]["crc"] = zlib.crc32(b"".join(one.read_bytes() for one in segments))
    (store / "head.json").write_text(json.dumps(head))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="of the runs; without it one that is removed again")
    parser.add_argument("--steps", type=int, default=100_000, help="of the long run")
    parser.add_argument("--watched", type=int, default=3000, help="steps that a monitor watches")
    parser.add_argument(
        "--pairs", type=int, default=8, choices=range(1, 13), help="of processes, with the chain and without"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results")
    parser.add_argument("--child", choices=("chain", "plain"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        (watch_long_run if options.child == "chain" else watch_without_chain)(options.directory, options.watched)
        return
    with tempfile.TemporaryDirectory(prefix="tiltmeter-chain-") as made:
        folder = (options.directory or Path(made)).resolve()
        state = folder / "state"
        os.environ["XDG_STATE_HOME"], os.environ["XDG_CACHE_HOME"] = str(state), str(folder / "cache")
        figures = cost(folder, options.watched, options.pairs)
        run = RunDirectory(folder / "chain-0")
        figures |= own_cost(run)
        figures |= changed(run.path, folder / "changed", state)
        figures |= long_run(run, state, options.watched, options.steps)
    show(record("journal_chain", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
