"""A watched run for hours under faults: is every step measured in the end, and how long is nothing measured?

    python benchmarks/soak.py DIRECTORY [--hours 0.1] [--steps N] [--gold function|judge] [--json] [--write] [--seed 0]

One call is one part: it opens the run in DIRECTORY again, as a trainer that resumes does, hands over cheap rollouts at
a steady rate, and disturbs the real monitor process in turn:

    killed        SIGKILL
    frozen        SIGSTOP, and nobody continues it
    starved       lowest priority, beside as many busy processes as there are cores
    disk_full     its writes fail (RLIMIT_FSIZE), and work again
    clock         its wall clock jumps by an hour or a day, forward or back, and again
    moved         the run directory is elsewhere for two seconds, for the trainer too
    gold_hangs    the gold function backtracks in a regular expression without end
    judge_slow    a judge on this machine takes 45 s for an answer
    judge_429     it refuses all, and recovers

Parts add up in DIRECTORY/parts.jsonl, and with --write also with those of other directories that are on record: hours
can be had in pieces. The figures are of all of them. `measured_share`: steps with a `step_done` that has rows, of the
steps handed over. A gap is a time in which steps come and none is measured, counted to the last fault that came in it;
`gap_s_max` is the longest. Slots without a fault are for the CPU time of a step. A restart after the third in an hour
waits by design, so each fault that needs one comes once in a part. The last half minute has no fault: nobody looks
after the monitor of a trainer that has closed its run.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import http.server
import json
import logging
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from record import RESULTS, record, revision, show
from tiltmeter.adapters.arguments import Gold
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.rundir.journal import JournalReader
from tiltmeter.rundir.store import RunDirectory

COMMON = ("killed", "frozen", "starved", "disk_full", "clock", "moved")
OWN = {"function": ("gold_hangs",), "judge": ("judge_slow", "judge_429")}
QUIET = "none"
PARTS = "soak_parts"  # the record of all parts
ROWS = 16
LAST_SECONDS = 30.0
END_SECONDS = 120.0  # that the monitor may take to finish after the last step
CLOCK = """
import os, time
real, path, state = time.time, os.environ.get("SOAK_CLOCK", ""), [0.0, -1.0]

def jumping():
    if time.monotonic() > state[1] + 0.2:
        try:
            with open(path) as file:
                state[:] = float(file.read()), time.monotonic()
        except (OSError, ValueError):
            pass
    return real() + state[0]

time.time = jumping
"""
GOLD = r"""
import re
from pathlib import Path

def score(prompt, completion):
    if (Path(__file__).parent / "mode").read_text() == "hang":
        re.search(r"^(\s*\w+\s*)*=\s*42$", "word " * 30 + "!")
    return float(len(completion) % 3 == 0)
