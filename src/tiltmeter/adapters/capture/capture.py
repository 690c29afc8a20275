"""Records any reward function of any trainer: `reward = tiltmeter.capture(reward, "runs/tonight", batch_size=64)`.

The wrapped function keeps its kind, name, signature and result. It is called once, with what the trainer passed; its
exceptions pass through. What it scored is written by a thread of its own and measured by the monitor. See
`docs/capture.md` for what a wrapper can and cannot know.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tiltmeter.adapters.capture.recorder import Recorder, current_recorder, open_recorder
from tiltmeter.adapters.capture.reward_calls import (
    CallReader,
    CallScores,
    first_items,
    read_result,
    reader_for,
    same_length,
)
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError, Boundary, describe_error
from tiltmeter.rundir.staging.pending_rows import FLUSH_SECONDS
from tiltmeter.rundir.staging.staged_rows import StepBoundary

RewardFn = TypeVar("RewardFn", bound=Callable[..., Any])
ROWS = 256  # buffered by a worker before it writes them


class Capture:
    """The type of `tiltmeter.capture`: call it on a reward function; `open` and `step` are for a driver.

    >>> import os; os.environ["TILTMETER_DISABLED"] = "1"
    >>> def reward(prompt, completion): return float(len(completion))
    >>> capture(reward, "runs/tonight") is reward
    True
    >>> del os.environ["TILTMETER_DISABLED"]
    """

    def __call__(
        self,
        reward: RewardFn,
        directory: str | os.PathLike[str],
        batch_size: int | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        group: str | None = None,
        seconds: float = FLUSH_SECONDS,
        rows: int = ROWS,
        **settings: Any,
    ) -> RewardFn:
        """Wrap a reward function so that what it scores becomes a run in `directory`.

        Args:
            reward: The reward function; it keeps its kind, name, signature and result.
            directory: Where the run is kept.
            batch_size: Completions per step, where neither the trainer's calls nor a driver say which step it is.
                Default: steps are inferred from the pauses between calls, and the run says so.
            columns: Which arguments are `prompt` and `completion` (also `group`, `step`, `length`, `facts`), for a
                function that no known trainer calls this way.
            group: An argument, or a key of veRL's `extra_info`, that rows of one prompt have in common. Default: the
                prompt's text.
            seconds: A worker writes what it holds at the latest after so long.
            rows: A worker writes what it holds at the latest when it has so many.
            settings: What `open_run` takes, for the process that opens the run: `gold`, `options`, `monitor`, ...

        Raises `AttachError` if the directory cannot be written or the function is not understood; afterwards nothing.
        """
        if _disabled():
            return reward
        if batch_size is not None and batch_size < 1:
            raise AttachError(f"batch_size={batch_size}: give the number of completions that are scored for one step")
        try:
            signature = inspect.signature(reward)
        except (TypeError, ValueError) as error:
            raise AttachError(
                f"{reward!r} does not say what it is called with ({error}): wrap it in a function"
            ) from None
        prefixes: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        names = [f"{prefixes.get(part.kind, '')}{name}" for name, part in signature.parameters.items()]
        reader = reader_for(names, columns)
        settings.setdefault("rewards", [reward])
        # veRL starts its reward workers before the driver that reports steps: until then steps are not counted.
        driver = batch_size is None and os.environ.get("TILTMETER_VERL") == "capture"
        recorder = open_recorder(
            directory, batch_size=batch_size, driver=driver, seconds=seconds, rows=rows, settings=settings
        )
        reward_fingerprint = fingerprint([reward])
        if recorder.fingerprint not in ("", reward_fingerprint):
            raise AttachError(
                "another reward function is captured into this run already: give each a directory of its own, or make "
                "them one with tiltmeter.rewards.combine({...})"
            )
        recorder.fingerprint = reward_fingerprint
        wrapped: RewardFn = _wrap(reward, CallListener(recorder, signature, reader, group))
        return wrapped

    def open(
        self,
        directory: str | os.PathLike[str],
        batch_size: int | None = None,
        *,
        seconds: float = FLUSH_SECONDS,
        **settings: Any,
    ) -> Recorder | None:
        """In the driver, before workers start: open the run that their captured functions join.

        Without `batch_size`, each step ends where `step` says so; with it, steps are counted. None when disabled.
        """
        if _disabled():
            return None
        driver = batch_size is None
        return open_recorder(
            directory, batch_size=batch_size, driver=driver, seconds=seconds, rows=ROWS, settings=settings
        )

    def step(
        self,
        step: int,
        *,
        scalars: Mapping[str, float] | None = None,
        rows: int | None = None,
        begin: float | None = None,
        end: float | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """In the driver, after a step's completions are scored and before those of the next: the step is over.

        `scalars`: what the trainer says of the step (`kl_ref`, `loss`, ...). `rows`: how many completions it had, if
        known: then nobody waits for more. `begin`, `end`: seconds since 1970; what was scored after the step before and
        ahead of `begin` was an evaluation and belongs to no step. Never raises once a run is open.
        """
        if not _disabled():
            recorder = current_recorder(directory)
            with Boundary(lambda error: recorder.record_problem(f"a step was not recorded: {describe_error(error)}")):
                moment = time.time() if end is None else end
                recorder.step(StepBoundary(int(step), moment, begin, rows, first_items(scalars or {})))


capture = Capture()


class CallListener:
    """Records the calls of one wrapped reward function. Nothing here raises."""

    def __init__(self, recorder: Recorder, signature: inspect.Signature, reader: CallReader, group: str | None) -> None:
        self.recorder = recorder
        self._signature, self._reader, self._group = signature, reader, group

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, seconds: float) -> None:
        """Record a call. If `result` is an exception, the function raised it: the rows have no score, not 0."""
        self.recorder.offered += 1
        with Boundary(self.recorder.refuse, tally=self.recorder):
            failed = isinstance(result, Exception)
            arguments = self._arguments(args, kwargs)
            call = self._reader(arguments)
            if self._group is not None:
                call = _regroup(call, arguments, self._group)
            rows = len(call.completion)
            scores = CallScores([result] * rows) if failed else read_result(result, rows)
            self.recorder.add_call(call, scores, seconds, failed=failed)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, positional ones included."""
        bound = self._signature.bind(*args, **kwargs).arguments
        arguments: dict[str, Any] = {}
        for name, value in bound.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                arguments.update(value)
            elif kind is not inspect.Parameter.VAR_POSITIONAL:
                arguments[name] = value
        return arguments


