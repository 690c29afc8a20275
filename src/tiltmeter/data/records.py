"""The records that all parts exchange: rollout batches, readings, alarms, findings, actions, faults. Frozen.

Two conventions hold everywhere. **NaN means not scored**: this row has no value. **`None` for a column means this
trainer does not supply it**. Neither is ever written as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]
Text = Sequence[str | None]

Tier = Literal["alarm", "warning"]
Direction = Literal["up", "down"]

#: Why a value is not a plain number; the position is the code in memory, the word is what files contain.
#: `missing`: the reward function answered None. `infra`: it failed for reasons that are not the policy's.
#: `capped` is the one flag of text columns: the stored text is the first and last part of a longer one.
#: `range`: gold outside [0, 1], which no detector may use.
FLAGS = ("ok", "missing", "nan", "+inf", "-inf", "overflow", "type", "infra", "capped", "range")

#: Columns with one number per completion, ragged columns, and text columns, in storage order.
NUMBER_COLUMNS = ("reward", "advantage", "gold", "gold_chance", "version_low", "version_high")
TOKEN_COLUMNS = ("tokens", "logprob", "ref_logprob", "engine_logprob", "entropy")  # one value for each own token
RAGGED_COLUMNS = ("step_reward", *TOKEN_COLUMNS, "own")
TEXT_COLUMNS = ("prompt", "completion", "facts", "turns", "artifacts")
LABEL_COLUMNS = ("agent", "env", "task", "stop")  # short texts, by which readings are divided
BOOL_COLUMNS = ("truncated", "trained")
ROW_COLUMNS = (*NUMBER_COLUMNS, "length", "trajectory", *BOOL_COLUMNS, *LABEL_COLUMNS, *TEXT_COLUMNS, *RAGGED_COLUMNS)
COLUMNS = ("group", "rewards", *ROW_COLUMNS)


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of different lengths in two flat arrays: row i is `values[offsets[i]:offsets[i + 1]]`.

    >>> tokens = Ragged.of([[5, 7], [], [9]], np.int32)
    >>> len(tokens), tokens.lengths.tolist(), tokens[0].tolist()
    (3, [2, 0, 1], [5, 7])
    """

    values: NDArray[np.generic]
    offsets: Ints

    def __post_init__(self) -> None:
        ends = self.offsets
        if len(ends) == 0 or ends[0] != 0 or ends[-1] != len(self.values) or np.any(np.diff(ends) < 0):
            raise ValueError("offsets must rise from 0 to the number of values")

    @classmethod
    def of(cls, rows: Sequence[Sequence[object] | NDArray[np.generic]], dtype: type[np.generic]) -> Ragged:
        parts = [np.asarray(row, dtype=dtype).reshape(-1) for row in rows]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.concatenate(parts) if parts else np.empty(0, dtype), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.generic]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.offsets.nbytes)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def sums(self, values: NDArray[np.generic] | None = None) -> Floats:
        """Sum per row in float64 (0 for an empty row); `values` replaces this column's own, same offsets."""
        flat = np.asarray(self.values if values is None else values, np.float64)
        total = np.zeros(len(self), np.float64)
        filled = self.lengths > 0
        if filled.any():
            total[filled] = np.add.reduceat(flat, self.offsets[:-1][filled])
        return total


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """The completions of one optimiser step, one row each, rows of a prompt group adjacent. Nothing mutates it.

    Everything but `attempt`, `step` and `group` may be absent (`None`). Build one from whatever a loop has at hand
    with `tiltmeter.data.batches.from_columns`, which also sorts rows by group and flags values that are not numbers.

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, ["a", "b", "a"], reward=[1.0, 0.5, 0.0])
    >>> len(batch), batch.reward.tolist(), batch.gold is None
    (3, [1.0, 0.0, 0.5], True)
    """

    attempt: int
    step: int
    group: Ints
    reward: Floats | None = None  # what the trainer optimises, after shaping and weights: the proxy
    rewards: Mapping[str, Floats] = field(default_factory=dict)  # by reward function
    step_reward: Ragged | None = None  # process rewards
    advantage: Floats | None = None
    gold: Floats | None = None  # in [0, 1]
    gold_chance: Floats | None = None  # probability that this row was asked for gold; NaN = not asked
    length: Ints | None = None  # tokens
    truncated: NDArray[np.bool_] | None = None  # cut at the length limit
    prompt: Text | None = None
    completion: Text | None = None
    facts: Text | None = None  # what else the dataset says about the row: a JSON object, as {"answer": "12"}
    tokens: Ragged | None = None
    logprob: Ragged | None = None  # policy that is trained, nats
    ref_logprob: Ragged | None = None  # reference policy, nats
    engine_logprob: Ragged | None = None  # inference engine that sampled, nats
    entropy: Ragged | None = None  # of the policy's next-token distribution, nats
    trajectory: Ints | None = None  # one of its own for each row: rows of one trajectory are merged into one
    agent: Text | None = None  # which of several policies or roles
    env: Text | None = None  # environment
    task: Text | None = None
    stop: Text | None = None  # why it ended: one of `tiltmeter.data.stops.STOPS`
    version_low: Floats | None = None  # oldest policy that wrote a part of it
    version_high: Floats | None = None  # newest
    trained: NDArray[np.bool_] | None = None  # False: dropped before the update, as too old for instance
    artifacts: Text | None = None  # JSON: files changed, hashes, exit codes
    turns: Text | None = None  # the conversation, see `tiltmeter.data.turns`; `completion` is what the policy wrote
    own: Ragged | None = None  # of all tokens after the prompt, 1: the policy's. Other columns have those alone
    scalars: Mapping[str, float] = field(default_factory=dict)  # loss, learning rate, ...: one number per step
    flags: Mapping[str, Flags] = field(default_factory=dict)  # by column; an absent key means every row is ok
    fingerprint: str = ""  # of the reward functions and their weights; a change opens a segment

    def __len__(self) -> int:
        return len(self.group)

    def column(self, name: str) -> object | None:
        """A column by name; `rewards` and `scalars` without an entry count as absent."""
        value: object = getattr(self, name)
        return None if name in ("rewards", "scalars") and not value else value

    @cached_property  # a hundred readings of one batch use them
    def starts(self) -> Ints:
        """Row at which each prompt group begins, then the number of rows: group k is rows starts[k]:starts[k + 1]."""
        group = self.group
        cuts = np.flatnonzero(np.diff(group)) + 1
        starts = np.concatenate(([0], cuts, [len(group)])).astype(np.int64) if len(group) else np.zeros(1, np.int64)
        starts.flags.writeable = False
        return starts


