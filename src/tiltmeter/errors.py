"""The exceptions of the package, and when each is raised.

Three exceptions under one root. At attach, a set-up that cannot work raises `AttachError` before training starts, and
the message names the fix. During training nothing of this package raises in the trainer's process: a failure becomes a
`Fault` in the run directory. A failed measurement is never replaced by a default
value. Offline commands raise `StoreError` for files they must not trust and `ContractError` for an
extension that breaks its contract. `Boundary` is what keeps that promise in the trainer's process.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS
from itertools import pairwise
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, Protocol, TypeVar


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


T = TypeVar("T")
_traceback = BaseException.__dict__["__traceback__"].__get__  # not what a subclass says of it
_EXITS = (KeyboardInterrupt, SystemExit)


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is the trainer's to see: Ctrl-C, an exit, or what the handler of a signal raised.

    Python runs handlers in the main thread between any two calls, ours included, so that such an exception comes out of
    our code without being of it. It is known by a frame of its traceback: that of a function that was called with the
    number of a signal and the frame above it, as nothing but the interpreter calls one, or whose code is that of a
    handler. The second alone would miss a handler that takes itself away before it raises, the first alone one that
    gives its arguments other values.

    >>> is_interrupt(KeyboardInterrupt()), is_interrupt(ValueError())
    (True, False)
    """
    if issubclass(type(error), _EXITS):
        return True
    if threading.current_thread() is not threading.main_thread():
        return False
    installed: set[CodeType] | None = None
    trace: TracebackType | None = _traceback(error)
    interrupted: FrameType | None = None
    while trace is not None:
        frame = trace.tb_frame
        code = frame.f_code
        if interrupted is not None and (code.co_argcount > 1 or code.co_flags & CO_VARARGS):
            installed = set(_handlers()) if installed is None else installed
            if code in installed or _got_signal(frame, interrupted):
                return True
        interrupted, trace = frame, trace.tb_next
    return False


def _got_signal(frame: FrameType, interrupted: FrameType) -> bool:
    """Whether a function was called with the number of a signal and the frame that it interrupted."""
    code, values = frame.f_code, frame.f_locals
    arguments: list[object] = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & CO_VARARGS:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        arguments += rest if type(rest) is tuple else ()
    return any(
        second is interrupted and type(first) is int and 0 < first < signal.NSIG
        for first, second in pairwise(arguments)
    )


def _handlers() -> Iterator[CodeType]:
    """The code of every Python function that is the handler of a signal now."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        for _ in range(8):  # a partial of a method of an object that can be called
            if isinstance(handler, FunctionType):
                yield handler.__code__
                break
            if handler is None or isinstance(handler, signal.Handlers):
                break
            inner = handler.func if isinstance(handler, functools.partial) else None
            inner = handler.__func__ if isinstance(handler, MethodType) else inner
            handler = getattr(type(handler), "__call__", None) if inner is None else inner  # noqa: B004


def finish_first(work: Callable[[int], T]) -> T:
    """What `work` returns, though signals come: the first of their exceptions is raised when it has returned, an exit
    before others.

    `work` is called again after each of them, with their number: it must go on where it was, and keep a time limit of
    its own. What it raises itself is raised at once.

    >>> finish_first(lambda interrupts: interrupts)
    0
    """
    interrupts: list[BaseException] = []
    while True:
        try:
            result = work(len(interrupts))
            break
        except BaseException as error:
            if is_interrupt(error):
                interrupts.append(error)
                continue
            raise
    if interrupts:
        raise next((error for error in interrupts if issubclass(type(error), _EXITS)), interrupts[0])
    return result


class UncountedErrors(Protocol):
    """Who holds the number of errors that `Boundary` could not pass on."""

    uncounted: int


class Boundary:
    """What stands between a trainer and this package: `with Boundary(count): ...` and nothing is raised.

    `count` is called with what was raised, whatever it is: Rust's panics are no `Exception`. If it fails too, with no
    memory or no stack left, `tally.uncounted` is raised by one, which needs neither. What is the trainer's to see
    (`is_interrupt`) is counted and passes, because Ctrl-C must stop training; not in a thread of our own, where nobody
    presses it. `user_code`: around a function of the user's, whose time limit may be a signal: what its handler raises
    is that function's failure, and only exits pass. With `strict`, everything passes uncounted. The only place that may
    catch all: `tests/architecture/test_boundary.py`.

    >>> with Boundary(lambda error: print(describe_error(error))):
    ...     raise GeneratorExit("odd")
    GeneratorExit: odd
    """

    __slots__ = ("_count", "_own_thread", "_strict", "_tally", "_user_code")

    def __init__(
        self,
        count: Callable[[BaseException], object],
        *,
        tally: UncountedErrors | None = None,
        strict: bool = False,
        own_thread: bool = False,
        user_code: bool = False,
    ) -> None:
        self._count, self._tally, self._strict, self._own_thread = count, tally, strict, own_thread
        self._user_code = user_code

    #: Called as it is: a function of Python's own could be interrupted before the block below is guarded.
    __enter__ = bool

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or error is None or self._strict:
            return False
        second: BaseException | None = None
        try:
            self._count(error)
        except BaseException as failure:  # noqa: BLE001
            second = failure
            if self._tally is not None:
                self._tally.uncounted += 1
        try:
            if second is not None and self._passes(second):
                raise second
            return not self._passes(error)
        except (RecursionError, MemoryError):  # no stack or memory is left to look into it
            return self._own_thread or not issubclass(kind, _EXITS)

    def _passes(self, error: BaseException) -> bool:
        if self._own_thread:
            return False
        return issubclass(type(error), _EXITS) if self._user_code else is_interrupt(error)
