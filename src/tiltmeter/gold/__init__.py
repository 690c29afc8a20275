"""Gold labels of a live run: the sources of labels, what they are asked, and what counts when no answer comes.

Only the monitor asks for labels, and `adapters/trl/anchors.py` for its own. No reward function can reach this package:
gold that training sees is a second proxy. `label_queue.py` asks, `label_files.py` stores, `sampler.py` chooses.
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


#: Begins the identity of a source that is a program of ours and no part of the reward: if it agrees with the reward
#: everywhere, that is a finding and no mistake of the configuration.
INDEPENDENT = "the dataset's "


class CanaryError(Exception):
    """The judge mis-scored a canary, a completion whose label is known, so its other scores are not used."""


#: A number in [0, 1]; None: no answer will come; an exception: why none will come; LATER: ask again.
GoldAnswer = float | None | BaseException | Later


@dataclass(frozen=True, slots=True)
class CompletionToLabel:
    """One completion to be labelled. It does not contain the reward, so whoever labels it cannot see that.

    >>> CompletionToLabel("0-12-3", 0, 12, 40, "slope", "2 + 2?", "4").completion
    '4'
    """

    id: str
    attempt: int
    step: int
    row: int  # in the step's batch, ranks joined
    purpose: str  # "slope", "duel", "level", "look", ...
    prompt: str | None
    completion: str
    columns: Mapping[str, object] = field(default_factory=dict)  # `length`, `turns`, ... and the row's facts, by name
    conversation: str = ""  # what a judge reads, where the completion is the policy's part of a conversation

    @property
    def shown(self) -> str:
        """What a judge or a person reads."""
        return self.conversation or self.completion


class GoldSource(Protocol):
    """A source of gold: it says how good a completion is, from 0 to 1. An alarm is a claim about its source.

    `identity` names it on every screen. After `timeout` seconds a request is closed, and a missing label counts as the
    value that favours a healthy run. `judged`: it is a model's opinion, which may share the reward's blind spots and
    can be manipulated by the policy; an alarm on it may change a run only in ways that are conservative and can be
    undone.
    """

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def timeout(self) -> float: ...
    @property
    def judged(self) -> bool: ...

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]: ...


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

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        return [LATER] * len(requests)
