"""How many turns and calls a trajectory has, and how many of the calls fail or were made before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.data.turns import TOOL, Turn, batch_turns


class ToolCalls:
    """Per trajectory: turns that the policy wrote (`turns`), its calls of tools (`calls`), and of those the share that
    failed (`failed_share`) and the share that repeats an earlier call of the trajectory word for word
    (`repeated_share`).

    A policy that calls the same tool with the same arguments again and again has values a way to be busy. More failing
    calls: the tool or its container is broken, or the policy has forgotten how to call it. Innocent: a harder task
    needs more turns, and a call may have to be tried again.

    Formula: counts over the turns of row i; failed = answers with an error / calls, repeated = 1 - distinct / calls
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> from tiltmeter.data.turns import Turn
    >>> ls = Turn("assistant", call="ls", arguments="{}")
    >>> batch = from_columns(0, [0], turns=[[ls, Turn("tool", error="no such tool"), ls, Turn("tool", "a b")]])
    >>> {name: values.tolist() for name, values in ToolCalls().measure(batch, None).items()}
    {'turns': [2.0], 'calls': [2.0], 'failed_share': [0.5], 'repeated_share': [0.5]}
    """

    name = "tools"
    grain = "rollout"
    needs = ("turns",)
    bounds = (0.0, None)
    local = True
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        values = np.full((4, len(batch)), np.nan)
        for row, turns in enumerate(batch_turns(batch)):
            if turns is None:
                continue
            written = [turn for turn in turns if turn.written]
            calls = [(turn.call, turn.arguments) for turn in written if turn.call]
            values[:2, row] = len(written) - sum(_is_further_call(turn, turns) for turn in written), len(calls)
            if calls:
                failed = sum(turn.role == TOOL and turn.error is not None for turn in turns)
                values[2, row] = min(failed / len(calls), 1.0)
                values[3, row] = 1.0 - len(set(calls)) / len(calls)
        return dict(zip(("turns", "calls", "failed_share", "repeated_share"), values, strict=True))


def _is_further_call(turn: Turn, turns: Sequence[Turn]) -> bool:
    """Whether it is a call of the same message as the turn that it follows."""
    if turn.parent is None or not turn.call or turn.text or turn.reasoning or turn.parent >= len(turns):
        return False
    return turns[turn.parent].written
