"""Tier `remote`: programs run on the user's own service (a container, gVisor, a microVM) that shares no kernel
with the trainer. The right tier for a model that is assumed to be hostile."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tiltmeter.sandbox.contract import Ended, Limits, Service


@dataclass
class Remote:
    """A service in the place of a local tier. Whatever it raises is its failure and not the program's.

    >>> class Broken:
    ...     def run(self, program, stdin, limits): raise ConnectionError("no route")
    >>> Remote(Limits(), Broken()).once("print(1)", "").reason
    'the remote sandbox failed: ConnectionError: no route'
    """

    name = "remote"
    limits: Limits
    service: Service

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        began = time.monotonic()
        try:
            ended = self.service.run(program, stdin, limits or self.limits)
        except Exception as error:  # noqa: BLE001  # whatever it was, it says nothing about the program
            why = f"the remote sandbox failed: {type(error).__name__}: {error}"
            return Ended("infra", None, "", "", why, time.monotonic() - began)
        if not isinstance(ended, Ended):
            why = f"the remote sandbox answered with {type(ended).__name__} where an Ended is due"
            return Ended("infra", None, "", "", why, time.monotonic() - began)
        return ended

    def close(self) -> None:
        """The service is its owner's to close."""