"""


class JudgeServer:
    """A judge that is well, slow, or refuses."""

    def __init__(self, folder: Path) -> None:
        self.delay, self.status = 0.0, 200
        judge = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(judge.delay)
                answer = json.loads(body["messages"][1]["content"].split("\n")[1])["answer"]
                said = json.dumps({"score": 10 if len(answer) % 3 == 0 else 0})
                message = {"choices": [{"index": 0, "message": {"role": "assistant", "content": said}}]}
                sent = json.dumps(message).encode() if judge.status == 200 else b"no"
                try:
                    self.send_response(judge.status)
                    self.send_header("Content-Length", str(len(sent)))
                    self.end_headers()
                    self.wfile.write(sent)
                except OSError:
                    pass  # its monitor was killed

            def log_message(self, *_: Any) -> None: ...

        port_file = folder / "port"
        port = int(port_file.read_text()) if port_file.exists() else 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        port_file.write_text(str(self.server.server_address[1]))
        (folder / "judge.toml").write_text(
            f'url = "http://127.0.0.1:{self.server.server_address[1]}/v1"\nmodel = "m"\nguide = "right or wrong"\n'
        )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Soak:
    """One part: a trainer, its monitor, and who disturbs it."""

    def __init__(self, folder: Path, gold: str, rate: float, slot: float, seed: int) -> None:
        self.possible, self.last_seconds = [*COMMON, *OWN[gold]], LAST_SECONDS
        self.folder, self.gold, self.rate, self.slot_seconds = folder, gold, rate, slot
        self.path, self.rng = folder / gold, np.random.default_rng(seed)
        self.slot, self.slot_began = QUIET, 0.0
        self.gaps: list[tuple[str, float]] = []
        self.faults: dict[str, int] = {}
        self.samples: list[dict[str, Any]] = []
        self.handed_over, self.measured, self.offset, self.grew = 0, 0, 0, 0.0
        self.cpu: dict[int, float] = {}
        self.failures: list[str] = []
        self.over = threading.Event()
        self.judge = JudgeServer(folder) if gold == "judge" else None

    def run(self, steps: int, seconds: float) -> dict[str, Any]:
        self.mode("ok")
        (self.folder / "clock").write_text("0")
        earlier = self.path.exists()
        first = self.next_step() if earlier else 0
        source = str(self.folder / "gold.py:score") if self.judge is None else str(self.folder / "judge.toml")
        share = 0.5 if self.judge is None else 0.02
        self.open = open_run(self.path, resume_step=first if earlier else None, gold=Gold(source, share=share))
        self.watched = self.open._monitor
        assert self.watched is not None
        self.journal = self.path / "events" / f"{self.open.attempt}.jsonl"
        threading.Thread(target=self.look, daemon=True).start()
        self.observe(self.open, first)
        self.handed_over, begun = 1, time.monotonic()
        while not self.measured and time.monotonic() < begun + END_SECONDS:
            time.sleep(0.1)  # a monitor that starts is no fault
        started = time.monotonic()
        self.deadline = started + min(seconds, steps / self.rate)
        threading.Thread(target=self.disturb, daemon=True).start()
        while self.handed_over < steps and time.monotonic() < started + seconds:
            self.observe(self.open, first + self.handed_over)
            self.handed_over += 1
            time.sleep(max(0.0, started + self.handed_over / self.rate - time.monotonic()))
        lasted = time.monotonic() - started
        self.over.set()
        self.open.close()
        try:
            self.watched.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.watched.process.kill()
            self.failures.append("the monitor did not end")
        longest: dict[str, float] = {}
        for fault, gap in self.gaps:
            longest[fault] = max(gap, longest.get(fault, 0.0))
        return {
            "run": str(RunDirectory(self.path).identity()["id"]),
            "revision": revision(),
            "gold": self.gold,
            "attempt": self.open.attempt,
            "hours": lasted / 3600.0,
            "steps": self.handed_over,
            "lost_by_the_trainer": self.open.counters["dropped"],
            "restarts": len(self.watched._restarts),
            "faults": self.faults,
            "longest": longest,
            "samples": self.samples,
            "failures": self.failures,
        }

    def next_step(self) -> int:
        steps = [int(file.name.split("-")[0]) for file in (self.path / "rollouts").glob("*/*.parquet")]
        return max(steps, default=-1) + 1

    def observe(self, run: Run, step: int) -> None:
        rng = np.random.default_rng(step)
        texts = [f"{number} " * (1 + number % 5) for number in rng.integers(0, 1000, ROWS).tolist()]
        prompts = [f"question {step % 50} {row // 4}" for row in range(ROWS)]
        run.observe(
            step=step, group=np.arange(ROWS) // 4, reward=rng.random(ROWS), prompt=prompts, completion=texts,
        )  # fmt: skip

    # -- faults -------------------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        """A quiet slot, then every fault once in random order; after that quiet slots."""
        order: list[str] = [QUIET, *self.rng.permutation(self.possible).tolist()]
        while not self.over.wait(self.slot_seconds if self.slot == QUIET and self.measured else 1.0):
            if not self.measured:
                continue  # it has not begun
            self.sample()
            late = time.monotonic() > self.deadline - self.slot_seconds - self.last_seconds
            self.slot, self.slot_began = order.pop(0) if order and not late else QUIET, time.monotonic()
            if self.slot == QUIET:
                continue
            self.faults[self.slot] = self.faults.get(self.slot, 0) + 1
            try:
                getattr(self, self.slot)()
            except Exception as error:  # noqa: BLE001  # a fault that could not be made is no result
                self.failures.append(f"{self.slot}: {type(error).__name__}: {error}")
            self.over.wait(self.slot_seconds)

    @property
    def pid(self) -> int:
        assert self.watched is not None
        return self.watched.process.pid

    def killed(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def frozen(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def starved(self) -> None:
        os.setpriority(os.PRIO_PROCESS, self.pid, 19)
        busy = [subprocess.Popen([sys.executable, "-S", "-c", "while 1: pass"]) for _ in range(os.cpu_count() or 2)]
        self.over.wait(self.slot_seconds / 2)
        for process in busy:
            process.kill()
            process.wait()

    def disk_full(self) -> None:
        pid, limits = self.pid, resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        self.over.wait(10.0)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    def clock(self) -> None:
        for jump in (86400.0, -3600.0, 3600.0, 0.0):
            (self.folder / "clock").write_text(str(jump))
            self.over.wait(3.0)

    def moved(self) -> None:
        away = self.path.with_name("away")
        self.path.rename(away)
        self.over.wait(2.0)
        away.rename(self.path)

    def mode(self, word: str) -> None:
        (self.folder / "mode").write_text(word)

    def gold_hangs(self) -> None:
        self.mode("hang")
        self.over.wait(5.0)
        self.mode("ok")

    def judge_slow(self) -> None:
        self._judge("delay", 45.0, 0.0)

    def judge_429(self) -> None:
        self._judge("status", 429, 200)

    def _judge(self, name: str, bad: float, good: float) -> None:
        setattr(self.judge, name, bad)
        self.over.wait(self.slot_seconds / 2)
        setattr(self.judge, name, good)

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Count the steps that are measured, and the times in which none is."""
        slot = QUIET
        while not self.over.wait(0.1):
            try:
                with self.journal.open("rb") as file:
                    file.seek(self.offset)
                    new = file.read()
            except OSError:
                continue
            whole = new[: new.rfind(b"\n") + 1]
            self.offset += len(whole)
            if count := whole.count(b'"kind":"step_done"'):
                now = time.monotonic()
                if self.measured:
                    # A fault that began within a gap is its cause; else it is what was there when the gap began.
                    self.gaps.append((self.slot if self.slot_began > self.grew else slot, now - self.grew))
                self.measured, self.grew, slot = self.measured + count, now, self.slot
            self.cpu[self.pid] = cpu_seconds(self.pid) or self.cpu.get(self.pid, 0.0)
        if self.grew:
            self.gaps.append((slot, time.monotonic() - self.grew))

    def sample(self) -> None:
        """What the monitor has used, at the end of a slot."""
        status = Path(f"/proc/{self.pid}/status").read_text() if Path(f"/proc/{self.pid}").exists() else ""
        memory = re.search(r"VmRSS:\s+(\d+)", status)
        descriptors = Path(f"/proc/{self.pid}/fd")
        self.samples.append({
            "slot": self.slot, "pid": self.pid, "measured": self.measured, "cpu_s": sum(self.cpu.values()),
            "memory_mb": int(memory[1]) / 1024 if memory else None,
            "descriptors": len(list(descriptors.iterdir())) if descriptors.exists() else None,
        })  # fmt: skip


