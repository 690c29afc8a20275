"""Asks a gold source in a thread, so that measuring does not wait for it: one call at a time, in the order asked."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from tiltmeter.errors import ContractError
from tiltmeter.gold import CompletionToLabel, GoldAnswer, GoldSource

Result = TypeVar("Result")


@dataclass(frozen=True)
class SourceReply:
    """The answers to one call, and the seconds that it took."""

    answers: Sequence[GoldAnswer]
    seconds: float


class LabelWorker:
    """The thread; it is started with the first call. A call that nobody waits for any more is not begun.

    >>> worker = LabelWorker()
    >>> worker.submit(lambda: 1 + 1).result()
    2
    >>> worker.close()
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Have this done in the thread. Work that raises is for the caller to look at."""
        future: Future[Result] = Future()

        def run() -> None:
            if self._closed:
                future.cancel()
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  # given to whoever asks for the result
                future.set_exception(error)

        self._calls.put(run)
        if self._thread is None:
            # A daemon: a source that hangs does not hold up the end of the monitor.
            self._thread = threading.Thread(target=_work, args=(self._calls,), name="tiltmeter-labels", daemon=True)
            self._thread.start()
        return future

    def close(self) -> None:
        """End the thread after the call that it is busy with; what that answers is lost, and is asked again later."""
        self._closed = True
        self._calls.put(None)


def _work(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (run := calls.get()) is not None:
        run()


def ask_source(source: GoldSource, requests: Sequence[CompletionToLabel]) -> SourceReply:
    """Ask the source. One that fails makes missing labels, with the reason."""
    began = time.monotonic()
    try:
        answers = list(source.label(list(requests))) if requests else []
        if len(answers) != len(requests):
            raise ContractError(f"{source.name} gave {len(answers)} answers to {len(requests)} requests")
    except BaseException as error:  # noqa: BLE001
        answers = [error] * len(requests)
    return SourceReply(answers, time.monotonic() - began)
