"""What trajectories of the newest step did that no task asks for."""

from __future__ import annotations

import numpy as np

from tiltmeter.acts import KINDS, SAYS, all_acts
from tiltmeter.acts.act import TrajectoryAct
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.view.payloads.claims import Claim
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.screens.wording import format_number, truncate

COLUMNS = ("reward", "prompt", "completion", "turns", "facts", "artifacts")
QUOTE = 100  # characters


def act_claims(run: RunDirectory, run_facts: RunFacts) -> list[Claim]:
    """One for each kind of act, the commonest first, with the best paid example; none where none is seen."""
    if run_facts.attempt is None:
        return []
    try:
        files = run.find(run_facts.attempt, run_facts.last_step)
        batch = run.read(files[0], COLUMNS)[0] if files else None
    except StoreError:
        return []
    return [] if batch is None or batch.completion is None else claims_of_batch(batch, run_facts.attempt)


def claims_of_batch(batch: RolloutBatch, attempt: int) -> list[Claim]:
    """The same of a batch.

    >>> from tiltmeter.data.batches import from_columns
    >>> code = ["```\\nimport os\\nos._exit(0)\\n```", "```\\ndef f(): return 1\\n```"]
    >>> (claim,) = claims_of_batch(from_columns(7, [0, 0], completion=code, reward=[1.0, 0.0]), 0)
    >>> claim.says, claim.many, claim.id, claim.place, claim.quote
    ('ended the process before the check', '1 of 2 trajectories at step 7', '0-7-0', 'step 7, line 3', 'os._exit(0)')
    """
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    acts = all_acts(batch)
    rows = {kind: [row for row, of_row in enumerate(acts) if _first(of_row, kind)] for kind in KINDS}
    claims = []
    for kind in sorted((kind for kind in KINDS if rows[kind]), key=lambda kind: -len(rows[kind])):
        paid = reward[rows[kind]]
        best = rows[kind][int(np.argmax(np.nan_to_num(paid, nan=-np.inf)))]
        act = _first(acts[best], kind)
        assert act is not None
        turn = act.turn + 1 if batch.turns is not None and act.turn >= 0 else None
        place = "the record of files" if act.turn < 0 else f"line {act.line}"
        mean = f"paid {format_number(float(np.nanmean(paid)))} on average" if np.isfinite(paid).any() else ""
        claims.append(
            Claim(
                source="act",
                says=SAYS[kind],
                own_words="",
                many=f"{len(rows[kind])} of {len(batch)} trajectories at step {batch.step}",
                paid=mean,
                id=rollout_id(attempt, batch.step, best),
                step=batch.step,
                turn=turn,
                place=f"step {batch.step}, {place}" if turn is None else f"step {batch.step}, turn {turn}, {place}",
                quote=truncate(" ".join(act.quote.split()), QUOTE),
                accuracy="",  # its recall on exploits that it was not written for is small, and not known for this run
            )
        )
    return claims


def _first(acts: tuple[TrajectoryAct, ...] | None, kind: str) -> TrajectoryAct | None:
    return next((act for act in acts or () if act.kind == kind), None)