def count_measured(folder: Path, parts: list[dict[str, Any]]) -> None:
    """Of each part, the steps that are measured by now: what one monitor was late with, the next one measures."""
    done: dict[tuple[str, int], list[bool]] = {}
    for gold in {part["gold"] for part in parts}:
        for event in JournalReader(folder / gold / "events").poll():
            if event.kind == "step_done":
                done.setdefault((gold, event.attempt), []).append(event.data["rows"] > 0)
    for part in parts:
        steps = done.get((part["gold"], part["attempt"]), [])
        part |= {"measured": sum(steps), "given_up": len(steps) - sum(steps)}


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures_of(parts: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The figures of all parts."""
    longest: dict[str, float] = {}
    count: dict[str, int] = {}
    cpu: dict[str, list[float]] = {}  # by run, ms of a step, in slots without a fault and without a restart
    memory: list[tuple[float, float, str]] = []
    descriptors: list[int] = []
    before: dict[str, int] = {}
    for part in parts:
        for slot, gap in part["longest"].items():
            longest[slot] = max(gap, longest.get(slot, 0.0))
        for fault, times in part["faults"].items():
            count[fault] = count.get(fault, 0) + times
        samples, run = part["samples"], part["run"]
        for earlier, later in pairwise(samples):
            steps = later["measured"] - earlier["measured"]
            if later["slot"] == QUIET and later["pid"] == earlier["pid"] and steps > 0:
                cpu.setdefault(run, []).append(1e3 * (later["cpu_s"] - earlier["cpu_s"]) / steps)
        for one in samples:
            if one["memory_mb"] is not None:
                memory.append((before.get(run, 0) + one["measured"], one["memory_mb"], run))
                descriptors.append(one["descriptors"])
        before[run] = before.get(run, 0) + part["steps"]
    steps, measured = sum(part["steps"] for part in parts), sum(part["measured"] for part in parts)
    slope, slope_error = growth(memory)
    ratio, low, high = last_to_first(list(cpu.values()), seed)
    return {
        "parts": len(parts),
        "steps": steps,
        "hours": round(sum(part["hours"] for part in parts), 3),
        "measured_share": round(measured / steps, 5),
        "measured": measured,
        "given_up": sum(part["given_up"] for part in parts),
        "lost_by_the_trainer": sum(part["lost_by_the_trainer"] for part in parts),
        "restarts": sum(part["restarts"] for part in parts),
        "gap_s_max": round(max(longest.values(), default=float("nan")), 1),
        **{f"gap_s_max_{name}": round(gap, 1) for name, gap in sorted(longest.items())},
        **{f"faults_{name}": times for name, times in sorted(count.items())},
        "memory_mb_per_10k_steps": slope and round(1e4 * slope, 2),
        "memory_mb_per_10k_steps_error95": slope_error and round(1.96e4 * slope_error, 2),
        "memory_mb_max": round(max((one[1] for one in memory), default=float("nan")), 1),
        "descriptors_max": max(descriptors, default=0),
        "cpu_ms_a_step": round(float(np.mean([one for run in cpu.values() for one in run])), 2) if cpu else None,
        "cpu_ratio_last_to_first": ratio,
        "cpu_ratio_low95": low,
        "cpu_ratio_high95": high,
        "cpu_slots": sum(len(run) for run in cpu.values()),
        "failures": [failure for part in parts for failure in part["failures"]],
        "by_part": [
            {
                "revision": part["revision"], "gold": part["gold"], "hours": round(part["hours"], 2),
                "steps": part["steps"], "measured": part["measured"],
                "gap_s_max": round(max(part["longest"].values()), 1),
                "in": max(part["longest"], key=part["longest"].__getitem__),
            }
            for part in parts
        ],
    }  # fmt: skip


def growth(samples: list[tuple[float, float, str]]) -> tuple[float | None, float | None]:
    """MB a step and its standard error, by least squares with a level for each run."""
    kinds = sorted({kind for _, _, kind in samples})
    if len(samples) < len(kinds) + 3:
        return None, None
    x = np.array([[at, *(kind == one for one in kinds)] for at, _, kind in samples], float)
    y = np.array([memory for _, memory, _ in samples])
    found, *_ = np.linalg.lstsq(x, y, rcond=None)
    variance = ((y - x @ found) ** 2).sum() / (len(y) - x.shape[1])
    return float(found[0]), float(np.sqrt(variance * np.linalg.pinv(x.T @ x)[0, 0]))


def last_to_first(runs: list[list[float]], seed: int) -> tuple[float | None, float | None, float | None]:
    """The mean of the runs' last halves by that of their first, with a 95 % interval by resampling within them."""
    rng = np.random.default_rng(seed)
    first = np.array([one for values in runs for one in values[: len(values) // 2]])
    last = np.array([one for values in runs for one in values[len(values) // 2 :]])
    if min(len(first), len(last)) < 2:
        return None, None, None
    ratios = [rng.choice(last, len(last)).mean() / rng.choice(first, len(first)).mean() for _ in range(4000)]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return round(float(last.mean() / first.mean()), 3), round(float(low), 3), round(float(high), 3)


def parts_on_record(runs: set[str]) -> list[dict[str, Any]]:
    """Parts that earlier soaks have left in the record, but for those of these runs."""
    file = RESULTS / f"{PARTS}.json"
    stored = json.loads(file.read_text())["of_parts"] if file.exists() else []
    return [part for part in stored if part["run"] not in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="of this soak; each call adds a part to it")
    parser.add_argument("--hours", type=float, default=0.1, help="of this part; 0: none, the figures of what is there")
    parser.add_argument("--steps", type=int, default=10**9, help="of this part, at most")
    parser.add_argument("--rate", type=float, default=6.0, help="steps a second")
    parser.add_argument("--slot", type=float, default=40.0, help="seconds from one fault to the next")
    parser.add_argument("--only", nargs="*", help="these faults, without it all")
    parser.add_argument("--last", type=float, default=LAST_SECONDS, help="seconds without a fault at the end")
    parser.add_argument("--gold", choices=tuple(OWN), help="without it in turns")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    folder = options.directory.resolve()
    (folder / "site").mkdir(parents=True, exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(CLOCK)
    (folder / "gold.py").write_text(GOLD)
    inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "site"), *inherited])
    os.environ |= {"SOAK_CLOCK": str(folder / "clock"), "XDG_STATE_HOME": str(folder / "state")}
    file = folder / "parts.jsonl"
    parts = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if options.hours > 0:
        gold = options.gold or tuple(OWN)[len(parts) % len(OWN)]
        soak = Soak(folder, gold, options.rate, options.slot, options.seed + len(parts))
        soak.last_seconds = options.last
        soak.possible = [fault for fault in soak.possible if options.only is None or fault in options.only]
        parts.append(soak.run(options.steps, 3600.0 * options.hours))
    if parts:
        count_measured(folder, parts)
        file.write_text("".join(json.dumps(part) + "\n" for part in parts))
    if options.write:
        parts = [*parts_on_record({part["run"] for part in parts}), *parts]
        record(PARTS, {"of_parts": parts}, seed=options.seed)
    show(record("soak", figures_of(parts, options.seed), seed=options.seed, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
