"""What a reward function of ours is, the error for rows that could not be scored, and the texts it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from tiltmeter.data.batches import plain_text

Scores = list[float | None]


class InfraError(Exception):
    """Rows could not be scored because of an outage, not because of the policy. They are left out of training, not 0.

    A part of a reward may raise it for all rows of a call.

    Example:

        def checked(completions, **_):
            if not service.is_up():
                raise rewards.InfraError("the checker is down")
            return service.check(completions)
    """


@runtime_checkable
class Reward(Protocol):
    """A reward function that reports the scores of its components, so that a run shows which component is paid.

    A plain function can be a part without any of this. `told` and `infra` describe the rows of the last call: the score
    of each component, and which rows are None because of an outage and not because the reward does not apply.

    >>> from tiltmeter.rewards import maths
    >>> isinstance(maths(), Reward), isinstance(len, Reward)
    (True, False)
    """

    __name__: str

    @property
    def bounds(self) -> tuple[float | None, float | None]: ...
    @property
    def components(self) -> tuple[str, ...]: ...
    @property
    def told(self) -> Mapping[str, Scores]: ...
    @property
    def infra(self) -> list[bool]: ...

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores: ...


def texts(values: Iterable[object] | None) -> list[str]:
    """Plain text of prompts or completions, which are strings or lists of chat messages; what is absent is empty.

    >>> texts(["4", [{"role": "assistant", "content": "It is 4."}], None])
    ['4', 'It is 4.', '']
    """
    if values is None:
        raise TypeError("a reward was called without completions: pass completions=")
    return [plain_text(value) or "" for value in values]
