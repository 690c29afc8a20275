"""Tier `none`: no sandbox at all. Only for whoever says in so many words that they accept it, and for the tests that
prove that the attacks would be seen to succeed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiltmeter.sandbox import Ended, Limits
from tiltmeter.sandbox.bubblewrap import PYTHON
from tiltmeter.sandbox.interpreter import find_interpreter
from tiltmeter.sandbox.landlock import ACCOUNT
from tiltmeter.sandbox.outcome import told
from tiltmeter.sandbox.process import INSIDE, watch


@dataclass
class Bare:
    """A child process under limits, with this account's rights."""

    name = "none"
    limits: Limits

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        limits = limits or self.limits
        try:
            seen = watch(_command, program, stdin, limits, own=ACCOUNT)
        except OSError as error:
            return Ended("infra", None, "", "", f"the interpreter could not be started: {error}", 0.0)
        return told(seen, limits, seen.code if seen.code >= 0 else 128 - seen.code)

    def close(self) -> None:
        """Nothing stays open between programs."""


def _command(fds: Mapping[str, int]) -> list[str]:
    return [
        find_interpreter().program,
        *PYTHON,
        "-c",
        INSIDE,
        *(str(fds[name]) for name in ("task", "ready", "status")),
    ]
