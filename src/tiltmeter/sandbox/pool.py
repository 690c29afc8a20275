"""Tier `bwrap`, isolation `pooled`: one warm interpreter behind bubblewrap that makes a child for each program.

Many times faster than a fresh set of namespaces each, and weaker in one respect: programs come from the same process
image and see the same empty /tmp one after the other. They still cannot have children, signal, trace or outlive their
turn, since every child gives up those calls before the program's first line.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tiltmeter.sandbox.bubblewrap import PYTHON, bwrap_arguments, find_program, setpriv_prefix
from tiltmeter.sandbox.contract import Ended, Limits
from tiltmeter.sandbox.exit_reason import classify_end
from tiltmeter.sandbox.interpreter import Interpreter, find_interpreter
from tiltmeter.sandbox.landlock import DROP_PRIVILEGES
from tiltmeter.sandbox.process import (
    BOOTSTRAP,
    ProcessResult,
    oom_kills,
    pack_task,
    readable,
    sealed_file,
    start_process,
    stop,
    wait_for_namespace,
)
from tiltmeter.sandbox.seccomp import program_filter

SERVER = Path(__file__).with_name("pool_server.py").read_text()
START_SECONDS = 20.0
GRACE_SECONDS = 5.0  # beyond a program's own time, for a server on a busy machine
WIPE_SECONDS = 2.0  # for what a program left; beyond that, to begin anew is faster
CANARY_EVERY = 100
WIPED_FOLDERS = ("/tmp", "/dev/shm")  # inside, where both are its own
#: What programs import most, imported once.
PRELOADED = (
    "bisect",
    "collections",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "random",
    "re",
    "string",
    "typing",
)


class ServerError(Exception):
    """A server died or is not reliable any more; its request has no result."""


@cache
def _starter(owner: int) -> ThreadPoolExecutor:
    """The thread that starts servers: the kernel ends a server with the *thread* that started it, so that thread must
    live as long as this process. A fork of ours has lost the thread, hence one per `owner`."""
    return ThreadPoolExecutor(1, thread_name_prefix="tiltmeter-pool")


@dataclass(eq=False)
class PoolServer:
    """One warm interpreter behind bubblewrap, and our end of its socket."""

    process: subprocess.Popen[bytes]
    wire: socket.socket
    limits: Limits
    stderr_fd: int  # its standard error, in memory
    status_fd: int  # what bubblewrap says of it, likewise
    requests: int = 0
    clean: bool = True  # nothing is left of the last program
    owner: int = field(default_factory=os.getpid)

    def ask(self, program: str, stdin: str) -> ProcessResult:
        """Run one program in a child of the server. Raises if the server is not to be relied on after it."""
        self._wait_until_clean()
        name, kills = secrets.token_bytes(16), oom_kills()
        files = [
            sealed_file(program.encode("utf-8", "surrogatepass")),
            sealed_file(stdin.encode("utf-8", "surrogatepass")),
        ]
        try:
            socket.send_fds(self.wire, [name], files)
        except OSError as error:
            raise ServerError(f"the pool's server is gone ({error})") from error
        finally:
            for file in files:
                os.close(file)
        self.requests += 1
        self.clean = False
        reply = self._reply(name)
        return ProcessResult(
            stdout=reply["stdout"].encode("latin-1"),
            stderr=reply["stderr"].encode("latin-1"),
            ready=reply["ready"],
            status=b"",
            code=os.waitstatus_to_exitcode(reply["status"]),
            cut=reply["cut"],
            seconds=reply["seconds"],
            oom_kills=oom_kills() - kills,
        )

    def _reply(self, name: bytes) -> dict[str, Any]:
        wait = self.limits.wall_seconds + GRACE_SECONDS
        if not readable(self.wire.fileno(), wait):
            raise ServerError(f"the pool's server did not answer within {wait:g} s")
        try:
            reply_name, files, _, _ = socket.recv_fds(self.wire, 64, 1)
        except OSError as error:
            raise ServerError(f"the pool's server is gone ({error})") from error
        with ExitStack() as closing:
            for file in files:
                closing.callback(os.close, file)
            if reply_name != name or len(files) != 1:
                raise ServerError(
                    "the pool's server answered out of turn"
                    if reply_name
                    else f"the pool's server died: {self.last_error}"
                )
            # Three streams, each byte at most six characters of JSON.
            text = os.pread(files[0], 64 * 1024 + 3 * 6 * 1024 * (self.limits.output_kb + 64), 0)
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise ServerError(f"the pool's server answered what cannot be read ({error})") from error

    def _wait_until_clean(self) -> None:
        """Wait until nothing is left of the last program. What it left must not be the next one's trouble, and a server
        that cannot be rid of it must not pass for a machine at fault: a program could make its own timeout vanish."""
        if self.clean:
            return
        try:
            if not readable(self.wire.fileno(), WIPE_SECONDS) or self.wire.recv(64) != b"clean":
                raise ServerError(f"the pool's server could not wipe what a program left: {self.last_error}")
        except OSError as error:
            raise ServerError(f"the pool's server is gone ({error})") from error
        self.clean = True

    def check(self) -> None:
        """Raise if it does not run a program as it should."""
        number = secrets.randbelow(1 << 40)
        result = self.ask(f"print({number} * 7)", "")
        if result.stdout != f"{number * 7}\n".encode():
            raise ServerError(f"the pool's canary came back wrong: exit code {result.code}")
        self._wait_until_clean()

    def usable(self) -> bool:
        """Whether it is ours, alive, clean, silent when not asked and, now and then, right about a program we know."""
        if self.owner != os.getpid() or self.process.poll() is not None:
            return False
        try:
            self._wait_until_clean()
            if readable(self.wire.fileno(), 0):
                return False
            if self.requests % CANARY_EVERY == 0:
                self.check()
        except ServerError:
            return False
        return True

    @property
    def last_error(self) -> str:
        """The last line it complained with."""
        lines = os.pread(self.stderr_fd, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        self.wire.close()
        if self.owner == os.getpid():
            stop(self.process)
            wait_for_namespace(os.pread(self.status_fd, 4096, 0))
        else:
            self.process.returncode = 0  # a fork of ours: the server belongs to the process it was copied from
        os.close(self.stderr_fd)
        os.close(self.status_fd)


@dataclass
class Pool:
    """As many servers as programs are run at once, started when first needed and again when one is gone."""

    name = "bwrap"
    limits: Limits
    interpreter: Interpreter = field(default_factory=find_interpreter)
    program: str = "bwrap"
    servers_started: int = field(default=0, init=False)
    _idle: list[PoolServer] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._prefix = [*setpriv_prefix(), find_program(self.program, "bubblewrap")]
        weakref.finalize(self, _end_all, self._idle)

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        limits = limits or self.limits
        try:
            server = self._server(limits)
        except (OSError, ServerError) as error:
            return Ended("infra", None, "", "", f"the pool could not be started: {error}", 0.0)
        try:
            result = server.ask(program, stdin)
        except ServerError as error:
            server.end()
            return Ended("infra", None, "", "", str(error), 0.0)
        except BaseException:  # interrupted: an answer to this would be taken for the next one's
            server.end()
            raise
        self._idle.append(server)
        return classify_end(result, limits, result.code if result.code >= 0 else 128 - result.code)

    def close(self) -> None:
        _end_all(self._idle)

    def _server(self, limits: Limits) -> PoolServer:
        """One that is alive, has these limits and was checked not long ago."""
        while server := self._take_idle(limits):
            if server.usable():
                return server
            server.end()
        self.servers_started += 1
        server = _starter(os.getpid()).submit(_start_server, self._prefix, self.interpreter, limits).result()
        try:
            server.check()
        except ServerError:
            server.end()
            raise
        return server

    def _take_idle(self, limits: Limits) -> PoolServer | None:
        """Without a lock, which a trainer that forks while another thread holds it would copy for ever locked; to
        remove a server from the list is one step, which only one of two threads can do."""
        for server in [*self._idle]:
            if server.limits == limits:
                try:
                    self._idle.remove(server)
                except ValueError:  # another thread was faster
                    continue
                return server
        return None


def _start_server(start: list[str], interpreter: Interpreter, limits: Limits) -> PoolServer:
    """A server that has said it is there."""
    word = secrets.token_hex(16)
    task = {
        "more": [DROP_PRIVILEGES, SERVER],
        "ready": word.encode(),
        "limits": asdict(limits),
        "filter": program_filter(),
    }
    task |= {"warm": PRELOADED, "wiped": WIPED_FOLDERS}
    ours, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ready_fd, ready = os.pipe2(os.O_CLOEXEC)
    stderr_fd, status_fd, quiet = os.memfd_create("said"), os.memfd_create("status"), os.open(os.devnull, os.O_RDWR)
    fds = {
        "stdin": quiet,
        "stdout": quiet,
        "stderr": stderr_fd,
        "ready": ready,
        "status": status_fd,
        "wire": wire.detach(),
    }
    fds |= {"task": sealed_file(pack_task(task)), "filter": sealed_file(program_filter(forks=True))}
    with open(ready_fd, "rb") as ready_reader:
        try:
            arguments = [str(fds[name]) for name in ("task", "ready", "wire")]
            inside = [interpreter.program_inside, *PYTHON, "-c", BOOTSTRAP, *arguments]
            process = start_process([*start, *bwrap_arguments(interpreter, fds), "--", *inside], fds, {})
        except OSError:
            os.close(stderr_fd)
            os.close(status_fd)
            ours.close()
            raise
        finally:
            for file in set(fds.values()) - {stderr_fd, status_fd}:
                os.close(file)
        server = PoolServer(process, ours, limits, stderr_fd, status_fd)
        if not (readable(ready_fd, START_SECONDS) and ready_reader.read(len(word)) == word.encode()):
            why = server.last_error
            server.end()
            raise ServerError(why)
    return server


def _end_all(servers: list[PoolServer]) -> None:
    while servers:
        servers.pop().end()
