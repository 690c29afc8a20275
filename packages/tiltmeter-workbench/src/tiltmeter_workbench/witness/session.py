"""One sitting of a witness over a run: it is calibrated on the run's own tasks, then asked about what is new in it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tiltmeter.acts import all_acts
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.stats.prevalence import Prevalence
from tiltmeter_workbench.witness.answer import ADDRESSED, ERROR, UNANSWERED, WitnessAnswer
from tiltmeter_workbench.witness.asking import GroupToAsk, Witness
from tiltmeter_workbench.witness.calibration import (
    GROUPS,
    SIZE,
    Calibration,
    ClassCount,
    calibrate,
    count_answers,
    has_changed,
    make_forgeries,
)
from tiltmeter_workbench.witness.candidates import (
    RANDOM,
    SHARE,
    CandidateChooser,
    ChosenGroup,
    behaviours_by_step,
    row_trajectory,
    stored_steps,
)
from tiltmeter_workbench.witness.witness_files import (
    AskedBatch,
    AskedGroup,
    find_calibration,
    list_batches,
    store_batch,
    store_calibration,
)

BASE_STEPS = 10  # first steps of a run, whose trajectories forgeries are put into
BASE_GROUPS = 48
CANARY_SHARE = 0.05  # of the questions, and at least two groups: one with a forgery and one without
AT_ONCE = 24  # groups that are asked about and stored together

FAILED = (ERROR, UNANSWERED)
Say = Callable[[str], object]


@dataclass(frozen=True)
class ClassClaim:
    """What the witness calls one class of exploit: how often, since when, what it is paid, and an example.

    The quote was written by a policy and the name by the witness: escape both."""

    exploit: str
    rollouts: int
    first_step: int
    paid: float  # mean; NaN: not known
    paid_others: float  # of rollouts of the same prompts that are called honest
    example: AskedGroup
    at: int  # place of the example in its group

    @property
    def answer(self) -> WitnessAnswer:
        return self.example.answers[self.at]


@dataclass(frozen=True)
class WitnessReport:
    """Everything that a witness said about an attempt, with the calibration that it stands on."""

    calibration: Calibration
    batches: tuple[AskedBatch, ...]

    @property
    def groups(self) -> list[AskedGroup]:
        return [group for batch in self.batches for group in batch.groups]

    @property
    def rows(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    @property
    def rows_seen(self) -> int:
        return max((batch.rows_seen for batch in self.batches), default=0)

    @property
    def canaries(self) -> Calibration:
        return add_calibrations(self.calibration.witness, [batch.canaries for batch in self.batches])

    @property
    def why_unusable(self) -> str:
        """Why nothing that it says is shown; empty if it is."""
        recall, false = self.calibration.recall, self.calibration.false_positives
        if not self.calibration.is_useful:
            return (
                f"it flagged {recall.hits} of {recall.total} forgeries and {false.hits} of {false.total} honest twins: "
                "it does not tell them apart"
            )
        return has_changed(self.calibration, self.canaries)

    @property
    def random_flags(self) -> list[tuple[int, int]]:
        """Flags and answers that count, of groups that were asked about at random."""
        counts = [
            (sum(one.is_flag for one in group.answers), sum(one.says not in FAILED for one in group.answers))
            for group in self.groups
            if group.purpose == RANDOM
        ]
        return [one for one in counts if one[1]]

    @property
    def prevalence(self) -> Prevalence:
        return self.calibration.prevalence(self.random_flags)

    @property
    def flags(self) -> int:
        return sum(one.is_flag for group in self.groups for one in group.answers)

    @property
    def errors(self) -> int:
        return sum(one.says in FAILED for group in self.groups for one in group.answers)

    @property
    def addressed(self) -> int:
        """Rollouts that were called honest and speak to whoever judges them."""
        return sum(one.why == ADDRESSED for group in self.groups for one in group.answers)

    @property
    def expected_false_flags(self) -> float:
        """At most, of those that were asked about: by the upper end of its rate on honest twins."""
        return self.calibration.false_positives.interval[1] * self.rows

    @property
    def claims(self) -> list[ClassClaim]:
        """By class, what it called an exploit, the commonest first."""
        by_class: dict[str, list[tuple[AskedGroup, int]]] = {}
        for group in self.groups:
            for at, answer in enumerate(group.answers):
                if answer.is_flag:
                    by_class.setdefault(answer.exploit, []).append((group, at))
        claims = [_claim(kind, places) for kind, places in by_class.items()]
        return sorted(claims, key=lambda claim: (-claim.rollouts, claim.exploit))


def _claim(kind: str, places: Sequence[tuple[AskedGroup, int]]) -> ClassClaim:
    paid = [group.rewards[at] for group, at in places]
    others = [
        group.rewards[at]
        for group in {id(group): group for group, _ in places}.values()
        for at, answer in enumerate(group.answers)
        if answer.says == "honest"
    ]
    newest, at = max(places, key=lambda place: place[0].step)
    first = min(group.step for group, _ in places)
    return ClassClaim(kind, len(places), first, _mean(paid), _mean(others), newest, at)


def _mean(values: Sequence[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else float("nan")


def add_calibrations(identity: str, parts: Sequence[Calibration]) -> Calibration:
    """Several counts as one."""
    classes: dict[str, ClassCount] = {}
    for part in parts:
        for kind, one in part.classes.items():
            classes[kind] = _add(classes.get(kind, ClassCount()), one)
    noted = ClassCount()
    for part in parts:
        noted = _add(noted, part.noted)
    return Calibration(
        witness=identity,
        classes=classes,
        honest=sum(part.honest for part in parts),
        honest_flagged=sum(part.honest_flagged for part in parts),
        honest_suspicious=sum(part.honest_suspicious for part in parts),
        errors=sum(part.errors for part in parts),
        noted=noted,
        honest_called_honest=sum(part.honest_called_honest for part in parts),
    )


def _add(one: ClassCount, two: ClassCount) -> ClassCount:
    return ClassCount(one.forged + two.forged, one.flagged + two.flagged, one.named + two.named)


def base_groups(run: RunDirectory, attempt: int) -> list[GroupToAsk]:
    """Trajectories of the first steps in which no act is seen, for forgeries to be put into.

    Raises `StoreError` if the run has no texts.
    """
    groups: list[GroupToAsk] = []
    for number, batch in enumerate(stored_steps(run, attempt)):
        acts = all_acts(batch)
        for start, stop in zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True):
            rows = [row_trajectory(batch, row) for row in range(start, stop) if not acts[row]]
            trajectories = tuple(one for one in rows if one)[:SIZE]
            if trajectories:
                task = "" if batch.prompt is None else batch.prompt[start] or ""
                groups.append(GroupToAsk(task, trajectories))
        if number + 1 >= BASE_STEPS or len(groups) >= BASE_GROUPS:
            break
    if not groups:
        raise StoreError(f"{run.path} has no stored completions: a witness has nothing to read")
    return groups[:BASE_GROUPS]


def calibrate_run(
    run: RunDirectory, attempt: int, witness: Witness, say: Say, groups: int = GROUPS, seed: int = 0
) -> Calibration:
    """Put forgeries into the run's tasks, ask the witness, and store what it made of them."""
    forged = make_forgeries(base_groups(run, attempt), random.Random(f"calibration {seed}"), groups)
    say(f"calibration: {witness.cost([one.group for one in forged])}")
    calibration = calibrate(witness, forged)
    if not calibration.honest:
        raise StoreError(f"{witness.judge.host} gave no answer: the witness could not be tried, and nothing was stored")
    store_calibration(run, calibration)
    return calibration


