"""Workers as processes of this machine, started when there is work and replaced when one dies."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from tiltmeter.audit.engine.engine import IN_FLIGHT_PER_WORKER, TRIES, Item, Result, Shared, failure_message
from tiltmeter.errors import AttachError, StoreError

#: Loaded once, before workers part from their common parent: instruments and their kernels take seconds to load.
PRELOADED = ["tiltmeter.audit.engine.preload"]

_shared: Any = None  # in a worker


def _init_worker(shared: Any) -> None:
    global _shared
    _shared = shared
    driver = parent_process()
    assert driver is not None
    # A killed driver cannot stop its workers: without this they would wait for work for ever.
    threading.Thread(target=_exit_with_parent, args=(driver.sentinel,), daemon=True).start()


def _exit_with_parent(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _work(function: Callable[[Any, Any], Any], item: Any) -> Any:
    return function(_shared, item)


@dataclass(slots=True)
class _WorkItem:
    item: Any
    future: Future[Any] | None = None
    deaths: int = 0  # of workers, while this was being worked on alone


class Processes:
    """A pool of processes. A worker that dies takes the pool with it, so all that was in flight is done again, one at
    a time until it is known which piece of work it was.

    >>> from operator import mod
    >>> list(Processes(1).map(mod, 7, [4, 3, 5]))
    [3, 1, 2]
    """

    name = "processes"

    def __init__(self, workers: int) -> None:
        self.workers = max(1, workers)

    def map(self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        queue: deque[_WorkItem] = deque()
        source, suspects = iter(items), 0
        pool = self._pool(shared)
        try:
            while True:
                queue.extend(map(_WorkItem, islice(source, IN_FLIGHT_PER_WORKER * self.workers - len(queue))))
                if not queue:
                    return
                try:  # a worker may die while we wait for it, and just as well while the last result is dealt with
                    with _without_main_script():
                        for work_item in list(queue)[: 1 if suspects else None]:
                            work_item.future = work_item.future or pool.submit(_work, work, work_item.item)
                    assert queue[0].future is not None
                    result = queue[0].future.result()
                except BrokenProcessPool:
                    pool.shutdown(wait=False, cancel_futures=True)
                    queue[0].deaths += 1 if suspects else 0
                    if queue[0].deaths >= TRIES:
                        raise StoreError(failure_message(queue[0].item)) from None
                    for work_item in queue:
                        work_item.future = None
                    pool, suspects = self._pool(shared), len(queue)
                    continue
                queue.popleft()
                suspects = max(0, suspects - 1)
                yield result
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _pool(self, shared: Any) -> ProcessPoolExecutor:
        if current_process().daemon:
            raise AttachError("workers cannot be started from a daemonic process: leave the engine out here")
        context = get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        return ProcessPoolExecutor(self.workers, context, _init_worker, (shared,))


@contextmanager
def _without_main_script() -> Iterator[None]:
    """Processes are started with the first work, and would run the main script again to find what it defines. All that
    we send is in modules of its own, and a training script must not be run twice."""
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file
