"""Hostile run directories: every documented file and folder, damaged on purpose, under every verb.

    python benchmarks/hostile_runs.py [--json] [--write] [--every N]

A whole run directory is made once. Each case is a copy of it with one file or folder replaced (a link, a pipe, a
device, a deep or wrongly typed file, an absurd size, a bomb), given to one verb in a child process, in a home folder
full of canaries. Nothing may be written, read or run outside of the directory, nothing may hang, crash or take a
gigabyte, and healthy runs beside it stay on the page.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from record import record, show
from tiltmeter import cli
from tiltmeter.cli.verb_table import CORE
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import TiltmeterError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.pinned_prompts import make_snapshot, write_snapshot
from tiltmeter.rundir.receipts import ReceiptLog
from tiltmeter.rundir.requests import Knob, Receipt, publish_knobs
from tiltmeter.rundir.seal import seal
from tiltmeter.rundir.signing import receipt_key
from tiltmeter.rundir.staging.staged_rows import make_staging_folder
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.rundir.verifier_audits import write_guards
from tiltmeter.view.screens.reading_room.notes import list_notes
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.server.run_list import RunList, list_run

SECRET = "canary-7f3a91"
TOKEN = b"7" * 64  # of the run: whoever has none reads no receipt
LONG_TEXT = "x" * (1 << 20)
SECONDS = 10.0
MEGABYTES = 1024.0
ABSURD = 20 << 30  # bytes, sparse
CANARIES = (".bashrc", ".profile", ".ssh/config", ".config/tiltmeter/x", "0.jsonl", "labels/0.json", "run.json")
EVIL = "import os, pathlib\npathlib.Path(os.environ['HOME'], 'RAN').touch()\ndef score(*a, **k):\n    return 1.0\n"
ARCHIVED = '{"kind": "archive", "target": "", "text": "", "author": "ann", "time": 1800000000.0}'
TAGGED = '{"kind": "tag", "target": "0-1-0", "text": "odd", "author": "ann", "time": 1800000000.0}'
#: Documented files that a small run does not have by itself, with some content.
PLANTED = {
    "gold/people/0-000001/a.json": "{}",
    "gold/picked/0-1-0.json": "{}",
    "control/requests/0-1-beta.approve.json": "{}",
    "cache/trackers/webhook-00000000.json": "{}",
    "cache/list_entry.json": "{}",
    "audits/1800000000-00000000.json": "{}",
    "notes/run/1800000000000-00000000.json": ARCHIVED,
    "notes/rollouts/1800000000000-00000001.json": TAGGED,
    "guide.md": "how to label",
}
FOLDERS = (
    "events", "rollouts", "rollouts/0", "rollouts/0/packed", "rollouts/1", "rollouts/1/unplaced", "gold",
    "gold/requests", "gold/labels", "gold/people", "gold/picked", "control", "control/requests", "control/receipts",
    "cache", "cache/trackers", "evals", "pinned", "audits", "notes", "notes/run", "notes/rollouts",
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """One way to replace a file or folder of a run directory."""

    name: str
    place: str  # beneath the run directory
    plant: Callable[[Path, Path], None]  # gets the place and the home folder


@dataclass
class Found:
    """What went wrong, by kind."""

    cases: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)
    memory: float = 0.0
    seconds: float = 0.0

    def add(self, kind: str, case: str) -> None:
        self.wrong.setdefault(kind, []).append(case)


# -- a whole run directory -------------------------------------------------------------------------------------------


def make_run(path: Path) -> RunDirectory:
    """Two attempts, one of them packed; labels, evaluations, pinned prompts, knobs, receipts and a staging folder."""
    run = RunDirectory.create(path, {"launch": "$(touch RAN)"})
    rng = np.random.default_rng(0)
    run.write_reference(columns(0, rng))
    gold = path.with_name("gold.py")
    gold.write_text("def score(prompt, completion):\n    return float(len(completion) % 2)\n")
    for attempt in range(2):
        run.open_attempt(launch=f"$(touch $HOME/RAN{attempt})", ranks=1, resume_step=None)
        run.claim(attempt, 0)
        for step in range(4):
            counters = {"seen": step + 1, "written": step + 1}
            batch = columns(step, rng, attempt)
            run.write(batch, 0, {"counters": counters, "time": time.time(), "faults": [], "scalars": {"lr": 0.1}})
        write_evaluation(run, Evaluation(attempt, 1, "gsm8k", 0.5, 10))
        write_snapshot(run, make_snapshot(attempt, 1, "evaluation", ["a", "b"], ["one", "two"]))
        publish_knobs(run, attempt, "advise", {"beta": Knob("beta", 0.04, 0.0, 1.0)})
        write_guards(run, attempt, [{"name": "c", "state": "ok"}], [])
        run.report_trouble(attempt, 0, "disk full")
        loop = MonitorLoop(run, Config.standard(gold=f"{gold}:score"))
        while loop.poll():
            pass
        loop.close()
        run.close_rank(attempt, 0, {"seen": 4, "written": 4})
        if attempt == 0:
            run.write(columns(2, rng), 0, {})  # a step that was written twice
            pack(run)
    run.write(columns(4, rng, 1), 0, {})  # not measured yet, so that a monitor has something to write
    done = Receipt("0-1-beta.apply", 0, "applied", "beta", 0.04, 0.08, 2)
    ReceiptLog(run, receipt_key(TOKEN)).append(0, done)
    make_staging_folder(run, 1, {"batch_size": 4})
    for name, content in PLANTED.items():
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text(content)
    (run.path / "evil.py").write_text(EVIL)
    (run.path / "gold" / "requests").mkdir(parents=True, exist_ok=True)
    (run.path / "cache" / "monitor.lock").touch()
    return run


def columns(step: int, rng: np.random.Generator, attempt: int = 0) -> Any:
    texts = [f"answer {value}" for value in rng.integers(0, 99, 8)]
    return from_columns(
        step, np.repeat(range(4), 2), attempt=attempt, reward=rng.normal(size=8), prompt=["what?"] * 8,
        completion=texts, tokens=[[1, 2, 3]] * 8, logprob=[[-0.1] * 3] * 8,
    )  # fmt: skip


# -- attacks ---------------------------------------------------------------------------------------------------------


def clear(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def link_to(target: Callable[[Path, Path], Path]) -> Callable[[Path, Path], None]:
    def plant(place: Path, home: Path) -> None:
        leads_to = target(place, home)
        clear(place)
        place.symlink_to(leads_to)

    return plant


def copy_outside(place: Path, home: Path) -> Path:
    """What the place held, in the home folder: a reader that follows the link reads on."""
    outside = home / "copied"
    if place.is_dir():
        shutil.copytree(place, outside)
    elif place.exists():
        shutil.copyfile(place, outside)
    else:
        outside.write_text(SECRET)
    return outside


def replace_by(make: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    def plant(place: Path, home: Path) -> None:
        clear(place)
        make(place)

    return plant


def write(content: bytes) -> Callable[[Path, Path], None]:
    return replace_by(lambda place: place.write_bytes(content))


def make_sparse(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(ABSURD)


def make_device(place: Path) -> None:
    try:
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        place.symlink_to("/dev/zero")


def make_foreign(place: Path, home: Path) -> None:
    if os.geteuid() == 0 and place.exists():
        os.chown(place, 54321, 54321)


EVERYWHERE: dict[str, Callable[[Path, Path], None]] = {
    "link to a start-up file": link_to(lambda place, home: home / ".bashrc"),
    "link to its own content": link_to(copy_outside),
    "link to zeros": link_to(lambda place, home: Path("/dev/zero")),
    "pipe": replace_by(os.mkfifo),
    "device": replace_by(make_device),
    "folder": replace_by(lambda place: place.mkdir()),
    "absurd size": replace_by(make_sparse),
    "empty": write(b""),
    "of another user": make_foreign,
}
FOLDER_ATTACKS: dict[str, Callable[[Path, Path], None]] = {
    "link to the home folder": link_to(lambda place, home: home),
    "link to its own content": link_to(copy_outside),
    "link to nothing": link_to(lambda place, home: home / "nowhere"),
    "pipe": replace_by(os.mkfifo),
    "file": write(b"{}"),
}


def wrong_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values in the place of one: of other types, and numbers that no memory holds."""
    yield "list", [[]]
    yield "text", "many \x1b]0;owned\x07"
    yield "null", None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield "huge", 10**12
        yield "negative", -5
    if isinstance(value, str):
        yield "object", {"x\x1b]52;c;AAAA\x07": 1}
        yield "code", "evil.py:score"