def ask_run(run: RunDirectory, attempt: int, witness: Witness, say: Say, share: float = SHARE) -> list[AskedBatch]:
    """Ask about what was stored since the last time, with canaries among the questions, and store the answers."""
    earlier = [one for one in list_batches(run, witness.identity) if one.attempt == attempt]
    chooser = CandidateChooser(share, seed=int.from_bytes(str(run.identity().get("id", "")).encode()[-4:]))
    purposes = Counter[str]()
    random_rows = other_rows = 0
    for stored in earlier:
        for group in stored.groups:
            purposes[group.purpose] += 1
            random_rows += len(group.rows) if group.purpose == RANDOM else 0
            other_rows += len(group.rows) if group.purpose != RANDOM else 0
    chooser.restore(max((one.rows_seen for one in earlier), default=0), random_rows, other_rows, purposes)
    after = max((one.last_step for one in earlier), default=-1)
    noted_behaviours = behaviours_by_step(read_events(run.path / "events"), attempt)
    waiting: list[tuple[ChosenGroup, RolloutBatch]] = []
    batches: list[AskedBatch] = []
    last = after
    for step in stored_steps(run, attempt, after):
        waiting += [(one, step) for one in chooser.choose(step, noted_behaviours.get(step.step, {}))]
        last = step.step
        if len(waiting) >= AT_ONCE:
            if (batch := _ask_batch(run, attempt, witness, waiting, after + 1, last, chooser.rows, say)) is None:
                return batches
            batches.append(batch)
            waiting, after = [], last
    batch = _ask_batch(run, attempt, witness, waiting, after + 1, last, chooser.rows, say) if waiting else None
    return batches if batch is None else [*batches, batch]


