"""What a TRL trainer is asked beside its training, as an evaluation is: everything that this leaves behind is put back.

Put back are the logs and metrics, the mode of every module, the reward functions and the states of all random number
generators. So the parameters after training are the same bits with and without what is asked.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tiltmeter.adapters.trl.reward_functions import is_async
from tiltmeter.errors import Boundary

#: What the trainer keeps for its logs, and what is asked apart must not enter.
LOGS = ("_metrics", "_logs", "_pending_extra_logs", "_pending_metrics")


@contextmanager
def as_evaluation(trainer: Any, seed: int, answers: int = 1, paying: Collection[int] | None = None) -> Iterator[None]:
    """Everything inside is an evaluation with so many answers to a prompt, and leaves nothing behind.

    `paying`: numbers of the reward functions that may be called; the others score 0. Default: all are called.
    """
    import torch

    modes = [(module, module.training) for module in trainer.model.modules()]
    logs = {name: vars(trainer)[name] for name in LOGS if name in vars(trainer)}
    functions, generations = list(trainer.reward_funcs), trainer.num_generations_eval
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices), torch.no_grad():
        try:
            torch.manual_seed(seed)  # not the numbers that the next batch will be drawn with
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - reward functions may use the global one
            for name, value in logs.items():
                setattr(trainer, name, _copied(value))
            trainer.reward_funcs[:] = [
                _without_errors(function) if paying is None or at in paying else _nothing
                for at, function in enumerate(functions)
            ]
            trainer.num_generations_eval = answers
            trainer.model.eval()
            yield
        finally:
            trainer.reward_funcs[:] = functions
            trainer.num_generations_eval = generations
            for name, value in logs.items():
                setattr(trainer, name, value)
            for module, training in modes:
                module.training = training
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def _nothing(**columns: Any) -> list[float]:
    """In place of a reward function that is not called; without any score TRL would warn of each row."""
    return [0.0] * len(columns["completions"])


def _copied(value: Any) -> Any:
    """A copy of containers in containers, with the same texts and numbers in them."""
    copied = copy.copy(value)
    if isinstance(copied, dict):
        for key, item in copied.items():
            copied[key] = _copied(item)
    return copied


def _without_errors(function: Any) -> Any:
    """The function with None for every row where it would raise: on one rank alone, an error would stop all others."""
    if hasattr(function, "forward"):
        return function
    if is_async(function):

        async def waited(**columns: Any) -> Any:
            with Boundary(lambda error: None):
                return await function(**columns)
            return [None] * len(columns["completions"])

        return _named(waited, function)

    def called(**columns: Any) -> Any:
        with Boundary(lambda error: None):
            return function(**columns)
        return [None] * len(columns["completions"])

    return _named(called, function)


def _named(wrapper: Callable[..., Any], function: Any) -> Callable[..., Any]:
    return functools.wraps(function)(wrapper) if hasattr(function, "__name__") else wrapper
