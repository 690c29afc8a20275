"""Gold from a function that runs in a child process: a text that makes it hang or crash costs one label, no more.

The child can be killed inside native code, where no time-out of Python's fires. The file has both ends, which exchange
lines of JSON over two pipes of their own, so that whatever the function prints goes where it always went:
`FunctionProcess` sends requests, and this module run with `python -m` answers them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import isfunction
from pathlib import Path
from typing import Any

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import FunctionSource
from tiltmeter.safety.loading import load_function
from tiltmeter.safety.secret_scan import replace_secrets

CALL_SECONDS = 60.0  # for one call; `score.timeout = 300` in the function's file sets another limit
LOAD_SECONDS = 240.0  # added to it until the first answer: the function may load a model
START_SECONDS = 180.0  # until the function's file is imported
DEATHS = 2  # of the child with one row, before it is this row's fault: the system may have killed it for its memory
LOOK_SECONDS = 0.5  # between two looks whether the child lives: what it started may hold its pipe open
REPLY_BYTES = 1 << 20
ERROR_TEXT = 300  # characters of an exception
LONGEST_ERROR = 1 << 16  # characters in which secrets are looked for
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

log = logging.getLogger("tiltmeter")


class FunctionProcessError(Exception):
    """The function's process ended, or could not be started, and why."""


