"""Whether the prompts of a run come back, decided once, by its first steps and by prompts alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

STEPS = 20  # with groups whose gold is known, after which it is decided
SEEN_AGAIN = 0.1  # of groups, from which prompts are said to come back


@dataclass
class ReturningPrompts:
    """Which prompts the first steps had, until it is decided whether they come back.

    >>> new, same = ReturningPrompts(), ReturningPrompts()
    >>> for step in range(20): new.add([2 * step, 2 * step + 1]); same.add([1, 2])
    >>> new.come_back, same.come_back
    (False, True)
    """

    come_back: bool | None = field(default=None, init=False)  # None: not decided yet
    _steps: int = field(default=0, init=False, repr=False)
    _early: set[Hashable] = field(default_factory=set, init=False, repr=False)
    _again: int = field(default=0, init=False, repr=False)
    _groups: int = field(default=0, init=False, repr=False)

    def add(self, prompts: Iterable[Hashable]) -> None:
        """The prompts of a step's groups, as keys that are equal where the prompt is."""
        if self.come_back is not None:
            return
        keys = list(prompts)
        self._steps += 1
        self._again += sum(key in self._early for key in keys)
        self._groups += len(keys)
        self._early.update(keys)
        if self._steps >= STEPS:
            self.come_back = self._again >= SEEN_AGAIN * self._groups
            self._early.clear()
