"""What a program's end means: its own doing, a limit it met, or something of ours that broke and says nothing of it."""

from __future__ import annotations

import signal

from tiltmeter.sandbox import Ended, Limits
from tiltmeter.sandbox.process import Watched

#: The last line of an uncaught exception that a limit of ours brings about, and the limit. A program that prints such a
#: line itself gains nothing: a limit is worth no more than a wrong answer.
RAISED = (
    ("MemoryError", "memory"),
    ("OSError: [Errno 12]", "memory"),
    ("OSError: [Errno 24]", "open files"),
    ("OSError: [Errno 27]", "file size"),
    ("OSError: [Errno 28]", "room for files"),
    ("BlockingIOError: [Errno 11]", "processes"),
    ("RuntimeError: can't start new thread", "threads"),
)
KILLED = 128 + signal.SIGKILL


def told(seen: Watched, limits: Limits, code: int | None) -> Ended:
    """The outcome of one program in words. `code`: what it left with, None if nobody saw that."""
    out, err = _text(seen.stdout, limits), _text(seen.stderr, limits)
    last = (err.strip().splitlines() or ["it said nothing"])[-1]
    if not seen.ready:
        why = f"nothing ran within {limits.wall_seconds:g} s" if seen.cut else f"exit code {seen.code}: {last}"
        return Ended("infra", None, out, err, f"the sandbox was not set up: {why}", seen.seconds)
    if seen.cut == "wall":
        return Ended("timeout", None, out, err, f"still running after {limits.wall_seconds:g} s", seen.seconds)
    if seen.cut == "output" or max(len(seen.stdout), len(seen.stderr)) > limits.output_kb * 1024:
        return Ended("limit", None, out, err, f"more than {limits.output_kb} KB of output", seen.seconds)
    if code is None:
        return Ended("infra", None, out, err, f"the launcher was ended from outside ({seen.code})", seen.seconds)
    if code == KILLED and seen.oom_kills > 0:
        # Its own limit is far below the machine's; a program that kills itself looks alike but for the kernel's count.
        return Ended(
            "infra", None, out, err, "the kernel killed it because the machine has no memory left", seen.seconds
        )
    if code == 128 + signal.SIGXCPU or (code == KILLED and seen.seconds >= limits.cpu_seconds):
        return Ended("limit", code, out, err, f"more than {limits.cpu_seconds:g} s of processor time", seen.seconds)
    met = next((limit for line, limit in RAISED if last.startswith(line)), "") if code else ""
    if met:
        return Ended("limit", code, out, err, f"limit met: {met}", seen.seconds)
    return Ended("ended", code, out, err, _ended(code), seen.seconds)


def _ended(code: int) -> str:
    if code > 128 and code - 128 in set(signal.Signals):
        return f"ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


def _text(got: bytes, limits: Limits) -> str:
    return got[: limits.output_kb * 1024].decode("utf-8", "replace")
