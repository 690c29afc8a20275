"""Tier `bwrap`: each program in fresh namespaces made by bubblewrap; of this machine it sees only a read-only Python
interpreter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiltmeter.errors import AttachError
from tiltmeter.sandbox.contract import Ended, Limits
from tiltmeter.sandbox.exit_reason import classify_end
from tiltmeter.sandbox.interpreter import NOBODY, Interpreter, find_interpreter
from tiltmeter.sandbox.process import BOOTSTRAP, launcher_status, run_process
from tiltmeter.sandbox.seccomp import program_filter

TMP_BYTES, SHM_BYTES = 32 << 20, 1 << 20
PYTHON = ("-I", "-S", "-B", "-X", "utf8")
ISOLATION_OPTIONS = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
    *("--die-with-parent", "--new-session", "--clearenv"),
)
#: Root cannot be held by a limit on processes, and bubblewrap started by root is root outside.
SETPRIV_OPTIONS = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")


@dataclass
class Bubblewrap:
    """A fresh set of namespaces for each program.

    `mounts`: further folders that it sees, read-only, as (source, place). `forks`: it may have children.
    """

    name = "bwrap"
    limits: Limits
    interpreter: Interpreter = field(default_factory=find_interpreter)
    program: str = "bwrap"
    mounts: tuple[tuple[str, str], ...] = ()
    tmp_bytes: int = TMP_BYTES
    forks: bool = False

    def __post_init__(self) -> None:
        self._prefix = [*setpriv_prefix(), find_program(self.program, "bubblewrap")]
        self._filter = program_filter(forks=self.forks)

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        limits = limits or self.limits
        try:
            result = run_process(self._command, program, stdin, limits, rules=self._filter)
        except OSError as error:
            return Ended("infra", None, "", "", f"the sandbox could not be started: {error}", 0.0)
        return classify_end(result, limits, launcher_status(result.status).get("exit-code"))

    def close(self) -> None:
        """Nothing stays open between programs."""

    def _command(self, fds: Mapping[str, int]) -> list[str]:
        files = [str(fds[name]) for name in ("task", "ready", "status")]
        inside = [self.interpreter.program_inside, *PYTHON, "-c", BOOTSTRAP, *files]
        arguments = bwrap_arguments(self.interpreter, fds, self.mounts, self.tmp_bytes)
        return [*self._prefix, *arguments, "--", *inside]


def bwrap_arguments(
    interpreter: Interpreter,
    fds: Mapping[str, int],
    mounts: tuple[tuple[str, str], ...] = (),
    tmp_bytes: int = TMP_BYTES,
) -> list[str]:
    """The arguments for bubblewrap. There is no /proc: programs do not need it, and it shows much of the host."""
    arguments = [
        *ISOLATION_OPTIONS,
        *("--seccomp", str(fds["filter"]), "--json-status-fd", str(fds["status"])),
        *("--setenv", "LD_LIBRARY_PATH", interpreter.library_path, "--setenv", "HOME", "/tmp"),
    ]
    for source, place in (*interpreter.mounts, *mounts):
        arguments += ["--ro-bind", source, place]
    for place in interpreter.masked_folders:
        arguments += ["--size", "4096", "--tmpfs", place, "--remount-ro", place]
    arguments += ["--dev-bind", "/dev/null", "/dev/null"]
    arguments += ["--size", str(tmp_bytes), "--tmpfs", "/tmp", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]
    return [*arguments, "--remount-ro", "/", "--chdir", "/tmp"]


def find_program(program: str, package: str) -> str:
    """The path of a program. Raises `AttachError` with the package to install."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin:/usr/sbin:/sbin")
    if path is None:
        raise AttachError(f"{program} is not here: install {package}")
    return path


def setpriv_prefix(account: int = NOBODY) -> list[str]:
    """The `setpriv` command that drops root to another account; empty if this process is not root."""
    if os.geteuid() != 0:
        return []
    return [find_program("setpriv", "util-linux"), f"--reuid={account}", f"--regid={account}", *SETPRIV_OPTIONS]
