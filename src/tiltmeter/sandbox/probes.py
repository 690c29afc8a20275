"""Test a sandbox tier on this machine: twelve escape attempts that must fail before any code is run.

What a sandbox really prevents differs from machine to machine (a container's own filter, an old kernel, root), so it is
tested and not assumed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiltmeter.sandbox.contract import Ended
from tiltmeter.sandbox.probed_sandbox import Probe, Tier
from tiltmeter.sandbox.seccomp import syscall_number

TRIALS = Path(__file__).with_name("escape_attempts.py").read_text()
WALL_SECONDS, PATIENCE_SECONDS = 0.7, 10.0
CALLS = ("ptrace", "process_vm_readv", "pidfd_open", "pidfd_getfd")
#: Variables that are everybody's: to see one of them is to see nothing.
COMMON = ("LD_LIBRARY_PATH", "HOME", "PWD", "PATH", "LANG", "LC_CTYPE", "LC_ALL", "SHLVL", "_")
#: What cannot be judged from here when the program ran on another machine, whose own matter it is.
LOCAL = ("forks", "write outside", "tracing", "signals", "unshare", "survivors")


@dataclass
class _Bait:
    """The bait on the host: a secret file, a port and a process that code in the sandbox must not reach."""

    secret: str
    token: str
    folder: Path
    listener: socket.socket
    victim: subprocess.Popen[bytes]

    def task_json(self, tier: Tier, trials: Sequence[str]) -> str:
        limits = tier.limits
        return json.dumps(
            {
                "trials": trials,
                "token": self.token,
                "file": str(self.folder / "canary"),
                "folder": str(self.folder),
                "port": self.listener.getsockname()[1],
                "processes": [os.getpid(), self.victim.pid],
                "forks": limits.processes + 20,
                "memory_mb": limits.memory_mb + 64,
                "calls": {name: syscall_number(name) for name in CALLS} if tier.name != "remote" else {},
            }
        )


def run_probes(tier: Tier) -> list[Probe]:
    """The twelve probes of a tier, each with what was seen. One that could not be tried has not held."""
    with ExitStack() as closing:
        bait = _lay_bait(closing)
        remote = tier.name == "remote"
        quiet = ["environment", "host_file", "loopback", "memory"]
        quiet += [] if remote else ["forks", "writing", "tracing", "signals", "unshare"]
        patient = replace(tier.limits, wall_seconds=tier.limits.wall_seconds + PATIENCE_SECONDS)
        first = tier.once(TRIALS, bait.task_json(tier, quiet), patient)
        flood = tier.once(TRIALS, bait.task_json(tier, ["output"]), patient)
        short = replace(tier.limits, wall_seconds=WALL_SECONDS)
        stay = tier.once(TRIALS, bait.task_json(tier, ["survivors"]), short)
        if "survivors" not in _read_trials(stay.stdout)[1]:  # a busy machine did not get as far as to begin
            stay = tier.once(TRIALS, bait.task_json(tier, ["survivors"]), replace(short, wall_seconds=PATIENCE_SECONDS))
        survivors = [] if remote else _remaining_processes(bait.token)
        return [
            *_quiet_probes(first, bait, tier),
            _output_probe(flood, tier),
            _wall_clock_probe(stay),
            _survivors_probe(stay, survivors, remote),
        ]


def _lay_bait(closing: ExitStack) -> _Bait:
    secret, token = secrets.token_hex(16), secrets.token_hex(7)
    folder = Path(tempfile.mkdtemp(prefix="tiltmeter-probe-"))
    closing.callback(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o777)  # anybody's, so that only the sandbox stands in the way
    (folder / "canary").write_text(secret)
    listener = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.setblocking(False)
    sleep = shutil.which("sleep") or "/bin/sleep"
    victim = subprocess.Popen([sleep, "60"], env={"TILTMETER_CANARY": secret}, start_new_session=True)
    closing.callback(victim.wait)
    closing.callback(victim.kill)
    return _Bait(secret, token, folder, listener, victim)


def _quiet_probes(ended: Ended, bait: _Bait, tier: Tier) -> list[Probe]:
    """What the quiet trials got. Each must have said that it begins: a sandbox in which nothing runs proves nothing."""
    begun, got = _read_trials(ended.stdout)
    ours = {f"{name}={value}" for name, value in os.environ.items() if name not in COMMON and len(value) > 3}
    touched = [path.name for path in bait.folder.iterdir() if path.name != "canary"]
    judges: Mapping[str, tuple[str, Callable[[Any], str]]] = {
        "environment": ("environment", lambda result: _leaked_environment(result, ours, bait.secret)),
        "host file": ("host_file", lambda result: "it read a file of this machine" if bait.secret in result else ""),
        "loopback": (
            "loopback",
            lambda result: "it reached a port of this machine" if result or _was_contacted(bait) else "",
        ),
        "forks": ("forks", lambda result: f"{result} children" if result > tier.limits.processes else ""),
        "memory": ("memory", lambda result: f"{result} MB beyond the limit" if result else ""),
        "write outside": ("writing", lambda result: f"it wrote in {[*result, *touched]}" if result or touched else ""),
        "tracing": ("tracing", lambda result: f"not refused: {', '.join(result)}" if result else ""),
        "signals": ("signals", lambda result: "it may signal processes outside" if result else _victim_state(bait)),
        "unshare": ("unshare", lambda result: "it made a user namespace" if result else ""),
    }
    probes = []
    for name, (trial, judge) in judges.items():
        if tier.name == "remote" and name in LOCAL:
            probes.append(Probe(name, None, "not tried: the other machine's own matter"))
        elif trial not in begun or trial not in got:
            probes.append(
                Probe(name, False, f"not tried: {ended.reason}; {(ended.stderr.strip().splitlines() or [''])[-1]}")
            )
        else:
            wrong = judge(got[trial])
            probes.append(Probe(name, not wrong, wrong or "refused"))
    return probes


def _read_trials(stdout: str) -> tuple[set[str], dict[str, Any]]:
    begun, got = set(), {}
    for line in stdout.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and "begins" in message:
            begun.add(message["begins"])
        elif isinstance(message, dict) and "trial" in message:
            got[message["trial"]] = message.get("got")
    return begun, got


def _leaked_environment(lines: list[str], ours: set[str], secret: str) -> str:
    if any(secret in line for line in lines):
        return "it read another process's environment"
    leaked = sorted(line.split("=", 1)[0] for line in ours.intersection(lines))
    return f"it read our environment: {', '.join(leaked[:5])}" if leaked else ""


def _was_contacted(bait: _Bait) -> bool:
    try:
        bait.listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _victim_state(bait: _Bait) -> str:
    return "" if bait.victim.poll() is None else "a process outside was ended"


def _output_probe(ended: Ended, tier: Tier) -> Probe:
    begun = "output" in _read_trials(ended.stdout)[0]
    held = begun and ended.kind == "limit" and len(ended.stdout) <= tier.limits.output_kb * 1024
    return Probe("output", held, "cut" if held else f"not cut: {ended.kind}, {len(ended.stdout)} characters")


def _wall_clock_probe(ended: Ended) -> Probe:
    held = "survivors" in _read_trials(ended.stdout)[0] and ended.kind == "timeout"
    return Probe("wall clock", held, f"ended after {ended.seconds:.1f} s" if held else f"{ended.kind}: {ended.reason}")


def _survivors_probe(ended: Ended, survivors: list[int], remote: bool) -> Probe:
    if remote:
        return Probe("survivors", None, "not tried: the other machine's own matter")
    held = "survivors" in _read_trials(ended.stdout)[1] and not survivors
    return Probe(
        "survivors", held, "none" if held else f"{len(survivors)} processes left" if survivors else ended.reason
    )


def _remaining_processes(token: str) -> list[int]:
    """Processes that go by a name and stay: on a busy machine, one that was ended takes a while to be gone."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (processes := _processes_named(token)) and time.monotonic() < until:
        time.sleep(0.1)
    return processes


def _processes_named(token: str) -> list[int]:
    """Processes of that name, whatever namespace they are in."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "comm").read_text().strip()
            except OSError:  # it ended meanwhile
                continue
            if name == token:
                processes.append(int(entry.name))
    return processes
