"""Mistakes in reward functions that TRL meets at the first step, and says in words of its own: named here with the fix.

At attach only signatures are read: a reward function may have state, and training must not change by a bit. An error
of the first step keeps its type and gets a note, which Python prints below it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tiltmeter.adapters.trl.gold_facts import adds_columns
from tiltmeter.errors import AttachError, Boundary

#: What TRL hands to every reward function beside the columns of the dataset.
PASSED = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
#: Columns that TRL does not hand on.
LEFT_OUT = ("prompt", "completion", "completion_ids")

_NOT_A_LIST = "it returned one value: return a list with one number for each completion"
_EACH = "return one number for each completion, in their order"
_NO_NUMBERS = "it returned something else than numbers: return a list with one number, or None, for each completion"
_MESSAGES = (
    "completions are plain text here, because the dataset's prompts are: use the text itself, or make prompts lists of "
    'messages, [{"role": "user", "content": ...}]'
)
_PLAIN = "completions are lists of messages here, because the dataset's prompts are: use completion[-1]['content']"
#: Patterns of an error, and what it means where prompts are plain text, and where they are messages.
NOTES = (
    (r"TypeError: '\w+' object is not iterable|TypeError: iteration over a 0-d", _NOT_A_LIST, _NOT_A_LIST),
    (r"\w+Error: (too many dimensions|expand\(|must be real number|could not convert|The expanded size)", _NO_NUMBERS,
     _NO_NUMBERS),
    (r"\w+Error: string indices must be integers", _MESSAGES, ""),
    (r"AttributeError: 'list' object has no attribute|TypeError: expected string or bytes-like object, got 'list'", "",
     _PLAIN),
    (r"ValueError: The reward function .* returned \d+ rewards", _EACH, _EACH),
)  # fmt: skip


def check_signatures(trainer: Any, *, tested: bool) -> None:
    """Raise `AttachError` for a reward function that TRL cannot call. `tested`: what this TRL hands over is known."""
    columns: list[str] = []
    with Boundary(lambda error: None):  # a dataset that cannot be looked at
        columns = list(trainer.train_dataset.column_names or ())
    passed = {*PASSED, *(name for name in columns if name not in LEFT_OUT)}
    passed |= {"environments"} if adds_columns(trainer) else set()
    for name, function in zip(trainer.reward_func_names, trainer.reward_funcs, strict=True):
        if hasattr(function, "forward"):
            continue  # a reward model, which is called in another way
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            continue
        variadic = [one for one in parameters if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
        needed = [one.name for one in parameters if one.default is one.empty and one not in variadic]
        if lists := [one for one in needed if one in ("prompt", "completion")]:
            raise AttachError(
                f"the reward function {name} takes {lists[0]!r}: TRL calls it once for all, with lists: write "
                f"`def {name}(completions, **kwargs)` and return a list"
            )
        missing = [one for one in needed if one not in passed]
        if missing and columns and not adds_columns(trainer):
            raise AttachError(
                f"the reward function {name} needs {missing[0]!r}, which is no column of the dataset (it has "
                f"{', '.join(columns)}): name the parameter as the column"
            )
        takes_all = any(one.kind is one.VAR_KEYWORD for one in variadic)
        unwanted = sorted(passed - {one.name for one in parameters})
        if tested and not takes_all and unwanted:
            raise AttachError(
                f"the reward function {name} does not take {unwanted[0]!r}, which TRL hands to each: add **kwargs to "
                "its parameters"
            )


class RewardErrorNotes:
    """`with RewardErrorNotes(guard, names, prompts): ...` adds what an error of a reward function means, and the fix.

    `names`: of the reward functions; `prompts`: of the batch. Whatever is raised is raised on.
    """

    def __init__(self, guard: Callable[[Callable[[], None]], None], names: Sequence[str], prompts: Any) -> None:
        self._guard, self._names, self._prompts = guard, names, prompts

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._guard(lambda: self._add_note(error))

    def _add_note(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        is_chat = not isinstance(self._prompts[0], str)
        for pattern, plain_fix, chat_fix in NOTES:
            fix = chat_fix if is_chat else plain_fix
            if fix and re.match(pattern, text):
                error.add_note(f"tiltmeter: a reward function ({', '.join(self._names)}): {fix}")
                return