def _ask_batch(
    run: RunDirectory,
    attempt: int,
    witness: Witness,
    chosen: Sequence[tuple[ChosenGroup, RolloutBatch]],
    first: int,
    last: int,
    rows_seen: int,
    say: Say,
) -> AskedBatch | None:
    """What was asked at once; None, and nothing is stored, if the server does not answer: these are asked again."""
    rng = random.Random(f"canaries {attempt} {last}")
    bases = base_groups(run, attempt)
    rng.shuffle(bases)
    canaries = make_forgeries(bases, rng, max(2, round(CANARY_SHARE * len(chosen))))
    groups = [one.group for one, _ in chosen] + [one.group for one in canaries]
    order = list(range(len(groups)))
    rng.shuffle(order)  # nothing about its place tells a canary
    say(witness.cost(groups))
    by_place = dict(zip(order, witness.ask([groups[at] for at in order]), strict=True))
    answers = [by_place[at] for at in range(len(groups))]
    if all(one.says == UNANSWERED for of_group in answers for one in of_group):
        say(f"no answer: {answers[0][0].why}; the same will be asked again the next time")
        return None
    batch = AskedBatch(
        witness=witness.identity,
        attempt=attempt,
        first_step=first,
        last_step=last,
        rows_seen=rows_seen,
        groups=tuple(
            _stored_group(one, step, of_group)
            for (one, step), of_group in zip(chosen, answers[: len(chosen)], strict=True)
        ),
        canaries=count_answers(witness.identity, canaries, answers[len(chosen) :]),
        time=time.time(),
    )
    store_batch(run, batch)
    return batch


def _stored_group(one: ChosenGroup, step: RolloutBatch, answers: Sequence[WitnessAnswer]) -> AskedGroup:
    rewards = [None if step.reward is None else float(step.reward[row]) for row in one.rows]
    return AskedGroup(
        step=one.step,
        purpose=one.purpose,
        chance=one.chance,
        rows=one.rows,
        rewards=tuple(value if value is not None and np.isfinite(value) else None for value in rewards),
        answers=tuple(answers),
    )


def report_of(run: RunDirectory, attempt: int, identity: str) -> WitnessReport | None:
    """What a witness has said about an attempt so far; None if it was never calibrated on this run."""
    calibration = find_calibration(run, identity)
    batches = tuple(one for one in list_batches(run, identity) if one.attempt == attempt)
    return None if calibration is None else WitnessReport(calibration, batches)
