"""Gold bought on a live run: who answers, what is asked, and what counts when no answer comes.

The monitor alone asks. Nothing in here is reachable from a reward function, because gold that training sees is a second
proxy. How it is asked and kept is in `desk.py` and `files.py`, which rollouts are chosen in `sampler.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Later(Enum):
    """The answer of a source that has none yet."""

    LATER = "later"


#: The request stays open: the source is asked again, or somebody stores the answer, until the source's time is over.
LATER = Later.LATER


class CanaryError(Exception):
    """The judge failed on something whose worth is known, so that what it says of the rest is not used."""


#: A number in [0, 1]; None: no answer will come; an exception: why none will come; LATER: ask again.
Answer = float | None | BaseException | Later


@dataclass(frozen=True, slots=True)
class Request:
    """One completion whose worth is asked for. It carries nothing that would tell the one who answers what was paid.

    >>> Request("0-12-3", 0, 12, 40, "slope", "2 + 2?", "4").completion
    '4'
    """

    id: str
    attempt: int
    step: int
    row: int  # in the step's batch, ranks joined
    purpose: str  # "slope" or "duel"
    prompt: str | None
    completion: str
    columns: Mapping[str, object] = field(default_factory=dict)  # `length`, `truncated` and the row's facts, by name


class GoldSource(Protocol):
    """What a claim is about: whoever says how good a completion is, between 0 and 1.

    `identity` names it on every screen, since an alarm can only speak for its source. After `timeout` seconds a request
    is closed, and what is missing counts as the value that favours a healthy run. `judged`: it is a model's opinion,
    which may share the reward's blind spots and can be talked to; an alarm on it may change a run only in ways that
    are conservative and can be undone.
    """

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def timeout(self) -> float: ...
    @property
    def judged(self) -> bool: ...

    def label(self, requests: Sequence[Request]) -> Sequence[Answer]: ...


@dataclass(frozen=True)
class RecordedSource:
    """The source of a recorded run, by name only: a replay reads its answers from the run directory and asks nobody.

    >>> RecordedSource("checks.py:score", "the function score in checks.py").label([])
    []
    """

    name: str
    identity: str
    timeout: float = 0.0
    judged: bool = False

    def label(self, requests: Sequence[Request]) -> Sequence[Answer]:
        return [LATER] * len(requests)
