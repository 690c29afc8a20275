"""The exceptions of the package, and when each is raised.

Three exceptions under one root. At attach, a set-up that cannot work raises `AttachError` before training starts, and
the message names the fix. During training nothing of this package raises in the trainer's process: a failure becomes a
`Fault` in the run directory. A failed measurement is never replaced by a default
value. Offline commands raise `StoreError` for files they must not trust and `ContractError` for an
extension that breaks its contract. `Boundary` is what keeps that promise in the trainer's process.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class TiltmeterError(Exception):
    """The root: `except TiltmeterError` catches everything this package raises on purpose.

    >>> issubclass(StoreError, TiltmeterError) and issubclass(AttachError, TiltmeterError)
    True
    """


class AttachError(TiltmeterError):
    """The run cannot be watched as asked. Raised before training starts; the message says what to change.

    Example:

        try:
            tiltmeter.attach(trainer, gold="checks.py:score")
        except tiltmeter.AttachError as error:
            print(error)  # what to change; nothing was trained
    """


class StoreError(TiltmeterError):
    """A file of a run directory is damaged, foreign or from a newer format, and was not read as data.

    Example:

        try:
            batches = RunDirectory("runs/tonight").read(path)
        except tiltmeter.StoreError as error:
            print(error)  # which file, and what is wrong with it
    """


class ContractError(TiltmeterError):
    """An instrument, derived reading or detector does not keep its contract (see `tiltmeter.testing`).

    Example:

        tiltmeter.testing.check_instrument(MyInstrument)  # raises ContractError, which names the rule that is broken
    """


def warn_user(message: str, stacklevel: int = 2) -> None:
    """Advice, which never stops anything: where warnings are errors it goes to the log. It names the line of a caller,
    `stacklevel` frames up; 0: the first that is not of this package."""
    frame = sys._getframe(1)
    while not stacklevel and frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tiltmeter."):
        frame = frame.f_back
    try:
        if stacklevel:
            warnings.warn(f"tiltmeter: {message}", stacklevel=stacklevel + 1)
        else:
            warnings.warn_explicit(f"tiltmeter: {message}", UserWarning, frame.f_code.co_filename, frame.f_lineno)
    except UserWarning:
        logging.getLogger("tiltmeter").warning("%s", message)


def describe_error(error: BaseException) -> str:
    """The kind of an error and what it says, in at most 300 characters; also if its own methods fail.

    >>> describe_error(ValueError("no such column"))
    'ValueError: no such column'
    """
    try:
        name = type.__dict__["__name__"].__get__(type(error))  # not what a metaclass says of it
        try:
            return f"{name[:90]}: {str.__getitem__(str(error), slice(200))}"  # not by the methods of a subclass of str
        except BaseException as failure:  # noqa: BLE001
            return f"{name[:90]}, which does not say why ({type.__dict__['__name__'].__get__(type(failure))[:90]})"
    except BaseException:  # noqa: BLE001  # no memory or no stack left to describe it in
        return "an error that cannot be described"


class UncountedErrors(Protocol):
    """Who holds the number of errors that `Boundary` could not pass on."""

    uncounted: int


class Boundary:
    """What stands between a trainer and this package: `with Boundary(count): ...` and nothing is raised.

    `count` is called with what was raised, whatever it is: Rust's panics are no `Exception`. If it fails too, with no
    memory or no stack left, `tally.uncounted` is raised by one, which needs neither. KeyboardInterrupt and SystemExit
    are counted and pass, because Ctrl-C must stop training; not in a thread of our own, where nobody presses it. With
    `strict`, everything passes uncounted. The only place that may catch all: `tests/architecture/test_boundary.py`.

    >>> with Boundary(lambda error: print(describe_error(error))):
    ...     raise GeneratorExit("odd")
    GeneratorExit: odd
    """

    __slots__ = ("_count", "_own_thread", "_strict", "_tally")

    def __init__(
        self,
        count: Callable[[BaseException], object],
        *,
        tally: UncountedErrors | None = None,
        strict: bool = False,
        own_thread: bool = False,
    ) -> None:
        self._count, self._tally, self._strict, self._own_thread = count, tally, strict, own_thread

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or error is None or self._strict:
            return False
        try:
            self._count(error)
        except BaseException as failure:
            if self._tally is not None:
                self._tally.uncounted += 1
            if issubclass(type(failure), (KeyboardInterrupt, SystemExit)) and not self._own_thread:
                raise
        return self._own_thread or not issubclass(kind, (KeyboardInterrupt, SystemExit))
