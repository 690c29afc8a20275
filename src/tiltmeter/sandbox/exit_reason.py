"""Classify how a program ended: by itself, at a limit, by a timeout, or by a failure of the sandbox (`infra`)."""

from __future__ import annotations

import signal

from tiltmeter.sandbox.contract import Ended, Limits
from tiltmeter.sandbox.process import ProcessResult

#: The last line of an uncaught exception that a limit of ours brings about, and the limit. A program that prints such a
#: line itself gains nothing: a limit is worth no more than a wrong answer.
LIMIT_ERRORS = (
    ("MemoryError", "memory"),
    ("OSError: [Errno 12]", "memory"),
    ("OSError: [Errno 24]", "open files"),
    ("OSError: [Errno 27]", "file size"),
    ("OSError: [Errno 28]", "room for files"),
    ("BlockingIOError: [Errno 11]", "processes"),
    ("RuntimeError: can't start new thread", "threads"),
)
KILLED = 128 + signal.SIGKILL


def classify_end(result: ProcessResult, limits: Limits, code: int | None) -> Ended:
    """Classify the end of one program, with a reason. `code`: its exit code, None if it is not known."""
    out, err = _text(result.stdout, limits), _text(result.stderr, limits)
    last = (err.strip().splitlines() or ["it said nothing"])[-1]
    if not result.ready:
        why = f"nothing ran within {limits.wall_seconds:g} s" if result.cut else f"exit code {result.code}: {last}"
        return Ended("infra", None, out, err, f"the sandbox was not set up: {why}", result.seconds)
    if result.cut == "wall":
        return Ended("timeout", None, out, err, f"still running after {limits.wall_seconds:g} s", result.seconds)
    if result.cut == "output" or max(len(result.stdout), len(result.stderr)) > limits.output_kb * 1024:
        return Ended("limit", None, out, err, f"more than {limits.output_kb} KB of output", result.seconds)
    if code is None:
        return Ended("infra", None, out, err, f"the launcher was ended from outside ({result.code})", result.seconds)
    if code == KILLED and result.oom_kills > 0:
        # Its own limit is far below the machine's; a program that kills itself looks alike but for the kernel's count.
        return Ended(
            "infra", None, out, err, "the kernel killed it because the machine has no memory left", result.seconds
        )
    if code == 128 + signal.SIGXCPU or (code == KILLED and result.seconds >= limits.cpu_seconds):
        return Ended("limit", code, out, err, f"more than {limits.cpu_seconds:g} s of processor time", result.seconds)
    met = next((limit for line, limit in LIMIT_ERRORS if last.startswith(line)), "") if code else ""
    if met:
        return Ended("limit", code, out, err, f"limit met: {met}", result.seconds)
    return Ended("ended", code, out, err, _exit_text(code), result.seconds)


def _exit_text(code: int) -> str:
    if code > 128 and code - 128 in set(signal.Signals):
        return f"ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


def _text(got: bytes, limits: Limits) -> str:
    return got[: limits.output_kb * 1024].decode("utf-8", "replace")
