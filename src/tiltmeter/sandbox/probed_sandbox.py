"""A sandbox that passed its probes: runs programs singly or in parallel and retries failures of the sandbox."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

from tiltmeter.sandbox.contract import Ended, Limits

TRIES = 3
PAUSE_SECONDS = 0.05  # before the second try; doubled before the third
CANARY, CANARY_SECONDS = "print(1)", 1.0  # the longest an empty program may take before the machine counts as too busy


class Tier(Protocol):
    """One way to run a program apart from everything else."""

    name: str
    limits: Limits

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Probe:
    """One escape attempt: whether the sandbox held (None if that cannot be tested from here), and what was observed.

    >>> Probe("forks", False, "100 children")
    Probe(name='forks', held=False, seen='100 children')
    """

    name: str
    held: bool | None
    seen: str


@dataclass
class ProbedSandbox:
    """A sandbox whose tier has passed its probes.

    A failure of the sandbox is tried three times and then reported as `infra`; a program whose end is known is never
    run again. A timeout is the program's only if an empty program is fast at that moment; otherwise the machine is too
    busy, and the result is `infra`.
    """

    kind: Tier
    isolation: str
    probes: tuple[Probe, ...] = ()

    @property
    def tier(self) -> str:
        return self.kind.name

    def run(self, program: str, stdin: str = "") -> Ended:
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            ended = self.kind.once(program, stdin)
            if ended.kind == "timeout":
                ended = self._recheck_timeout(ended)
            if ended.kind != "infra":
                return ended
        return replace(ended, reason=f"{ended.reason} (tried {TRIES} times)")

    def run_many(self, jobs: Sequence[tuple[str, str]], workers: int = 2) -> list[Ended]:
        """The programs' ends in the order of the jobs, each a program and its standard input."""
        if workers <= 1 or len(jobs) <= 1:
            return [self.run(*job) for job in jobs]
        with ThreadPoolExecutor(min(workers, len(jobs))) as threads:
            return list(threads.map(lambda job: self.run(*job), jobs))

    def close(self) -> None:
        self.kind.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _recheck_timeout(self, late: Ended) -> Ended:
        """A timeout as it stands, or as infra if an empty program is slow too."""
        canary = self.kind.once(CANARY, "")
        allowed = min(CANARY_SECONDS, self.kind.limits.wall_seconds / 2)
        if canary.kind == "ended" and canary.stdout == "1\n" and canary.seconds <= allowed:
            return late
        busy = f"{late.reason}, but an empty program took {canary.seconds:.1f} s then: the machine is too busy to tell"
        return replace(late, kind="infra", reason=busy)
