"""Labels for a closer look: at rollouts that did something new and are well paid, beside others of the same prompt.

Nothing is bet on them. What the alarm and the level test is drawn before, by their own rules, and a look changes
neither; so their bounds hold as they are. Which rollouts are looked at is decided by what is in the step, and by
chance; no label of the step is known then. Each choice is on record with its probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter.acts import batch_acts
from tiltmeter.data.records import Floats, Reading, RolloutBatch
from tiltmeter.gold.label_files import Label, LabelRequest
from tiltmeter.gold.sampler import Bet

LOOK = "look"  # purpose of such labels
ACTS, BEHAVIOUR = "acts.gold.", "behaviour-"  # how readings of acts begin, and names of behaviours
EACH = 20  # looks at one kind of act or behaviour in a run: after that it is known
STEP = 4  # looks in a step
PART = 0.1  # of the labels that the share allows so far, at most, for looks


class CloserLooks:
    """Chooses pairs to look at: a rollout of a kind that is new and better paid than others of its prompt, and one of
    the same prompt without it, where there is one."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}  # by kind
        self._rows = 0
        self._labels = 0

    def draw(
        self,
        batch: RolloutBatch,
        share: float,
        advantage: Floats | None,
        behaviours: Mapping[str, Sequence[Sequence[int]]],
        taken: set[int],
        rng: np.random.Generator,
    ) -> list[Bet]:
        """The looks of a step. `behaviours`: by the name of one that is new and well paid, rows with it and rows
        without it; `taken`: rows that are labelled for something else, which a look must not change."""
        self._rows += len(batch)
        left = min(int((PART * share * self._rows - self._labels) / 2), STEP)
        if left <= 0 or advantage is None:
            return []
        kinds = {kind: rows for kind, rows in kinds_of(batch, behaviours).items() if self._looks.get(kind, 0) < EACH}
        bets: list[Bet] = []
        for kind in sorted(kinds, key=lambda kind: (self._looks.get(kind, 0), kind)):  # the newest first
            with_it, without = kinds[kind]
            paid = [row for row in with_it if advantage[row] > 0.0 and row not in taken]
            if not paid or len(bets) >= left:
                continue
            row = paid[int(rng.integers(len(paid)))]
            others = [one for one in without if batch.group[one] == batch.group[row] and one not in taken]
            other = others[int(rng.integers(len(others)))] if others else row
            taken = taken | {row, other}
            at = batch.attempt, batch.step
            bets.append(Bet(LOOK, (*at, row), (*at, other), 0.0, 1.0 / len(paid), kind))
            self._looks[kind] = self._looks.get(kind, 0) + 1
        self._labels += count_labels(bets)
        return bets

    def state(self) -> dict[str, Any]:
        """Everything remembered, for the request."""
        return {"looks": dict(self._looks), "rows": self._rows, "labels": self._labels}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As it was when a request with this state was written."""
        self._looks = {str(kind): int(count) for kind, count in state["looks"].items()}
        self._rows, self._labels = int(state["rows"]), int(state["labels"])


def count_labels(bets: Sequence[Bet]) -> int:
    """How many labels looks need: two, or one where a prompt has no rollout without the act."""
    return sum(2 - (bet.up == bet.down) for bet in bets)


def kinds_of(
    batch: RolloutBatch, behaviours: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, tuple[list[int], list[int]]]:
    """By kind of act, and by behaviour: rows with it, and rows that are known to be without it."""
    acts = {row: {act.kind for act in of_row} for row, of_row in enumerate(batch_acts(batch)) if of_row is not None}
    kinds = {
        kind: ([row for row in acts if kind in acts[row]], [row for row in acts if kind not in acts[row]])
        for kind in sorted({kind for of_row in acts.values() for kind in of_row})
    }
    # Row numbers of a record that was read again may be anything.
    of_step = {
        name: tuple([row for row in rows if 0 <= row < len(batch)] for rows in sides)
        for name, sides in behaviours.items()
    }
    return kinds | {name: (sides[0], sides[1]) for name, sides in of_step.items() if len(sides) == 2}


def look_readings(request: LabelRequest, labels: Sequence[Label]) -> list[Reading]:
    """Gold of what was looked at, and of others of the same prompts: `acts.gold.with` and `acts.gold.without`, and by
    the number of a behaviour `behaviours.3.gold_with` and `behaviours.3.gold_without`."""
    numbers = {row: number for number, row in enumerate(request.rows)}
    gold: dict[str, dict[object, float]] = {}
    for bet in (one for one in request.bets if one.purpose == LOOK):
        prefix = f"behaviours.{bet.slice.removeprefix(BEHAVIOUR)}.gold_" if bet.slice.startswith(BEHAVIOUR) else ACTS
        for word, row in (("with", bet.up), ("without", bet.down)):
            value = labels[numbers[row]].value
            if value is not None and (word == "with" or bet.up != bet.down):
                gold.setdefault(f"{prefix}{word}", {})[row] = value
    return [
        Reading(request.attempt, request.step, name, float(np.mean(list(values.values()))), len(values))
        for name, values in sorted(gold.items())
    ]