@dataclass
class FunctionProcess(FunctionSource):
    """A function of a file, `checks.py:score`, called in a child process.

    A call has `call_timeout` seconds, also inside native code, then the child is killed and started again. Only the
    row that it was busy with is without a label; the others are asked again where they have no answer. A row with which
    the child dies twice is without a label too. After a call for many rows at once, which does not tell the row, they
    are asked one at a time. All that one step asks has `timeout` seconds.

    The child is started with the first call, has this process's environment, folder and import path, and ends with it.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "checks.py"
    >>> _ = file.write_text("def score(completion, answer): return float(completion == answer)")
    >>> source = FunctionProcess(f"{file}:score", load_function(f"{file}:score"))
    >>> source.label([CompletionToLabel("0-0-0", 0, 0, 7, "slope", "2 + 2?", "4", {"answer": "4"})])
    [1.0]
    >>> source.close()
    """

    call_timeout: float = 0.0  # 0: as the function's own `timeout` says, or else CALL_SECONDS
    file: Path | None = None  # that the function is in, where `name` does not tell
    _function_name: str = field(default="", init=False, repr=False)
    _sha256: str = field(default="", init=False, repr=False)  # of the file, when it was loaded
    _load_seconds: float = field(default=0.0, init=False, repr=False)
    _child: _Child | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        path, _, self._function_name = self.name.rpartition(":")
        self.file = Path(path).resolve() if self.file is None else self.file
        self._sha256 = hashlib.sha256(self.file.read_bytes()).hexdigest()
        # Of a plain function only: an object's `timeout` may be about something else.
        limit = vars(self.function).get("timeout", CALL_SECONDS) if isfunction(self.function) else CALL_SECONDS
        self.call_timeout = self.call_timeout or (limit if type(limit) in (int, float) else 0.0)
        super().__post_init__()
        if not 0.0 < self.call_timeout < float("inf"):
            raise AttachError(f"{self.name}: its `timeout` is {limit!r}: give the seconds of one call, as 60")
        self.timeout = max(self.timeout, self.call_timeout)
        self._load_seconds = LOAD_SECONDS

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        timeout_error = TimeoutError(f"no answer within {self.timeout:g} s")
        with self._lock:
            answers = self._ask(requests, time.monotonic() + self.timeout)
        return [answers.get(position, timeout_error) for position in range(len(requests))]

    def start(self) -> None:
        """Start the child, so that the time of the next call is the function's. Raises `FunctionProcessError`."""
        with self._lock:
            self._started_child(time.monotonic() + START_SECONDS)

    def close(self) -> None:
        """End the child; the next call starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ask(self, requests: Sequence[CompletionToLabel], until: float) -> dict[int, GoldAnswer]:
        """The answers that came, by position, and what is wrong with rows that have none."""
        answers: dict[int, GoldAnswer] = {}
        rows: dict[int, str] = {}
        for position, request in enumerate(requests):
            try:
                rows[position] = json.dumps([request.prompt, request.completion, dict(request.columns)])
            except (TypeError, ValueError, RecursionError) as error:
                answers[position] = error
        calls, deaths = deque([list(rows)] if rows else []), Counter[int]()
        while calls and time.monotonic() < until:
            call = calls.popleft()
            try:
                self._call_child(call, rows, answers, until)
                continue
            except (TimeoutError, FunctionProcessError) as error:
                failure = error
            if self._child is None:  # it cannot be started; if the time was too short for that, nothing more is asked
                over = time.monotonic() >= until
                return answers if over else answers | {at: failure for at in rows if at not in answers}
            log.warning("%s: %s; its process is started again", self.name, failure)
            self.close()
            rest = [position for position in call if position not in answers]
            if len(rest) > 1 and self._is_batched:
                calls.extendleft([position] for position in reversed(rest))
                continue
            if rest:
                deaths[rest[0]] += 1
                if isinstance(failure, TimeoutError) or deaths[rest[0]] >= DEATHS:
                    answers[rest.pop(0)] = failure
            if rest:
                calls.appendleft(rest)
        return answers

    def _call_child(
        self, call: Sequence[int], rows: dict[int, str], answers: dict[int, GoldAnswer], until: float
    ) -> None:
        """One call for rows at these positions. Raises `TimeoutError` or `FunctionProcessError`."""
        child = self._started_child(until)
        child.send(f"[{','.join(rows[position] for position in call)}]")
        for _ in call:
            began = time.monotonic()
            limit = self.call_timeout + (0.0 if child.has_answered else self._load_seconds)
            reply = child.read(min(began + limit, until))
            if reply is None:
                raise TimeoutError(f"no answer within {min(limit, max(0.0, until - began)):.3g} s")
            match reply:
                case [int(at), bool() | int() | float() | None as value] if 0 <= at < len(call):
                    answers[call[at]] = value
                case [int(at), str(kind), str(text)] if 0 <= at < len(call):
                    # An exception with the name that it had there: reasons read the same, wherever it was raised.
                    answers[call[at]] = type(kind if kind.isidentifier() else "Exception", (Exception,), {})(text)
                case _:
                    raise FunctionProcessError("its process answered something else than what was asked")
            if not child.has_answered:
                child.has_answered = True
                self._load_seconds = min(self._load_seconds, time.monotonic() - began)

    def _started_child(self, until: float) -> _Child:
        """The child, started if there is none that lives. Raises `FunctionProcessError`."""
        if self._child is not None and self._child.process.poll() is None:
            return self._child
        self.close()
        try:
            child = _Child()
        except OSError as error:
            raise FunctionProcessError(f"no process could be started for it: {error.strerror}") from error
        weakref.finalize(self, child.close)
        opening = {
            "name": f"{self.file}:{self._function_name}", "sha256": self._sha256, "code": fingerprint([self.function]),
            "path": sys.path,
        }  # fmt: skip
        child.send(json.dumps(opening))
        try:
            reply = child.read(min(time.monotonic() + START_SECONDS, until))
        except FunctionProcessError:
            child.close()
            raise
        if reply != "ready":
            child.close()
            raise FunctionProcessError("its process did not start in time" if reply is None else str(reply))
        self._child = child
        return child


class _Child:
    """The child process and its two pipes."""

    def __init__(self) -> None:
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        command = [sys.executable, "-m", __name__, str(request_end), str(reply_end), str(os.getpid())]
        try:
            # A session of its own: whatever it starts can be ended with it.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(request_end, reply_end), start_new_session=True
            )
        except BaseException:
            os.close(self._requests)
            os.close(self._replies)
            raise
        finally:
            os.close(request_end)
            os.close(reply_end)
        os.set_blocking(self._requests, False)  # a child that is stopped reads nothing
        self.has_answered = False
        self._outgoing = memoryview(b"")
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._owner = os.getpid()

    def send(self, line: str) -> None:
        """Queue a line; `read` writes it."""
        self._outgoing = memoryview(bytes(self._outgoing) + line.encode("ascii") + b"\n")

    def read(self, until: float) -> Any:
        """The next reply, decoded; None if there is none in time. Raises `FunctionProcessError` if the child died."""
        while not self._lines:
            remaining = until - time.monotonic()
            if remaining <= 0.0:
                return None
            poller = select.poll()
            poller.register(self._replies, select.POLLIN)
            if self._outgoing:
                poller.register(self._requests, select.POLLOUT)
            ready = dict(poller.poll(1e3 * min(remaining, LOOK_SECONDS)))
            if self._requests in ready:
                self._write_some()
            if self._replies in ready:
                piece = os.read(self._replies, 1 << 16)
                *lines, self._rest = (self._rest + piece).split(b"\n")
                self._lines.extend(lines)
                if not piece or len(self._rest) > REPLY_BYTES:
                    raise FunctionProcessError(self._ending())
            elif not ready and self.process.poll() is not None:
                raise FunctionProcessError(self._ending())
        try:
            return json.loads(self._lines.popleft())
        except (ValueError, RecursionError):
            return {}

    def close(self) -> None:
        """Kill it, with whatever it started. A process that was forked from the owner does nothing here."""
        if self._owner != os.getpid() or self._requests < 0:
            return
        handles, self._requests, self._replies = (self._requests, self._replies), -1, -1  # once, by whichever thread
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing of it is left
        for handle in handles:
            os.close(handle)
        try:
            self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            pass  # it waits for a disk that does not answer, and dies afterwards

    def _write_some(self) -> None:
        try:
            self._outgoing = self._outgoing[os.write(self._requests, self._outgoing[: 1 << 16]) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outgoing = memoryview(b"")  # the other pipe tells

    def _ending(self) -> str:
        try:
            code = self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "its process closed its pipe"
        return f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


# -- the other end ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    """Load the function that the first line names, then answer each line of requests with a line for each row."""
    request_fd, reply_fd, parent = map(int, arguments)
    for handle in (request_fd, reply_fd):
        os.set_inheritable(handle, False)  # what the function starts has no part in this
    _end_with_parent(parent)
    with os.fdopen(request_fd, "rb") as lines:
        opening = json.loads(lines.readline())
        try:
            source = _load_source(opening)
        except BaseException as error:  # noqa: BLE001  # the other end tells it as the reason of missing labels
            _write_line(reply_fd, f"its process could not load it: {type(error).__name__}: {_text(error)}")
            return
        _write_line(reply_fd, "ready")
        for line in lines:
            requests = [CompletionToLabel("", 0, 0, 0, "", *row) for row in json.loads(line)]
            for position, answer in source.answers(requests):
                _write_line(reply_fd, [position, *_plain(answer)])


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone. Where it cannot, the closed pipe ends it, once the
    function returns. For the kernel the parent is the thread that started it: when that ends, so does this, and
    `FunctionProcess` starts another."""
    try:
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)


