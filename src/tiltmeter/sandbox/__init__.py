"""Sandboxes for code written by a model: without files, network, secrets or the grader. If none works, nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from tiltmeter.errors import AttachError


class SandboxUnavailable(AttachError):  # noqa: N818  # what is said, not an error class among others
    """No tier passed its own probes here, so no code is run; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    >>> Limits(wall_seconds=2.0).memory_mb
    512
    """

    memory_mb: int = 512
    cpu_seconds: float = 3.0
    wall_seconds: float = 5.0
    file_mb: int = 16
    output_kb: int = 64
    descriptors: int = 64
    processes: int = 32


@dataclass(frozen=True, slots=True)
class Ended:
    """How one program ended and what it printed; not a grade."""

    kind: Literal["ended", "timeout", "limit", "infra"]
    exit_code: int | None
    stdout: str
    stderr: str
    reason: str
    seconds: float


class Service(Protocol):
    """A remote service that runs programs. It enforces the limits itself, and raises if it could not run a program."""

    def run(self, program: str, stdin: str, limits: Limits) -> Ended: ...


class Sandbox(Protocol):
    """An open sandbox: runs programs under limits."""

    @property
    def tier(self) -> str: ...
    @property
    def isolation(self) -> str: ...

    def run(self, program: str, stdin: str = "") -> Ended: ...
    def run_many(self, jobs: Sequence[tuple[str, str]], workers: int = 2) -> list[Ended]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


#: The consent that `unsandboxed=` must repeat; neither a setting nor an environment variable can give it.
ACCEPTED = "I accept unsandboxed code"


def open_sandbox(
    isolation: Literal["strict", "pooled"] = "strict",
    *,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    tier: str | None = None,
    remote: Service | None = None,
    fresh: bool = False,
    unsandboxed: str = "",
) -> Sandbox:
    """The first tier that passes its probes on this machine: `bwrap`, then `landlock`; or `remote`, a service of yours
    with `run(program, stdin, limits) -> Ended`, if you hand one over. Raises `SandboxUnavailable` if none does.

    `pooled` is many times faster than `strict` and shares one process image among programs; where only `landlock`
    holds, it is `strict` all the same, as the sandbox's `isolation` says. Probes run once per process and account;
    `fresh` runs them again. `unsandboxed` opens tier `none`, for whoever writes out that they accept it.

    >>> with open_sandbox(limits=Limits(wall_seconds=30)) as sandbox:  # doctest: +SKIP
    ...     sandbox.run("print(6 * 7)").stdout
    '42\\n'
    """
    from tiltmeter.sandbox.probed_sandbox import ProbedSandbox
    from tiltmeter.sandbox.tiers import open_first_working

    if isolation not in ("strict", "pooled"):
        raise AttachError(f"there is no isolation {isolation!r}: it is 'strict' or 'pooled'")
    if unsandboxed:
        from tiltmeter.sandbox.unsandboxed import UnsandboxedTier

        if unsandboxed != ACCEPTED:
            raise AttachError(f"to run a model's code without a sandbox, pass unsandboxed={ACCEPTED!r}, word for word")
        return ProbedSandbox(UnsandboxedTier(limits), "strict")
    return open_first_working(isolation, limits, tier, remote, fresh)
