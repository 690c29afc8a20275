"""The server of a pool: a warm interpreter that forks a child for each program and reports how it ended.

This file is not imported: its text, after `drop_privileges.py`, is run by `bootstrap.py` in the sandbox.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # inside, it is there already
    from tiltmeter.sandbox.drop_privileges import Kernel

MOST_FILES = 1000  # that are wiped between programs; more take longer than to begin anew

Limiter = Callable[[dict[str, Any]], None]
Runner = Callable[[str], None]


def first(job: dict[str, Any], limit: Limiter, become: Runner, ready: int, wire_fd: int) -> None:
    """Fork a child that runs the program of each request; reply when it ends, and again when its files are wiped.

    The server holds neither programs nor their input: a request is a name and two descriptors, and only the child reads
    them. The child has closed the wire by the program's first line, so nothing it writes can look like a reply.
    """
    kernel = Kernel()
    kernel.restrict_process()
    for name in job["warm"]:
        __import__(name)
    wire = socket.socket(fileno=wire_fd)
    os.write(ready, job["ready"])
    os.close(ready)
    gc.collect()
    gc.freeze()
    while True:
        name, files, _, _ = socket.recv_fds(wire, 64, 2)
        if not name:
            os._exit(0)
        pipes = [os.pipe() for _ in range(3)]
        child = os.fork()
        if child == 0:
            program = start_child(kernel, limit, job, files, [writer for _, writer in pipes])
            run_and_exit(become, program)
        for file in (*files, *(writer for _, writer in pipes)):
            os.close(file)
        reply = os.memfd_create("reply")
        os.write(reply, watch_child(child, [reader for reader, _ in pipes], job["limits"]))
        socket.send_fds(wire, [name], [reply])
        os.close(reply)
        for folder in job["wiped"]:
            wipe(folder)
        wire.send(b"clean")


def start_child(kernel: Kernel, limit: Limiter, job: dict[str, Any], files: list[int], pipes: list[int]) -> str:
    """The child, up to the program's first line."""
    os.setsid()
    with open(files[0], encoding="utf-8", errors="surrogatepass", closefd=False) as file:
        program = file.read()
    os.dup2(files[1], 0)
    os.dup2(pipes[0], 1)
    os.dup2(pipes[1], 2)
    limit(job["limits"])
    kernel.filter(job["filter"])
    os.write(pipes[2], b"ready")
    os.closerange(3, 1 << 20)
    return program


def run_and_exit(become: Runner, program: str) -> NoReturn:
    """Run the program and leave as the interpreter would, but for tidying up, which takes longer than most programs."""
    leave, code = os._exit, 0
    try:
        become(program)
    except SystemExit as exit_error:
        code = exit_error.code & 0xFF if isinstance(exit_error.code, int) else 0 if exit_error.code is None else 1
        if code == 1 and not isinstance(exit_error.code, int):
            sys.stderr.write(f"{exit_error.code}\n")
    except BaseException:  # noqa: BLE001  # whatever it was, it is the program's
        sys.excepthook(*sys.exc_info())
        code = 1
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001
        code = code or 120  # as the interpreter has it
    leave(code)


def watch_child(child: int, readers: list[int], limits: dict[str, Any]) -> bytes:
    """What the child wrote and how it ended, as JSON; it is ended here if it takes too long or says too much."""
    began = time.monotonic()
    most, got, cut = limits["output_kb"] * 1024, [bytearray() for _ in readers], ""
    open_readers = dict(zip(readers, got, strict=True))
    life = os.pidfd_open(child)
    for reader in readers:
        os.set_blocking(reader, False)
    over = False
    while not over and not cut:
        spare = began + limits["wall_seconds"] - time.monotonic()
        readable, _, _ = select.select([*open_readers, life], [], [], max(spare, 0.0))
        over = life in readable
        for reader in [*open_readers] if over else [reader for reader in readable if reader != life]:
            if not drain(reader, open_readers[reader], most):
                del open_readers[reader]
        cut = "output" if max(map(len, got)) > most else "wall" if spare <= 0 and not over else ""
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        os.kill(child, signal.SIGKILL)  # it had not made its own group yet
    _, status = os.waitpid(child, 0)
    for file in (*readers, life):
        os.close(file)
    stdout, stderr, ready = (bytes(text[: most + 1]).decode("latin-1") for text in got)
    report = {"stdout": stdout, "stderr": stderr, "ready": ready == "ready", "cut": cut, "status": status}
    return json.dumps({**report, "seconds": time.monotonic() - began}).encode()


def drain(reader: int, into: bytearray, most: int) -> bool:
    """Read what is there, a little beyond `most` at the utmost; whether more may come."""
    while len(into) <= most:
        try:
            chunk = os.read(reader, 65536)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        into += chunk
    return True


def wipe(folder: str) -> None:
    """Nothing stays for the next program. What resists ends the server, and another begins with an empty folder."""
    with os.scandir(folder) as entries:
        leftovers = list(entries)
    if len(leftovers) > MOST_FILES:
        os._exit(3)
    for entry in leftovers:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)  # noqa: PTH107  # pathlib would be imported for this alone
