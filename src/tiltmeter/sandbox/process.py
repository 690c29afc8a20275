"""Run one process under a time and output limit and return its output, exit code and time."""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import secrets
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tiltmeter.sandbox.contract import Limits

SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008  # no more seals, no shrinking, no growing, no writing
ADD_SEALS = 1033
CHUNK = 1 << 16
LINGER_SECONDS = 2.0  # between a kill and its effect
EMPTY: Mapping[str, Any] = MappingProxyType({})
BOOTSTRAP = Path(__file__).with_name("bootstrap.py").read_text()

Command = Callable[[Mapping[str, int]], list[str]]  # from the descriptors by name


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The result of one process: output, exit code, why it was killed, time."""

    stdout: bytes
    stderr: bytes
    ready: bool  # our own lines inside ran, so whatever came after is the program's
    status: bytes  # what the launcher said of it
    code: int
    cut: Literal["", "wall", "output"]  # why we ended it
    seconds: float
    oom_kills: int  # by the kernel while it ran, of whatever process


def sealed_file(content: bytes) -> int:
    """A descriptor of a file in memory that nobody can change any more."""
    file = os.memfd_create("given", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as writer:
        writer.write(content)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, ADD_SEALS, SEALS)
    return file


def run_process(
    command: Command,
    program: str,
    stdin: str,
    limits: Limits,
    *,
    rules: bytes = b"",
    extra: Mapping[str, Any] = EMPTY,
    own_limits: Mapping[str, Any] = EMPTY,
    env: Mapping[str, str] = EMPTY,
) -> ProcessResult:
    """Start a command that runs `bootstrap.py`, pass it the program and wait for its end.

    The command gets descriptors: `task` to read the program from, `filter`, and `ready` and `status` to write to; it
    inherits no others, and no environment but `env`.
    """
    word = secrets.token_hex(16)
    task = {"program": program, "limits": {**asdict(limits), **own_limits}, "ready": word.encode(), "more": [], **extra}
    most = limits.output_kb * 1024
    with ExitStack() as ours:
        kills, began = oom_kills(), time.monotonic()
        with ExitStack() as theirs:
            contents = {"stdin": stdin.encode("utf-8", "surrogatepass"), "task": pack_task(task), "filter": rules}
            fds, readers = {}, {}
            for name, content in contents.items():
                fds[name] = sealed_file(content)
                theirs.callback(os.close, fds[name])
            for name in ("stdout", "stderr", "ready", "status"):
                readers[name], fds[name] = os.pipe2(os.O_CLOEXEC)
                ours.callback(os.close, readers[name])
                theirs.callback(os.close, fds[name])
                os.set_blocking(readers[name], False)
            process = start_process(command(fds), fds, env)
        ours.callback(stop, process)  # also if we are interrupted while we read
        ended = os.pidfd_open(process.pid)
        ours.callback(os.close, ended)
        got, cut = _read_output(readers, ended, began + limits.wall_seconds, most)
        stop(process)
        wait_for_namespace(bytes(got["status"]))
        seconds = time.monotonic() - began
        for name, file in readers.items():
            _drain(file, got[name], most)
    out, err, ready, status = (bytes(got[name]) for name in ("stdout", "stderr", "ready", "status"))
    return ProcessResult(
        out, err, ready == word.encode(), status, process.returncode, cut, seconds, oom_kills() - kills
    )


def pack_task(task: dict[str, Any]) -> bytes:
    """The task as `bootstrap.py` reads it: marshal version 2, which is fast and the same in all Python versions."""
    return marshal.dumps(task, 2)


def start_process(command: list[str], fds: Mapping[str, int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process with these descriptors and no others, in a session of its own."""
    passed = [file for name, file in fds.items() if not name.startswith("std")]
    return subprocess.Popen(
        command,
        stdin=fds["stdin"],
        stdout=fds["stdout"],
        stderr=fds["stderr"],
        pass_fds=passed,
        start_new_session=True,
        cwd="/",
        env=dict(env),
    )


def _read_output(
    readers: Mapping[str, int], ended: int, until: float, most: int
) -> tuple[dict[str, bytearray], Literal["", "wall", "output"]]:
    """What comes until it ends, or until the time or the room for output is used up."""
    got = {name: bytearray() for name in readers}
    with selectors.DefaultSelector() as selector:
        for name, file in readers.items():
            selector.register(file, selectors.EVENT_READ, name)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            remaining = until - time.monotonic()
            if remaining <= 0:
                return got, "wall"
            over = False
            for key, _ in selector.select(remaining):
                if key.data is None:
                    over = True
                elif not _drain(key.fd, got[key.data], most):
                    selector.unregister(key.fd)
            if any(len(text) > most for text in got.values()):
                return got, "output"
            if over:
                return got, ""


def launcher_status(status: bytes) -> dict[str, int]:
    """What bubblewrap reports of the process it started: its process id outside, and its exit code.

    >>> launcher_status(b'{ "child-pid": 7 }\\n{ "exit-code": 3 }\\n')
    {'child-pid': 7, 'exit-code': 3}
    """
    fields: dict[str, int] = {}
    for line in status.splitlines():
        try:
            fields.update(json.loads(line))
        except ValueError:  # cut short, because it was ended while it wrote
            continue
    return fields


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, unless that was done before."""
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
    except ProcessLookupError:
        pass
    process.wait()


def wait_for_namespace(status: bytes) -> None:
    """Wait until a namespace's first process is gone: the kernel lets it go only after all others in it.

    bubblewrap leaves it to process 1 to take note of that end. In a container the trainer itself is often process 1,
    and would keep one dead process per program.
    """
    first = launcher_status(status).get("child-pid")
    if first is None:
        return
    try:
        life = os.pidfd_open(first)
    except ProcessLookupError:
        return
    readable(life, LINGER_SECONDS)
    os.close(life)
    try:
        os.waitpid(first, os.WNOHANG)
    except ChildProcessError:  # it is not ours to take note of
        pass


def readable(file: int, seconds: float) -> bool:
    """Whether there is something to read in time. Not by `select`, which a trainer with 1,024 open files cannot use."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _drain(file: int, into: bytearray, most: int) -> bool:
    """Read what is there, a little beyond `most` at the utmost; whether more may come."""
    while len(into) <= most:
        try:
            chunk = os.read(file, CHUNK)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        into += chunk
    return True


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started, 0 where it does not tell.

    >>> oom_kills() >= 0
    True
    """
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
