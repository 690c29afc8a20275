"""A sandbox under attack: what is laid out around it, every attack run inside, and what each of them got.

    python benchmarks/siege.py --tier bwrap --isolation strict --user nobody

prints one JSON object. An attack is stopped if it said its word, got nothing by its own criterion, and left nothing
outside: no file, no process, no dead or changed neighbour, no secret in its output, and a sandbox in which an honest
program works as before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from attacks import ATTACKS, HONEST, PRELUDE, Attack
from tiltmeter.sandbox import ACCEPTED, Ended, open_sandbox
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.interpreter import NOBODY, find_interpreter
from tiltmeter.sandbox.landlock import Landlock
from tiltmeter.sandbox.pool import Pool
from tiltmeter.sandbox.probed_sandbox import ProbedSandbox
from tiltmeter.sandbox.seccomp import syscall_number
from tiltmeter.sandbox.tiers import INSTALL
from tiltmeter.sandbox.unsandboxed import UnsandboxedTier

SECRET = "TILTMETER_SECRET"
TIERS = {
    ("bwrap", "strict"): Bubblewrap,
    ("bwrap", "pooled"): Pool,
    ("landlock", "strict"): Landlock,
    ("none", "strict"): UnsandboxedTier,
}
#: The system calls that attacks name, each as a word in quotes.
CALLS = {
    word: syscall_number(word) for word in re.findall(r'"([a-z_0-9]+)"', "".join(attack.program for attack in ATTACKS))
}


@dataclass
class Scene:
    """What is laid out on this side: secrets, doors, and a neighbour of the same account."""

    secrets: tuple[str, str]
    name: str
    folder: Path
    doors: tuple[socket.socket, socket.socket, socket.socket]
    neighbour: subprocess.Popen[bytes]

    def given(self, word: str) -> str:
        return json.dumps(
            {
                "word": word,
                "name": self.name,
                "file": str(self.folder / "secret"),
                "folder": str(self.folder),
                "port": self.doors[0].getsockname()[1],
                "datagrams": self.doors[1].getsockname()[1],
                "processes": [os.getpid(), self.neighbour.pid],
                "calls": CALLS,
            }
        )

    def harm(self, ended: Ended) -> str:
        """What was done to this side, in words, or nothing."""
        if any(secret in ended.stdout + ended.stderr for secret in self.secrets):
            return "a secret came out"
        if self.neighbour.poll() is not None:
            return "a neighbour was ended"
        if resource.prlimit(self.neighbour.pid, resource.RLIMIT_NOFILE)[0] == 1:
            return "a neighbour's limits were changed"
        state = self.folder.stat()
        if [path.name for path in self.folder.iterdir()] != ["secret"] or state.st_mode & 0o777 != 0o777:
            return "a folder outside was changed"
        if (self.folder / "secret").read_text() != self.secrets[1] or (
            self.folder / "secret"
        ).stat().st_mode & 0o777 != 0o644:
            return "a file outside was changed"
        for door in self.doors:
            try:
                door.recv(16) if door.type == socket.SOCK_DGRAM else door.accept()[0].close()
            except BlockingIOError:
                continue
            return "a door outside was reached"
        left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _name(entry) == self.name]
        return f"{len(left)} processes were left behind" if left else ""


def _name(entry: Path) -> str:
    try:
        return (entry / "comm").read_text().strip()
    except OSError:  # it ended meanwhile
        return ""


def laid(closing: ExitStack) -> Scene:
    name, secret = secrets.token_hex(7), secrets.token_hex(16)
    folder = Path(tempfile.mkdtemp(prefix="tiltmeter-siege-"))
    closing.callback(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o777)
    (folder / "secret").write_text(secret)
    (folder / "secret").chmod(0o644)
    # Open and not closed on exec, for whoever inherits it.
    held = os.open(folder / "secret", os.O_RDONLY)
    closing.callback(os.close, held)
    os.set_inheritable(held, True)
    doors = (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        socket.socket(socket.AF_UNIX),
    )
    doors[1].bind(("127.0.0.1", 0))
    doors[2].bind("\0" + name)
    doors[2].listen()
    for door in doors:
        closing.callback(door.close)
        door.setblocking(False)
    neighbour = subprocess.Popen(["sleep", "3600"], env={SECRET: os.environ[SECRET]}, start_new_session=True)
    closing.callback(neighbour.wait)
    closing.callback(neighbour.kill)
    return Scene((os.environ[SECRET], secret), name, folder, doors, neighbour)


def attacked(place: ProbedSandbox, attack: Attack, scene: Scene) -> str:
    """What an attack got, or nothing if it was stopped. What broke on our side is tried again, with more time."""
    word = secrets.token_hex(8)
    for more in (1.0, 3.0):
        limits = attack.limits
        ended = place.kind.once(PRELUDE + attack.program, scene.given(word), limits)
        if ended.kind != "infra":
            break
        time.sleep(more)
    if f"begins {word}" not in ended.stdout:
        return f"it did not run: {ended.kind}, {ended.reason}, {ended.stderr[-200:]}"
    wrong = attack.succeeded(ended) or scene.harm(ended)
    return wrong or _honest(place)


def _honest(place: ProbedSandbox) -> str:
    after = place.run(HONEST)
    try:
        told = json.loads(after.stdout)
    except ValueError:
        return f"an honest program does not run after it: {after.kind}, {after.reason} {after.stderr[-200:]}"
    return "" if told == {"answer": 42, "files": [], "poison": False} else f"an honest program finds {told}"


def besieged(tier: str, isolation: str, names: list[str]) -> dict[str, str]:
    """By attack: what it got, nothing if it was stopped."""
    found: dict[str, str] = {}
    chosen = [attack for attack in ATTACKS if (attack.name in names if names else tier != "none" or attack.harmless)]
    with ExitStack() as closing:
        place = closing.enter_context(ProbedSandbox(TIERS[tier, isolation](chosen[0].limits), isolation))
        for attack in chosen:
            # A scene each, so that what one does is not laid at another's door.
            with ExitStack() as scenery:
                found[attack.name] = attacked(place, attack, laid(scenery))
    return found


def demote() -> None:
    """Go on as nobody. What is imported late must be readable then, hence everything is in place by now."""
    find_interpreter()
    assert INSTALL  # of a module that `open_sandbox` imports when it is called
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default="bwrap", choices=["bwrap", "landlock", "none"])
    parser.add_argument("--isolation", default="strict", choices=["strict", "pooled"])
    parser.add_argument("--user", default="", choices=["", "nobody"], help="nobody: give up root first")
    parser.add_argument("--probes", action="store_true", help="the twelve probes alone")
    parser.add_argument("attack", nargs="*", help="only these, by name")
    asked = parser.parse_args()
    if SECRET not in os.environ:  # it must be there from the start, where /proc would show it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, SECRET: secrets.token_hex(16)})
    if asked.user and os.geteuid() == 0:
        demote()
    tempfile.tempdir = "/tmp" if os.access("/tmp", os.W_OK) else None
    told: dict[str, object] = {"user": os.geteuid()}
    if asked.probes:
        said = ACCEPTED if asked.tier == "none" else ""
        with open_sandbox(asked.isolation, tier=asked.tier, fresh=True, unsandboxed=said) as sandbox:
            told |= {"tier": sandbox.tier, "isolation": sandbox.isolation}
    else:
        told["attacks"] = besieged(asked.tier, asked.isolation, asked.attack)
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