def json_attacks(place: str, content: bytes) -> Iterator[Attack]:
    deep = b"[" * 100_000 + b"]" * 100_000
    yield Attack("deep", place, write(deep))
    yield Attack("deep value", place, write(b'{"format": 1, "ranks": ' + deep + b"}"))
    yield Attack("a list", place, write(b"[1, 2]"))
    yield Attack("not UTF-8", place, write(b'{"a": "\xff"}'))
    yield Attack("huge numbers", place, write(b'{"format": 1e999, "ranks": ' + b"9" * 5000 + b"}"))
    try:
        facts = json.loads(content)
    except ValueError:
        return
    for key, value in facts.items() if isinstance(facts, dict) else ():
        for name, other in wrong_values(value):
            yield Attack(f"{key} {name}", place, write(json.dumps({**facts, key: other}).encode()))
        without = {name: item for name, item in facts.items() if name != key}
        yield Attack(f"without {key}", place, write(json.dumps(without).encode()))


def with_checksum(plain: dict[str, Any]) -> bytes:
    text = json.dumps(plain, separators=(",", ":")).encode("ascii")
    return b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text))


def journal_attacks(place: str, content: bytes) -> Iterator[Attack]:
    """Whole lines with right checksums and wrong values, one for each field of each kind of event."""
    lines = [json.loads(line) for line in content.splitlines()]
    for line in lines:
        line.pop("crc")
    yield Attack("one endless line", place, replace_by(lambda place: place.write_bytes(content + b"x" * (96 << 20))))
    yield Attack("a deep line", place, write(content + with_checksum({"format": 1, "seq": 1}) + b"[" * 100_000))
    note = {"note": "receipt", "file": "x", "told": {"x\x1b]52;c;AAAA\x07": 1}}
    extra = {"id": "x", "kind": "note", "attempt": 0, "step": 0, "data": note}
    yield Attack("a strange receipt", place, write(content + with_checksum({**lines[-1], "events": [extra]})))
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines):
        for position, item in enumerate(line["events"]):
            kind = f"{item['kind']} {item['data'].get('note', '')}"
            for key, value in [*item["data"].items(), ("id", item["id"]), ("attempt", 0), ("step", 0)]:
                if (kind, key) in seen:
                    continue
                seen.add((kind, key))
                for name, other in wrong_values(value):
                    outer = key in ("id", "attempt", "step") and key not in item["data"]
                    changed = {**item, key: other} if outer else {**item, "data": {**item["data"], key: other}}
                    events = [*line["events"][:position], changed, *line["events"][position + 1 :]]
                    whole = [*lines[:number], {**line, "events": events}, *lines[number + 1 :]]
                    yield Attack(f"{kind}.{key} {name}", place, write(b"".join(map(with_checksum, whole))))


