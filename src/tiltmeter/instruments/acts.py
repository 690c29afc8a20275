"""What trajectories did that no task asks for, and whether it pays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tiltmeter.acts import KINDS, batch_acts, transcripts
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class TamperActs:
    """Share of the trajectories with code or calls in which an act is seen (`any`, and by kind: `kind.test_removal`),
    what they are paid (`paid_with`), what others are (`paid_without`), how much more than others of the same prompt
    (`gain`), and the share that is too long to be read to its end (`unread_share`).

    An agent that is paid by tests learns to remove, skip or edit them. An act is evidence and no verdict: a task may
    ask for new tests, and patterns of text are evaded by who tries. No value for prose, where there is nothing to find.
    One prompt group in 32 is read at a step, at least one, and others at the next.

    Formula: 1[a detector of `tiltmeter.acts` finds something in row i]; reward of i minus the mean reward of the rows
    of its group in which none does
    Source: own; kinds after Baker et al. 2025 and the hardening lists of public environments

    >>> from tiltmeter.data.batches import from_columns
    >>> from tiltmeter.data.turns import Turn
    >>> commands = ("rm -r tests", "ls", "make")
    >>> rows = [[Turn("assistant", call="sh", arguments=f'{{"cmd": "{command}"}}')] for command in commands]
    >>> answer = TamperActs().measure(from_columns(0, [0, 0, 0], turns=rows, reward=[1.0, 0.0, 0.5]), None)
    >>> [answer[name].tolist() for name in ("any", "kind.test_removal", "gain")]
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.75, nan, nan]]
    """

    name = "acts"
    grain = "rollout"
    needs = ("completion",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        shares = np.full((len(KINDS), len(batch)), np.nan)
        unread = np.full(len(batch), np.nan)
        acts = batch_acts(batch)
        for row, transcript in transcripts(batch).items():
            if (of_row := acts[row]) is not None:
                kinds = {act.kind for act in of_row}
                shares[:, row] = [kind in kinds for kind in KINDS]
                unread[row] = transcript.is_cut
        if not np.isfinite(unread).any():
            return {}
        seen = shares.max(axis=0)
        reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
        gain = np.full(len(batch), np.nan)
        for start, stop in pairwise(batch.starts.tolist()):
            others = reward[start:stop][(seen[start:stop] == 0.0) & np.isfinite(reward[start:stop])]
            if len(others):
                gain[start:stop] = np.where(seen[start:stop] == 1.0, reward[start:stop] - others.mean(), np.nan)
        return {
            "any": seen,
            **{f"kind.{kind}": shares[at] for at, kind in enumerate(KINDS)},
            "paid_with": np.where(seen == 1.0, reward, np.nan),
            "paid_without": np.where(seen == 0.0, reward, np.nan),
            "gain": gain,
            "unread_share": unread,
        }
