"""The bootstrap inside a sandbox: sets limits and runs the program as `__main__`.

This file is not imported: its text is passed to the interpreter in the sandbox, for each program. It is short and
imports little, because its time is added to every program.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


#: Timers and signals that wait. They are counted for the account, whose trainer could make no timer any more.
SIGNALS = 64


def limit(limits: dict[str, Any]) -> None:
    """The limits of this process, which nothing inside can raise again."""
    seconds = max(1, -int(-limits["cpu_seconds"] // 1))
    for kind, most in (
        (resource.RLIMIT_AS, limits["memory_mb"] << 20),
        (resource.RLIMIT_FSIZE, limits["file_mb"] << 20),
        (resource.RLIMIT_NOFILE, limits["descriptors"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_SIGPENDING, SIGNALS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, seconds),
    ):
        ceiling = resource.getrlimit(kind)[1]
        if most is not None:
            soft = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
            # A second after its time is up a program that has caught the signal is ended without one.
            hard = soft + 1 if kind == resource.RLIMIT_CPU and ceiling == resource.RLIM_INFINITY else soft
            resource.setrlimit(kind, (soft, hard))


def become(program: str) -> None:
    """Run the program as `__main__`, with nothing of ours among its names."""
    import _sitebuiltins
    import builtins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")  # left out by -S, and common in what models write
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")
    sys.argv[:] = ["main.py"]
    sys.orig_argv[:] = ["python", "main.py"]
    run = exec
    code = compile(program, "main.py", "exec", dont_inherit=True)
    names = sys.modules["__main__"].__dict__
    names.clear()
    names.update(__name__="__main__", __builtins__=builtins, __file__="main.py", __doc__=None)
    run(code, names)


def main() -> None:
    task, ready, wire = (int(argument) for argument in sys.argv[1:4])
    with open(task, "rb") as file:
        job = marshal.load(file)
    names: dict[str, Any] = {"__name__": "more"}
    for text in job["more"]:  # of modules of ours that have more to do first
        exec(compile(text, "more", "exec"), names)  # noqa: S102
    if "first" in names:
        names["first"](job, limit, become, ready, wire)
    else:
        limit(job["limits"])
        os.write(ready, job["ready"])
    os.closerange(3, 1 << 20)
    become(job["program"])


if __name__ == "__main__":
    main()
