"""Lines about what trajectories of the newest step did that no task asks for."""

from __future__ import annotations

import numpy as np

from tiltmeter.acts import KINDS, SAYS, all_acts
from tiltmeter.acts.act import Act
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_state import RunState
from tiltmeter.view.screens.wording import format_number, truncate

COLUMNS = ("reward", "prompt", "completion", "turns", "facts", "artifacts")


def act_lines(run: RunDirectory, run_state: RunState) -> list[str]:
    """A line for each kind of act, the commonest first, with the best paid example; none where none is seen. A model
    wrote the quotes: escape them."""
    if run_state.attempt is None:
        return []
    try:
        files = run.find(run_state.attempt, run_state.last_step)
        batch = run.read(files[0], COLUMNS)[0] if files else None
    except StoreError:
        return []
    return [] if batch is None or batch.completion is None else describe_acts(batch)


def describe_acts(batch: RolloutBatch) -> list[str]:
    """The same of a batch.

    >>> from tiltmeter.data.batches import from_columns
    >>> code = ["```\\nimport os\\nos._exit(0)\\n```", "```\\ndef f(): return 1\\n```"]
    >>> (line,) = describe_acts(from_columns(7, [0, 0], completion=code, reward=[1.0, 0.0]))
    >>> print(line.partition(", ")[0], "..." + line[-34:])
    Step 7: 1 of 2 trajectories ended the process before the check ...for example line 3: os._exit(0)
    """
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    acts = all_acts(batch)
    rows = {kind: [row for row, of_row in enumerate(acts) if _first(of_row, kind)] for kind in KINDS}
    lines = []
    for kind in sorted((kind for kind in KINDS if rows[kind]), key=lambda kind: -len(rows[kind])):
        paid = reward[rows[kind]]
        best = rows[kind][int(np.argmax(np.nan_to_num(paid, nan=-np.inf)))]
        act = _first(acts[best], kind)
        assert act is not None
        amount = f", paid {format_number(float(np.nanmean(paid)))} on average" if np.isfinite(paid).any() else ""
        place = "the record of files" if act.turn < 0 else f"line {act.line}"
        place = f"turn {act.turn + 1}, {place}" if batch.turns is not None and act.turn >= 0 else place
        lines.append(
            f"Step {batch.step}: {len(rows[kind])} of {len(batch)} trajectories {SAYS[kind]}{amount}; "
            f"for example {place}: {truncate(' '.join(act.quote.split()), 100)}"
        )
    return lines


def _first(acts: tuple[Act, ...] | None, kind: str) -> Act | None:
    return next((act for act in acts or () if act.kind == kind), None)