SHARED_STEP = "step"  # in `Reading.against` of bets: something may move all bets of the step together
CORRECTED = "people"  # in `Reading.against` of bets: a judge's guess that people correct, one bet a step


@dataclass(frozen=True, slots=True)
class Reading:
    """One instrument's value at one step. A value that is not finite is no reading at all."""

    attempt: int
    step: int
    name: str
    value: float
    n: int  # values behind the mean
    stderr: float | None = None  # None: too few groups to tell
    values: tuple[float, ...] = ()  # the audited u of a bet, in logged order; else empty
    against: str = ""  # compared with "reference", or "start", its own first steps; or `SHARED_STEP`, `CORRECTED`
    keys: tuple[int, ...] = ()  # the prompt that each of `values` is about, as a number; else empty
    slices: tuple[tuple[str, int], ...] = ()  # whose the values are, in order: slice and how many; else empty


@dataclass(frozen=True, slots=True)
class Alarm:
    """A detector's claim that something changed. Tier "alarm": about gold, with a proved bound for the whole run.
    Tier "warning": about anything else; it often has a harmless cause and is never called an alarm."""

    attempt: int
    name: str  # of the reading
    detector: str
    tier: Tier
    direction: Direction
    step: int  # raised
    data_step: int  # of the data that raised it
    onset: int  # estimated
    onset_low: int
    onset_high: int
    evidence: float
    threshold: float
    resolved: int | None = None
    summary: str = ""

    def __post_init__(self) -> None:
        if not self.onset <= self.data_step <= self.step:
            raise ValueError("an alarm needs onset <= data_step <= step")

    @property
    def recovery_step(self) -> int | None:
        """The step at which an alarm ended because gold was back, if no operator called it false; None: it is open, or
        the run went back to its onset or before."""
        went_back = self.resolved is not None and self.resolved <= self.onset
        return None if self.tier != "alarm" or went_back else self.resolved


@dataclass(frozen=True, slots=True)
class Finding:
    """A named failure with its evidence, likely cause and fix. `"unknown"` is a legal failure."""

    attempt: int
    step: int
    failure: str
    confidence: float
    alarms: tuple[str, ...]
    readings: tuple[str, ...]
    exemplars: tuple[tuple[int, int, int], ...] = ()  # (attempt, step, row)
    cause: str = ""
    fix: str = ""
    summary: str = ""

    def __post_init__(self) -> None:
        if not self.alarms and not self.readings:
            raise ValueError("a finding names at least one alarm or reading")


@dataclass(frozen=True, slots=True)
class Action:
    """A change to the run that was proposed or made. Values are absolute, so that applying it twice changes nothing."""

    id: str
    attempt: int
    step: int
    finding: str
    knob: str
    before: float
    after: float
    reason: str
    state: Literal["proposed", "approved", "rejected", "expired", "applied", "refused", "reverted"] = "proposed"


@dataclass(frozen=True, slots=True)
class Fault:
    """One of *our* parts failed; training went on. `off`: after three in a row the part stays off and is shown off."""

    attempt: int
    step: int
    part: str
    error: str
    off: bool = False
