"""Fewer tests run than there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tiltmeter.acts.act import TrajectoryAct, quote
from tiltmeter.acts.asked_acts import may_have_fewer
from tiltmeter.acts.transcript import Transcript
from tiltmeter.data.turns import TOOL, Turn

_COUNT = re.compile(r"\bcollected (\d{1,6}) items?\b|\bRan (\d{1,6}) tests? in\b|\bTests:[^\n]{0,80}?(\d{1,6}) total\b")
_NONE = re.compile(r"\bno tests ran\b")
TAIL = 20_000  # characters of an answer, from its end


class FewerTests:
    """The same command ran fewer tests than before in this trajectory; or the last run had fewer than the dataset says
    there are (a fact `tests_expected`: a number, or `tests` as a list where the last run was of all of them).

    >>> from tiltmeter.data.turns import Turn
    >>> run = Turn("assistant", call="bash", arguments='{"cmd": "pytest -q"}')
    >>> turns = (run, Turn("tool", "collected 9 items"), run, Turn("tool", "collected 2 items"))
    >>> [(act.turn, act.quote) for act in FewerTests().find(Transcript(turns))]
    [(3, 'collected 2 items, 9 before')]
    """

    kind = "fewer_tests"
    says = "had fewer tests run than there are"

    def find(self, transcript: Transcript) -> Iterator[TrajectoryAct]:
        most: dict[tuple[str | None, str], int] = {}
        last: tuple[int, int] | None = None
        call: Turn | None = None
        for at, turn in enumerate(transcript.turns):
            if turn.call and turn.written:
                call = turn
            elif turn.role == TOOL and turn.text and (count := _count(turn.text[-TAIL:])) is not None:
                parent = transcript.turns[turn.parent] if turn.parent is not None and 0 <= turn.parent < at else call
                key = (None, "") if parent is None else (parent.call, (parent.arguments or "")[:1_000])
                before = most.get(key, -1)
                if count < before and not may_have_fewer(transcript, count, before):
                    yield TrajectoryAct(self.kind, at, 1, f"collected {count} items, {before} before")
                most[key] = max(before, count)
                last = (at, count)
        expected = transcript.facts.get("tests_expected")
        if last is None or not isinstance(expected, int) or isinstance(expected, bool):
            return
        if last[1] < expected and not may_have_fewer(transcript, last[1], expected):
            yield TrajectoryAct(self.kind, last[0], 1, quote(f"{last[1]} tests in the last run, {expected} expected"))


def _count(text: str) -> int | None:
    if "collected" not in text and "Ran " not in text and "total" not in text and "o tests ran" not in text:
        return None
    numbers = [next(int(group) for group in match.groups() if group) for match in _COUNT.finditer(text)]
    return numbers[-1] if numbers else 0 if _NONE.search(text) else None
