"""Tier `landlock`: no namespaces, for containers that forbid them. The interpreter gives up its own rights, for good,
before the program's first line: files but its own libraries, sockets, children, signals, and every place to write."""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.sandbox.bubblewrap import PYTHON, setpriv_prefix
from tiltmeter.sandbox.contract import Ended, Limits
from tiltmeter.sandbox.exit_reason import classify_end
from tiltmeter.sandbox.interpreter import PACKAGES, Interpreter, find_interpreter
from tiltmeter.sandbox.process import BOOTSTRAP, run_process
from tiltmeter.sandbox.seccomp import program_filter, syscall_number

#: Rights over files by the version of Landlock that knows them: the first knows 13, and so on.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
READ, LIST, READ_FOLDER = 0b101, 0b1000, 0b1101  # a file: execute and read; a folder: list it too
#: Without a namespace the kernel counts all processes of the account, most of them not the program's; it has none.
NO_PROCESS_LIMIT: dict[str, Any] = {"processes": None}
#: Root gives each program an account of its own, of those that nobody has for long, in which only its threads count.
ACCOUNTS = range(61184, 65520)
DROP_PRIVILEGES = Path(__file__).with_name("drop_privileges.py").read_text()
CALLS = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")


@dataclass
class Landlock:
    """A fresh interpreter for each program, which restricts itself with Landlock and seccomp."""

    name = "landlock"
    limits: Limits
    interpreter: Interpreter = field(default_factory=find_interpreter)

    def __post_init__(self) -> None:
        self._own_limits = {} if setpriv_prefix() else NO_PROCESS_LIMIT
        self._task: dict[str, Any] = {
            "landlock": landlock_rules(self.interpreter),
            "filter": program_filter(governed=False),
            "more": [DROP_PRIVILEGES],
        }

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        limits = limits or self.limits
        try:
            result = run_process(
                self._command, program, stdin, limits, extra=self._task, own_limits=self._own_limits, env=self._env
            )
        except OSError as error:
            return Ended("infra", None, "", "", f"the sandbox could not be started: {error}", 0.0)
        return classify_end(result, limits, result.code if result.code >= 0 else 128 - result.code)

    def close(self) -> None:
        """Nothing stays open between programs."""

    @property
    def _env(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(Path(self.interpreter.stdlib).parent)}

    def _command(self, fds: Mapping[str, int]) -> list[str]:
        files = [str(fds[name]) for name in ("task", "ready", "status")]
        return [*setpriv_prefix(secrets.choice(ACCOUNTS)), self.interpreter.program, *PYTHON, "-c", BOOTSTRAP, *files]


def abi() -> int:
    """The kernel's version of Landlock, 0 where it has none or it is switched off.

    >>> abi() >= 0
    True
    """
    create = syscall_number(CALLS[0])
    if create is None:
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(create, None, 0, 1)))


def landlock_rules(interpreter: Interpreter) -> dict[str, Any]:
    """The Landlock ruleset: the rights that are handled, and the paths that stay readable."""
    version = abi()
    if version == 0:
        raise AttachError("this kernel has no Landlock: Linux 5.13 or newer with `landlock` among its security modules")
    files = (1 << FILE_RIGHTS[min(version, max(FILE_RIGHTS))]) - 1
    tcp, scopes = (0b11 if version >= 4 else 0), (0b11 if version >= 6 else 0)
    allowed = list(_readable(interpreter))
    allowed += [(os.path.realpath(file), READ) for file in (interpreter.program, interpreter.loader) if file]
    allowed += [("/dev/null", 0b110), ("/dev/urandom", 0b100)]
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return {
        "calls": [syscall_number(name) for name in CALLS],
        "handled": [files, tcp, scopes],
        "size": size,
        "allowed": allowed,
    }


def _readable(interpreter: Interpreter) -> Iterator[tuple[str, int]]:
    """What may be read, with its rights. A right over a folder holds for all beneath it, so a folder with installed
    packages somewhere below is taken apart: those hold verifiers, and the answers that they expect. It is listed, or
    nothing in it would be found; names are all that a program learns there."""
    stdlib = Path(interpreter.stdlib)
    yield str(stdlib), LIST
    with os.scandir(stdlib) as entries:
        for entry in entries:
            if entry.name not in PACKAGES:
                yield entry.path, READ_FOLDER if entry.is_dir() else READ
    for folder in dict.fromkeys((*interpreter.libraries, str(stdlib.parent))):
        if stdlib.is_relative_to(folder):
            yield from ((str(file), READ) for file in Path(folder).glob("*.so*") if file.is_file())
        else:
            yield folder, READ_FOLDER
