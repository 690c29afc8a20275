"""What an engine is: it runs one function over many items in other processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")

IN_FLIGHT_PER_WORKER = 2  # pieces of work for each worker: one is done, one is waiting, and memory stays flat
TRIES = 3  # a piece of work that ends its worker this often is at fault, not the machine


class Engine(Protocol):
    """Runs one function over many items in other processes, and gives the results back in the items' order.

    The function must be pure: where a worker dies, its items are done again. `shared` is sent to each worker once.
    """

    name: str
    workers: int

    def map(
        self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[Result]: ...


def cores() -> int:
    """Those that this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def failure_message(item: Any) -> str:
    return f"work on {str(item)[:300]} ended its worker {TRIES} times: is there enough memory? --jobs 1 needs least"