def _wrap(reward: Any, listener: CallListener) -> Any:
    if _is_async(reward):

        async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                result = await reward(*args, **kwargs)
            except Exception as error:
                listener.record(args, kwargs, error, time.perf_counter() - start)
                raise
            listener.record(args, kwargs, result, time.perf_counter() - start)
            return result

        return _copy_metadata(async_wrapper, reward, listener)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            result = reward(*args, **kwargs)
        except Exception as error:
            listener.record(args, kwargs, error, time.perf_counter() - start)
            raise
        listener.record(args, kwargs, result, time.perf_counter() - start)
        return result

    return _copy_metadata(wrapper, reward, listener)


def _copy_metadata(wrapper: Any, reward: Any, listener: CallListener) -> Any:
    functools.update_wrapper(wrapper, reward)
    if not hasattr(reward, "__name__"):  # an object that can be called, or a partial: trainers ask for a name
        inner = reward
        while isinstance(inner, functools.partial):
            inner = inner.func
        wrapper.__name__ = inner.__name__ if hasattr(inner, "__name__") else type(inner).__name__
    wrapper.recorder = listener.recorder
    return wrapper


def _regroup(call: Any, arguments: Mapping[str, Any], group: str) -> Any:
    rows = len(call.completion)
    if group in arguments:
        values = arguments[group]
        keys = list(values) if same_length(values, call.completion) else [values] * rows
    elif call.facts is not None and all(group in facts for facts in call.facts):
        keys = [facts[group] for facts in call.facts]
    else:
        raise ValueError(f"group={group!r} is neither an argument of the call nor a fact of its rows")
    return replace(call, group=keys)


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _disabled() -> bool:
    return os.environ.get("TILTMETER_DISABLED", "") not in ("", "0")
