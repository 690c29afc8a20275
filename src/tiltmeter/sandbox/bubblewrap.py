"""Tier `bwrap`: a program in namespaces of its own, made by bubblewrap, with nothing of this machine but an interpreter
that it can read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiltmeter.errors import AttachError
from tiltmeter.sandbox import Ended, Limits
from tiltmeter.sandbox.filter import program_filter
from tiltmeter.sandbox.interpreter import NOBODY, Interpreter, find_interpreter
from tiltmeter.sandbox.outcome import told
from tiltmeter.sandbox.process import INSIDE, launched, watch

TMP_BYTES, SHM_BYTES = 32 << 20, 1 << 20
PYTHON = ("-I", "-S", "-B", "-X", "utf8")
SHUT = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
    *("--die-with-parent", "--new-session", "--clearenv"),
)
#: Root cannot be held by a limit on processes, and bubblewrap started by root is root outside.
DEMOTED = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")


@dataclass
class Bubblewrap:
    """A fresh set of namespaces for each program."""

    name = "bwrap"
    limits: Limits
    interpreter: Interpreter = field(default_factory=find_interpreter)
    program: str = "bwrap"

    def __post_init__(self) -> None:
        self._start = [*demoted(), found(self.program, "bubblewrap")]
        self._filter = program_filter()

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        limits = limits or self.limits
        try:
            seen = watch(self._command, program, stdin, limits, rules=self._filter)
        except OSError as error:
            return Ended("infra", None, "", "", f"the sandbox could not be started: {error}", 0.0)
        return told(seen, limits, launched(seen.status).get("exit-code"))

    def close(self) -> None:
        """Nothing stays open between programs."""

    def _command(self, fds: Mapping[str, int]) -> list[str]:
        files = [str(fds[name]) for name in ("task", "ready", "status")]
        inside = [self.interpreter.inside, *PYTHON, "-c", INSIDE, *files]
        return [*self._start, *namespaces(self.interpreter, fds), "--", *inside]


def namespaces(interpreter: Interpreter, fds: Mapping[str, int]) -> list[str]:
    """What bubblewrap is asked for. There is no /proc: nothing inside needs it, and much of what it shows is ours."""
    asked = [
        *SHUT,
        *("--seccomp", str(fds["filter"]), "--json-status-fd", str(fds["status"])),
        *("--setenv", "LD_LIBRARY_PATH", interpreter.search, "--setenv", "HOME", "/tmp"),
    ]
    for source, place in interpreter.shown:
        asked += ["--ro-bind", source, place]
    for place in interpreter.hidden:
        asked += ["--size", "4096", "--tmpfs", place, "--remount-ro", place]
    asked += ["--dev-bind", "/dev/null", "/dev/null"]
    asked += ["--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]
    return [*asked, "--remount-ro", "/", "--chdir", "/tmp"]


def found(program: str, package: str) -> str:
    """Where a program is, or what to install."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin:/usr/sbin:/sbin")
    if path is None:
        raise AttachError(f"{program} is not here: install {package}")
    return path


def demoted(account: int = NOBODY) -> list[str]:
    """What stands before a command so that it is another account's and not root's; nothing if it would not be."""
    if os.geteuid() != 0:
        return []
    return [found("setpriv", "util-linux"), f"--reuid={account}", f"--regid={account}", *DEMOTED]