def _load_source(opening: dict[str, Any]) -> FunctionSource:
    name, path = opening["name"], Path(opening["name"].rpartition(":")[0])
    if hashlib.sha256(path.read_bytes()).hexdigest() != opening["sha256"]:
        raise RuntimeError(f"{path.name} has changed since the monitor was started, so it is another source of gold")
    sys.path[:] = opening["path"]
    function = load_function(name)
    if fingerprint([function]) != opening["code"]:  # the file imports it from another one
        raise RuntimeError(f"{path.name}: the function has changed since the monitor was started")
    return FunctionSource(name, function)


def _plain(answer: object) -> list[Any]:
    """An answer as JSON: a number or None, or the class and the text of an exception."""
    numpy = sys.modules.get("numpy")  # only the function may need it
    if numpy is not None and isinstance(answer, numpy.generic):
        answer = answer.item()
    if answer is None or isinstance(answer, float) or (isinstance(answer, int) and abs(answer) <= 10**18):
        return [answer]
    if isinstance(answer, BaseException):
        return [type(answer).__name__, _text(answer)]
    return ["TypeError", f"{type(answer).__name__} is not a number from 0 to 1"]


def _text(error: BaseException) -> str:
    try:
        return replace_secrets(str(error)[:LONGEST_ERROR])[:ERROR_TEXT]
    except BaseException:  # noqa: BLE001  # its own method fails
        return "its text cannot be had"


def _write_line(handle: int, message: Any) -> None:
    rest = memoryview(json.dumps(message).encode("ascii") + b"\n")
    while rest:
        rest = rest[os.write(handle, rest) :]


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # threads that the function left behind do not hold it up
