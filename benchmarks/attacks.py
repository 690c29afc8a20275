"""Attacks on a sandbox as data (`attacks.toml`): what each tries from inside, and what would show that it succeeded.

Every program first says a word that only this run knows, so that an attack that never ran is not counted as stopped.
System calls are named; their numbers come from the machine. `got(...)` is the program's own claim of success; what it
leaves outside is looked at outside (`siege.py`).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.sandbox import Ended, Limits

#: Before each attack: its word, a name by which whatever it leaves behind is known, and the kernel's door.
PRELUDE = """
import ctypes, errno, json, os, sys
given = json.load(sys.stdin)
print("begins", given["word"], flush=True)
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(15, given["name"].encode(), 0, 0, 0)
def got(*what):
    print("got", *what, flush=True)
def call(name, *arguments):
    number = given["calls"].get(name)
    if number is None:
        return -1, errno.ENOSYS
    returned = libc.syscall(number, *arguments)
    return returned, ctypes.get_errno() if returned < 0 else 0
def refused(name, *arguments):
    returned, why = call(name, *arguments)
    return returned < 0 and why in (errno.EPERM, errno.ENOSYS, errno.EACCES)
def read(path):
    try:
        with open(path, "rb") as file:
            got(path, file.read(4096))
    except OSError:
        pass
"""


@dataclass(frozen=True)
class Attack:
    """One attempt: its program, by what it would be seen to have succeeded, and the time it is given."""

    name: str
    program: str
    stopped: str  # what is to be seen of it, see `succeeded`
    wall_seconds: float = 15.0
    cpu_seconds: float = 4.0
    most: float | str = 0.0  # of whatever it counts: a number, or one of the limits by name
    kinds: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    harmless: bool = False  # may be run without any sandbox, where it must be seen to succeed

    @property
    def limits(self) -> Limits:
        return Limits(wall_seconds=self.wall_seconds, cpu_seconds=self.cpu_seconds)

    def succeeded(self, ended: Ended) -> str:
        """What it got by its own criterion, or nothing."""
        match self.stopped:
            case "nothing":  # it must not have got anything, and must have lived to say so
                claim = _claims(ended)[:1]
                return (
                    f"it got {claim[0][:80]}"
                    if claim
                    else ""
                    if ended.kind == "ended"
                    else f"it ended by {ended.reason}"
                )
            case "at most":  # the largest number it claims; being ended while it took more is as good
                named = {"memory_mb": self.limits.memory_mb, "processes": self.limits.processes}
                most = named[self.most] if isinstance(self.most, str) else self.most
                largest = max(map(float, _claims(ended)), default=0.0)
                return f"it got {largest:g}, more than {most:g}" if largest > most else ""
            case "cut":
                fine = ended.kind in self.kinds and ended.seconds <= self.wall_seconds + 5
            case "exit":
                fine = ended.kind == "ended" and ended.exit_code in self.codes
            case "output":
                fine = (
                    ended.kind == "limit" and max(len(ended.stdout), len(ended.stderr)) <= self.limits.output_kb * 1024
                )
            case "not infra":  # which costs a program nothing
                fine = ended.kind != "infra"
            case "refused":
                fine = "all refused" in ended.stdout
            case other:
                raise ValueError(f"{self.name}: nobody knows how to see {other!r}")
        return "" if fine else f"{ended.kind}, exit code {ended.exit_code} after {ended.seconds:.1f} s: {ended.reason}"


def _claims(ended: Ended) -> list[str]:
    return re.findall(r"^got (.*)$", ended.stdout, re.M)


def read() -> tuple[Attack, ...]:
    """The attacks of the file."""
    listed: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text())["attack"]
    for one in listed:
        one |= {name: tuple(value) for name, value in one.items() if isinstance(value, list)}
    return tuple(Attack(**one) for one in listed)


ATTACKS = read()

#: What an honest program does after each attack, in the same sandbox: it must find nothing of what went before.
HONEST = """
import json, os
found = []
for place in ("/tmp", "/dev/shm"):
    try:
        found += os.listdir(place)
    except OSError:  # there is nothing to write in, and so nothing to find
        pass
print(json.dumps({"answer": 6 * 7, "files": found, "poison": "POISON" in os.environ}))
"""
