"""Which rollouts a witness is asked about: half at random, for an estimate, half where something is new.

At most a small share of all rollouts is asked about. What is new: acts that are paid better than others of their
prompt, and behaviours that are new and well paid. The choice depends on what is stored and on chance, never on answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltmeter.acts import all_acts
from tiltmeter.data.batches import join
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import ASSISTANT, Turn, read_row_turns
from tiltmeter.monitor.behaviour_tracker import rows_to_look_at
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import BehavioursRead
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.witness.asking import GroupToAsk
from tiltmeter_workbench.witness.question import FEWEST, MOST, Trajectory

SHARE = 0.02  # of all rollouts, that are asked about at most
RANDOM = "random"
_COLUMNS = ("group", "reward", "prompt", "completion", "turns", "facts", "artifacts")


@dataclass(frozen=True)
class ChosenGroup:
    """Rollouts of one prompt at one step, and why they are asked about."""

    step: int
    purpose: str  # RANDOM, a kind of act, or the name of a behaviour
    chance: float  # with which this group, or this rollout with an act, was chosen among those of its step
    rows: tuple[int, ...]  # of the step, all ranks together
    group: GroupToAsk


class CandidateChooser:
    """Chooses groups, step by step, within a share of the rollouts that were seen so far."""

    def __init__(self, share: float = SHARE, seed: int = 0) -> None:
        self.share, self.seed = share, seed
        self.rows = 0  # that were seen
        self.asked_rows: dict[bool, int] = {True: 0, False: 0}  # at random, and for a reason
        self._looks: dict[str, int] = {}  # by kind

    def restore(self, rows: int, random_rows: int, other_rows: int, looks: Mapping[str, int]) -> None:
        """Go on where another left off."""
        self.rows, self.asked_rows, self._looks = rows, {True: random_rows, False: other_rows}, dict(looks)

    def choose(self, batch: RolloutBatch, behaviours: Mapping[str, Sequence[Sequence[int]]]) -> list[ChosenGroup]:
        """The groups of a step. `behaviours`: as `rows_to_look_at` gives them."""
        self.rows += len(batch)
        rng = np.random.default_rng([self.seed, batch.attempt, batch.step])
        chosen: list[ChosenGroup] = []
        if (one := self._random_group(batch, rng)) is not None:
            chosen.append(one)
        taken = {row for group in chosen for row in group.rows}
        while (one := self._new_group(batch, behaviours, taken, rng)) is not None:
            chosen.append(one)
            taken |= set(one.rows)
        return chosen

    def _left(self, at_random: bool) -> int:
        return int(self.share * self.rows / 2.0) - self.asked_rows[at_random]

    def _random_group(self, batch: RolloutBatch, rng: np.random.Generator) -> ChosenGroup | None:
        groups = len(batch.starts) - 1
        if groups < 1:
            return None
        group = int(rng.integers(groups))
        rows = np.arange(batch.starts[group], batch.starts[group + 1])
        # As many as the group has: a share of the budget that waits for a whole group is no share of its rows.
        rows = rng.permutation(rows)[:MOST]
        if len(rows) < FEWEST or len(rows) > self._left(at_random=True):
            return None
        return self._group(batch, [int(row) for row in rows], RANDOM, 1.0 / groups)

    def _new_group(
        self,
        batch: RolloutBatch,
        behaviours: Mapping[str, Sequence[Sequence[int]]],
        taken: set[int],
        rng: np.random.Generator,
    ) -> ChosenGroup | None:
        left = self._left(at_random=False)
        if left < FEWEST:
            return None
        kinds = {kind: [row for row in rows if row not in taken] for kind, rows in _reasons(batch, behaviours).items()}
        kinds = {kind: rows for kind, rows in kinds.items() if rows}
        if not kinds:
            return None
        kind = min(kinds, key=lambda name: (self._looks.get(name, 0), name))  # the newest first
        row = int(rng.choice(kinds[kind]))
        group = int(np.searchsorted(batch.starts, row, "right")) - 1
        others = [at for at in range(int(batch.starts[group]), int(batch.starts[group + 1])) if at != row]
        others = [int(at) for at in rng.permutation([at for at in others if at not in taken])[: min(left, MOST) - 1]]
        if not others:
            return None
        self._looks[kind] = self._looks.get(kind, 0) + 1
        return self._group(batch, [row, *others], kind, 1.0 / len(kinds[kind]))

    def _group(self, batch: RolloutBatch, rows: list[int], purpose: str, chance: float) -> ChosenGroup | None:
        trajectories = [row_trajectory(batch, row) for row in rows]
        if not all(trajectories):
            return None  # without its text there is nothing to ask about
        self.asked_rows[purpose == RANDOM] += len(rows)
        task = "" if batch.prompt is None else batch.prompt[rows[0]] or ""
        group = GroupToAsk(task, tuple(one for one in trajectories if one))
        return ChosenGroup(batch.step, purpose, chance, tuple(rows), group)


def row_trajectory(batch: RolloutBatch, row: int) -> Trajectory | None:
    """A row's turns from the policy's first on, or its completion as one."""
    turns = None if batch.turns is None else read_row_turns(batch.turns[row])
    if turns:
        start = next((at for at, turn in enumerate(turns) if turn.written), 0)
        return Trajectory(turns[start:], start)
    text = None if batch.completion is None else batch.completion[row]
    return None if text is None else Trajectory((Turn(ASSISTANT, text),))


def _reasons(batch: RolloutBatch, behaviours: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, list[int]]:
    """By kind of act and by behaviour, the rows that it is a reason to look at: those paid better than their group."""
    reasons: dict[str, list[int]] = {}
    rewards = np.full(len(batch), np.nan) if batch.reward is None else np.asarray(batch.reward, np.float64)
    for row, acts in enumerate(all_acts(batch)):
        group = int(np.searchsorted(batch.starts, row, "right")) - 1
        of_group = rewards[int(batch.starts[group]) : int(batch.starts[group + 1])]
        finite = of_group[np.isfinite(of_group)]
        if acts and len(finite) and rewards[row] >= finite.mean():
            for kind in sorted({act.kind for act in acts}):
                reasons.setdefault(kind, []).append(row)
    for name, sides in behaviours.items():
        rows = [int(row) for row in sides[0] if 0 <= int(row) < len(batch)]  # a record may hold anything
        if rows:
            reasons[name] = rows
    return reasons


def stored_steps(run: RunDirectory, attempt: int, after: int = -1) -> Iterator[RolloutBatch]:
    """The steps of an attempt behind this one, all ranks together. Steps that cannot be read are left out."""
    by_step: dict[int, list[Any]] = {}
    for file in run.files(attempt, []):
        if file.step > after:
            by_step.setdefault(file.step, []).append(file)
    for step in sorted(by_step):
        parts = [run.read(file, _COLUMNS) for file in sorted(by_step[step], key=lambda file: file.rank)]
        yield join([batch for batch, _, _ in parts], shared_groups=parts[-1][1].get("groups") == "shared")


def behaviours_by_step(events: Sequence[Event], attempt: int) -> dict[int, dict[str, list[list[int]]]]:
    """By step, the rows of behaviours that are new and well paid, as the monitor has recorded them."""
    by_step: dict[int, dict[str, list[list[int]]]] = {}
    for event in events:
        if event.attempt == attempt and isinstance(note := event.payload, BehavioursRead):
            by_step[event.step] = rows_to_look_at(event.step, note.seen)
    return by_step
