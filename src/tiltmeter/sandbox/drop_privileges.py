"""Drop the privileges of this interpreter for good: the prctl, seccomp and Landlock calls that Python lacks.

This file is not imported: `bootstrap.py` runs its text in the sandbox and calls `first` before the program.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Any


class Kernel:
    """Calls to libc and the kernel by ctypes."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)

    def call(self, name: str, *arguments: Any) -> int:
        returned = int(getattr(self.libc, name)(*arguments))
        if returned < 0:
            raise OSError(ctypes.get_errno(), f"{name} failed")
        return returned

    def restrict_process(self) -> None:
        """End with the parent, let no other process of the same account look in, gain no rights by what is started."""
        for option, value in ((1, 9), (4, 0), (38, 1)):
            self.call("prctl", option, value, 0, 0, 0)

    def filter(self, rules: bytes) -> None:
        """Give up the system calls that `rules` deny."""
        lines = ctypes.create_string_buffer(rules, len(rules))
        head = struct.pack("HxxxxxxQ", len(rules) // 8, ctypes.addressof(lines))
        self.call("prctl", 22, 2, ctypes.create_string_buffer(head, len(head)), 0, 0)

    def landlock(self, rules: dict[str, Any]) -> None:
        """Give up all of the file system but what may be read, TCP, and signals to others, as far as the kernel can."""
        create, add, restrict = rules["calls"]
        handled = struct.pack("=QQQ", *rules["handled"])[: rules["size"]]
        ruleset = self.call("syscall", create, ctypes.create_string_buffer(handled, len(handled)), len(handled), 0)
        for path, rights in rules["allowed"]:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", rights, place)
            self.call("syscall", add, ruleset, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
            os.close(place)
        self.call("syscall", restrict, ruleset, 0)
        os.close(ruleset)


def first(job: dict[str, Any], limit: Callable[[dict[str, Any]], None], become: object, ready: int, wire: int) -> None:
    """Set limits, drop privileges, and report that the sandbox is ready."""
    limit(job["limits"])
    kernel = Kernel()
    kernel.restrict_process()
    kernel.landlock(job["landlock"])
    kernel.filter(job["filter"])
    os.write(ready, job["ready"])
