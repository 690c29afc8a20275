"""Whether a tier holds here: twelve things that code inside must not be able to do, tried before any is let in.

What a sandbox is asked for and what it gives differ from machine to machine (a container's own filter, an old kernel,
root's privileges), so nothing is taken from its description.
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

from tiltmeter.sandbox import Ended
from tiltmeter.sandbox.filter import number
from tiltmeter.sandbox.place import Probe, Tier

TRIALS = Path(__file__).with_name("trials.py").read_text()
WALL_SECONDS, PATIENCE_SECONDS = 0.7, 10.0
CALLS = ("ptrace", "process_vm_readv", "pidfd_open", "pidfd_getfd")
#: Variables that are everybody's: to see one of them is to see nothing.
COMMON = ("LD_LIBRARY_PATH", "HOME", "PWD", "PATH", "LANG", "LC_CTYPE", "LC_ALL", "SHLVL", "_")
#: What cannot be judged from here when the program ran on another machine, whose own matter it is.
LOCAL = ("forks", "write outside", "tracing", "signals", "unshare", "survivors")


@dataclass
class _Bait:
    """What is laid out on this side for code inside to find."""

    secret: str
    token: str
    folder: Path
    listener: socket.socket
    victim: subprocess.Popen[bytes]

    def given(self, tier: Tier, trials: Sequence[str]) -> str:
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
                "calls": {name: number(name) for name in CALLS} if tier.name != "remote" else {},
            }
        )


def probe(tier: Tier) -> list[Probe]:
    """The twelve probes of a tier, each with what was seen. One that could not be tried has not held."""
    with ExitStack() as closing:
        bait = _laid(closing)
        remote = tier.name == "remote"
        quiet = ["environment", "host_file", "loopback", "memory"]
        quiet += [] if remote else ["forks", "writing", "tracing", "signals", "unshare"]
        patient = replace(tier.limits, wall_seconds=tier.limits.wall_seconds + PATIENCE_SECONDS)
        first = tier.once(TRIALS, bait.given(tier, quiet), patient)
        flood = tier.once(TRIALS, bait.given(tier, ["output"]), patient)
        short = replace(tier.limits, wall_seconds=WALL_SECONDS)
        stay = tier.once(TRIALS, bait.given(tier, ["survivors"]), short)
        if "survivors" not in _said(stay.stdout)[1]:  # a busy machine did not get as far as to begin
            stay = tier.once(TRIALS, bait.given(tier, ["survivors"]), replace(short, wall_seconds=PATIENCE_SECONDS))
        left = [] if remote else _left_behind(bait.token)
        return [*_judged(first, bait, tier), _flooded(flood, tier), _timed(stay), _survived(stay, left, remote)]


def _laid(closing: ExitStack) -> _Bait:
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


def _judged(ended: Ended, bait: _Bait, tier: Tier) -> list[Probe]:
    """What the quiet trials got. Each must have said that it begins: a sandbox in which nothing runs proves nothing."""
    begun, got = _said(ended.stdout)
    ours = {f"{name}={value}" for name, value in os.environ.items() if name not in COMMON and len(value) > 3}
    touched = [path.name for path in bait.folder.iterdir() if path.name != "canary"]
    judges: Mapping[str, tuple[str, Callable[[Any], str]]] = {
        "environment": ("environment", lambda seen: _secrets(seen, ours, bait.secret)),
        "host file": ("host_file", lambda seen: "it read a file of this machine" if bait.secret in seen else ""),
        "loopback": ("loopback", lambda seen: "it reached a port of this machine" if seen or _called(bait) else ""),
        "forks": ("forks", lambda seen: f"{seen} children" if seen > tier.limits.processes else ""),
        "memory": ("memory", lambda seen: f"{seen} MB beyond the limit" if seen else ""),
        "write outside": ("writing", lambda seen: f"it wrote in {[*seen, *touched]}" if seen or touched else ""),
        "tracing": ("tracing", lambda seen: f"not refused: {', '.join(seen)}" if seen else ""),
        "signals": ("signals", lambda seen: "it may signal processes outside" if seen else _fate(bait)),
        "unshare": ("unshare", lambda seen: "it made a user namespace" if seen else ""),
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


def _said(stdout: str) -> tuple[set[str], dict[str, Any]]:
    begun, got = set(), {}
    for line in stdout.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "begins" in said:
            begun.add(said["begins"])
        elif isinstance(said, dict) and "trial" in said:
            got[said["trial"]] = said.get("got")
    return begun, got


def _secrets(seen: list[str], ours: set[str], secret: str) -> str:
    if any(secret in line for line in seen):
        return "it read another process's environment"
    shown = sorted(line.split("=", 1)[0] for line in ours.intersection(seen))
    return f"it read our environment: {', '.join(shown[:5])}" if shown else ""


def _called(bait: _Bait) -> bool:
    try:
        bait.listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _fate(bait: _Bait) -> str:
    return "" if bait.victim.poll() is None else "a process outside was ended"


def _flooded(ended: Ended, tier: Tier) -> Probe:
    begun = "output" in _said(ended.stdout)[0]
    held = begun and ended.kind == "limit" and len(ended.stdout) <= tier.limits.output_kb * 1024
    return Probe("output", held, "cut" if held else f"not cut: {ended.kind}, {len(ended.stdout)} characters")


def _timed(ended: Ended) -> Probe:
    held = "survivors" in _said(ended.stdout)[0] and ended.kind == "timeout"
    return Probe("wall clock", held, f"ended after {ended.seconds:.1f} s" if held else f"{ended.kind}: {ended.reason}")


def _survived(ended: Ended, left: list[int], remote: bool) -> Probe:
    if remote:
        return Probe("survivors", None, "not tried: the other machine's own matter")
    held = "survivors" in _said(ended.stdout)[1] and not left
    return Probe("survivors", held, "none" if held else f"{len(left)} processes left" if left else ended.reason)


def _left_behind(token: str) -> list[int]:
    """Processes that go by a name and stay: on a busy machine, one that was ended takes a while to be gone."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := _going_by(token)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _going_by(token: str) -> list[int]:
    """Processes of that name, whatever namespace they are in."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "comm").read_text().strip()
            except OSError:  # it ended meanwhile
                continue
            if name == token:
                found.append(int(entry.name))
    return found
