"""How an interpreter gives up its own rights, for good: the calls to the kernel that Python has no name for.

We never run it ourselves: its text goes with `inside.py`, where `first` is called before the program's first line.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Any


class Kernel:
    """The few calls it takes."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)

    def call(self, name: str, *arguments: Any) -> int:
        returned = int(getattr(self.libc, name)(*arguments))
        if returned < 0:
            raise OSError(ctypes.get_errno(), f"{name} failed")
        return returned

    def alone(self) -> None:
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


def first(
    given: dict[str, Any], limit: Callable[[dict[str, Any]], None], become: object, ready: int, wire: int
) -> None:
    """Shut in, and say so."""
    limit(given["limits"])
    kernel = Kernel()
    kernel.alone()
    kernel.landlock(given["landlock"])
    kernel.filter(given["filter"])
    os.write(ready, given["ready"])