def parquet_attacks(place: str, content: bytes) -> Iterator[Attack]:
    """Bombs with the metadata and the seal of the file that they replace."""
    metadata = pq.read_schema(pa.BufferReader(content)).metadata or {}
    facts = json.loads(metadata.get(b"tiltmeter", b"{}"))
    rows = 100_000
    one = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [LONG_TEXT])
    for name, table in {
        "dictionary bomb": pa.table({"group": np.zeros(rows, np.int64), "prompt": one}),
        "row group bomb": pa.table({"group": np.zeros(rows, np.int64), "reward": np.zeros(rows)}),
    }.items():
        groups = 1 if "dictionary" in name else 150
        yield Attack(name, place, replace_by(partial(write_bomb, table, {**facts, "rows": rows}, groups)))
    small = pa.table({"group": [0, 0], "reward": [1.0, 2.0]})
    for key, value in facts.items():
        for name, other in wrong_values(value):
            yield Attack(f"{key} {name}", place, write(bomb(small, {**facts, "rows": 2, key: other}, 1)))
    yield Attack("deep metadata", place, write(bomb(small, "[" * 100_000 + "]" * 100_000, 1)))
    yield Attack("cut", place, write(content[: len(content) // 2]))


def write_bomb(table: pa.Table, facts: Any, groups: int, place: Path) -> None:
    place.write_bytes(bomb(table, facts, groups))


def bomb(table: pa.Table, facts: Any, groups: int) -> bytes:
    sink = pa.BufferOutputStream()
    text = facts if isinstance(facts, str) else json.dumps(facts)
    schema = table.schema.with_metadata({b"tiltmeter": text.encode()})
    with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False) as writer:
        for _ in range(groups):
            writer.write_table(table.cast(schema))
    return b"".join(memoryview(piece).tobytes() for piece in seal(sink.getvalue()))


def attacks(run: Path) -> Iterator[Attack]:
    for file in sorted(path for path in run.rglob("*") if path.is_file()):
        place = str(file.relative_to(run))
        yield from (Attack(name, place, plant) for name, plant in EVERYWHERE.items())
        content = file.read_bytes()
        if file.suffix == ".json":
            yield from json_attacks(place, content)
        elif place.startswith("events/"):
            yield from journal_attacks(place, content)
        elif file.suffix == ".parquet":
            yield from parquet_attacks(place, content)
    for folder in FOLDERS:
        yield from (Attack(name, folder, plant) for name, plant in FOLDER_ATTACKS.items())


# -- verbs -----------------------------------------------------------------------------------------------------------


def show_page(run: Path) -> None:
    """What the page reads: the list of runs in the folder, and the first screen of this one."""
    runs = RunList([run.parent])
    if not any(item.row.name == "healthy" for item in runs.rows(list_run).listed):
        raise AssertionError("the healthy run beside it is not on the page")
    for reader in map(runs.reader, runs.ids()):
        try:
            reader.refresh()
            summary(reader)
            list_notes(reader)
        except TiltmeterError as error:
            sys.stderr.write(f"tiltmeter: {error}\n")


def verbs(run: Path, scratch: Path) -> dict[str, Sequence[str]]:
    here, gold = str(run), f"{scratch / 'gold.py'}:score"
    return {
        "show": ("show", here),
        "watch": ("watch", here, "--once"),
        "watch with gold": ("watch", here, "--once", "--gold", gold),
        "watch until the end": ("watch", here, "--plain"),
        "replay": ("replay", here),
        "verify": ("verify", here),
        "alarms": ("alarms", here),
        "actions": ("approve", here),
        "phrases": ("rollouts", here, "--phrases"),
        "report": ("report", here, "--html", str(scratch / "report.html")),
        "report in Markdown": ("report", here, "--md", "-"),
        "audit": ("audit", here, "--keep", str(scratch / "kept"), "--plain"),
        "diff": ("diff", here, str(run.parent / "healthy")),
        "pack": ("pack", here),
        "purge": ("purge", here, "--yes"),
        "track": ("track", here, "--once", "--tensorboard", str(scratch / "tb")),
        "rollouts": ("rollouts", here, "tag:odd"),
        "dismiss": ("dismiss", here, "gold.slope"),
        "page": (),
    }


def run_verb(words: Sequence[str], run: Path) -> int:
    """The exit code that a shell would see."""
    before = sys.argv
    try:
        if words:
            sys.argv = ["tiltmeter", *words]
            cli.main()
        else:
            show_page(run)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever it is, a person would see it
        traceback.print_exc()
        return 70
    finally:
        sys.argv = before
    return 0


def child(words: Sequence[str], run: Path, scratch: Path, home: Path) -> None:
    """In a forked process: everything it prints goes to a file, and it never returns."""
    output = os.open(scratch / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["HOME"], os.environ["XDG_STATE_HOME"] = str(home), str(scratch / "state")
    os.chdir(scratch)
    code = run_verb(words, run)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def snapshot(home: Path) -> dict[str, tuple[int, int, int]]:
    """Every file and folder of the home folder, with its time, size and mode."""
    facts = {str(path): path.lstat() for path in (home, *home.rglob("*"))}
    return {name: (info.st_mtime_ns, info.st_size, info.st_mode) for name, info in facts.items()}


def try_case(attack: Attack, verb: str, base: Path, work: Path, found: Found) -> None:
    run, scratch, home = work / "runs" / "run", work / "scratch", work / "home"
    shutil.rmtree(work, ignore_errors=True)
    for folder in (scratch, home):
        folder.mkdir(parents=True)
    for name in CANARIES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    shutil.copytree(base, run)
    if verb in ("page", "diff"):
        shutil.copytree(base, work / "runs" / "healthy")
    (scratch / "gold.py").write_text("def score(prompt, completion):\n    return 1.0\n")
    token = scratch / "state" / "tiltmeter" / f"{RunDirectory(base).identity()['id']}.token"
    token.parent.mkdir(parents=True)
    token.write_bytes(TOKEN)
    token.chmod(0o600)
    attack.plant(run / attack.place, home)
    before = snapshot(home)
    case = f"{attack.place}: {attack.name}: {verb}"
    began = time.monotonic()
    if (pid := os.fork()) == 0:
        child(verbs(run, scratch)[verb], run, scratch, home)
    status, usage = wait_for(pid, began + SECONDS)
    found.cases += 1
    found.seconds = max(found.seconds, time.monotonic() - began)
    found.memory = max(found.memory, usage / 1024)
    output = (scratch / "output").read_bytes()
    if status is None:
        found.add("hangs", case)
    elif os.WIFSIGNALED(status) or os.WEXITSTATUS(status) not in range(4) or b"Traceback" in output:
        found.add("crashes", f"{case}: {output[-300:]!r}")
    if usage / 1024 > MEGABYTES:
        found.add("over_memory", f"{case}: {usage // 1024} MB")
    if (home / "RAN").exists() or any(name.startswith("RAN") for name in os.listdir(home)):  # noqa: PTH208
        found.add("code_run", case)
    if snapshot(home) != before:
        found.add("written_outside", case)
    if b"\x1b]" in output or b"\x07" in output:
        found.add("escapes", case)
    if any(SECRET.encode() in text for text in [output, *read_all(scratch), *read_all(run)]):
        found.add("read_outside", case)


def read_all(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        info = path.lstat()
        if stat.S_ISREG(info.st_mode) and info.st_size < 4 << 20:
            yield path.read_bytes()


def wait_for(pid: int, deadline: float) -> tuple[int | None, int]:
    """The status of a child, None if it had to be killed, and its largest size in kB."""
    while time.monotonic() < deadline:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage.ru_maxrss
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return None, os.wait4(pid, 0)[2].ru_maxrss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th case")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name has this in it")
    options = parser.parse_args()
    found = Found()
    with tempfile.TemporaryDirectory(prefix="tiltmeter-hostile-") as folder:
        base = make_run(Path(folder) / "base").path
        work = Path(folder) / "work"
        names = list(verbs(base, work))
        all_attacks = list(attacks(base))
        whole = {**EVERYWHERE, **FOLDER_ATTACKS}
        # Each attack on a whole file meets the verb that writes most and three others, each wrong value one, by turns.
        pairs = [
            (attack, verb)
            for number, attack in enumerate(all_attacks)
            for turn, verb in enumerate(names)
            if (turn - 5 * number) % len(names) < (3 if attack.name in whole or "bomb" in attack.name else 1)
            or (attack.name in whole and verb == "watch with gold")
        ]
        for verb in CORE.verbs.values():
            importlib.import_module(verb.module)
        with (Path(folder) / "shown").open("w") as shown, redirect_stdout(shown), redirect_stderr(shown):
            for name in ("show", "report", "alarms", "verify", "phrases"):  # loads what is loaded late
                run_verb(verbs(base, Path(folder))[name], base)
        healthy = Attack("nothing", "run.json", lambda place, home: None)
        for verb_name in names:  # a healthy run, so that the checks are known to see one, and everything is loaded
            try_case(healthy, verb_name, base, work, found)
        for attack, verb_name in pairs[:: options.every]:
            if options.only in f"{attack.place}: {attack.name}: {verb_name}":
                try_case(attack, verb_name, base, work, found)
                if found.cases % 100 == 0:
                    print(f"{found.cases} cases, wrong: {found.wrong}", file=sys.stderr, flush=True)
        shutil.rmtree(work)
        control = controls(base, work)
    kinds = ("written_outside", "read_outside", "code_run", "hangs", "crashes", "over_memory", "escapes")
    figures: dict[str, Any] = {"cases": found.cases, "attacks": len(all_attacks), "verbs": len(names)}
    figures |= {kind: len(found.wrong.get(kind, [])) for kind in kinds}
    figures |= {"memory_mb_max": round(found.memory), "seconds_max": round(found.seconds, 1), "control": control}
    figures["wrong"] = [f"{kind}: {case}" for kind, cases in found.wrong.items() for case in cases][:50]
    show(record("hostile_runs", figures, seed=0, keep=options.write), as_json=options.json)
    return 1 if found.wrong or control != len(CONTROLS) else 0


def controls(base: Path, work: Path) -> int:
    """How many of the defects are seen that the checks are there for, committed by the child itself."""
    seen = 0
    for kind, defect in CONTROLS.items():
        found = Found()
        real, globals()["run_verb"] = run_verb, lambda words, run, defect=defect: defect() or 0
        globals()["SECONDS"] = 4.0 if kind == "hangs" else 60.0
        try:
            try_case(Attack("nothing", "run.json", lambda place, home: None), "show", base, work, found)
        finally:
            globals()["run_verb"], globals()["SECONDS"] = real, 10.0
        seen += kind in found.wrong
    return seen


CONTROLS: dict[str, Callable[[], object]] = {
    "written_outside": lambda: Path(os.environ["HOME"], ".bashrc").write_text("changed"),
    "read_outside": lambda: print(Path(os.environ["HOME"], ".bashrc").read_text()),
    "code_run": lambda: Path(os.environ["HOME"], "RAN").touch(),
    "hangs": lambda: time.sleep(60),
    "crashes": lambda: os.abort(),
    "over_memory": lambda: np.ones(150_000_000).sum() and 0,
    "escapes": lambda: print("\x1b]0;owned\x07"),
}


if __name__ == "__main__":
    sys.exit(main())
