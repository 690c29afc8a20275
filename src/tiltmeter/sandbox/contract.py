"""What a sandbox is: its limits, how a program ended, and what every tier can do."""

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
