"""Tier `none`: no sandbox, only limits. For callers who accept this explicitly, and for tests that prove that the
attacks succeed without a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiltmeter.sandbox.bubblewrap import PYTHON
from tiltmeter.sandbox.contract import Ended, Limits
from tiltmeter.sandbox.exit_reason import classify_end
from tiltmeter.sandbox.interpreter import find_interpreter
from tiltmeter.sandbox.landlock import NO_PROCESS_LIMIT
from tiltmeter.sandbox.process import BOOTSTRAP, run_process


@dataclass
class UnsandboxedTier:
    """A child process under limits, with this account's rights."""

    name = "none"
    limits: Limits

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        limits = limits or self.limits
        try:
            result = run_process(_command, program, stdin, limits, own_limits=NO_PROCESS_LIMIT)
        except OSError as error:
            return Ended("infra", None, "", "", f"the interpreter could not be started: {error}", 0.0)
        return classify_end(result, limits, result.code if result.code >= 0 else 128 - result.code)

    def close(self) -> None:
        """Nothing stays open between programs."""


def _command(fds: Mapping[str, int]) -> list[str]:
    return [
        find_interpreter().program,
        *PYTHON,
        "-c",
        BOOTSTRAP,
        *(str(fds[name]) for name in ("task", "ready", "status")),
    ]
