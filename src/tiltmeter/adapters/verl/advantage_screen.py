"""Leaves flagged rollouts of a veRL run out of the update, where veRL compares each with its group.

The trainer's own method computes advantages; while it does, rollouts that leave have a group of their own, so that the
mean and spread of the others are veRL's of the others. Afterwards theirs are 0. Off, nothing is called or changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.acts import all_acts
from tiltmeter.adapters.lost_share import ACTS, LostShare
from tiltmeter.data.batches import from_columns, from_tensor
from tiltmeter.data.turns import turns_of_tokens
from tiltmeter.errors import AttachError, Boundary
from tiltmeter.safety.loading import load_function
from tiltmeter.stats.screened_rows import screened_rows

MODULE, FUNCTION = "verl.trainer.ppo.v1.trainer_base", "compute_advantage_for_multi_trajectories"
Bools = NDArray[np.bool_]
Flag = Callable[..., Sequence[Any]]


class AdvantageScreen:
    """Screens one trainer. `flag`: `acts`, or `checks.py:flagged`, a function of prompts and completions; `failed` is
    told what went wrong, and a batch that could not be looked at is trained on as it is."""

    def __init__(self, trainer: Any, flag: str, most_lost: float, *, on: bool, failed: Callable[[Any], object]) -> None:
        """Raises `AttachError` for what this trainer cannot do."""
        module = importlib.import_module(MODULE)
        estimator = str(getattr(trainer.config.algorithm.get("adv_estimator", ""), "value", "")) or str(
            trainer.config.algorithm.get("adv_estimator", "")
        )
        if estimator != "grpo" or not hasattr(trainer, "_compute_advantage") or not hasattr(module, FUNCTION):
            raise AttachError(
                f"trainer.tiltmeter.screen leaves rollouts out of a group: it needs algorithm.adv_estimator=grpo and "
                f"veRL's trainer since 0.9, not {estimator or 'none'} of {type(trainer).__name__}"
            )
        self._share = LostShare(most_lost)
        self.trainer, self._failed, self._module = trainer, failed, module
        self._flag: Flag | None = None if flag == ACTS else load_function(flag)
        self.value, self.why = float(on), ""
        self.ended: str = ""  # why it has just ended itself, until that was passed on
        self.lost: frozenset[str] = frozenset()  # sessions of the last batch
        self.counts: dict[str, float] = {}
        self._compute = trainer._compute_advantage
        trainer._compute_advantage = self._screened

    def release(self) -> None:
        vars(self.trainer).pop("_compute_advantage", None)

    def set(self, value: float) -> None:
        if not self.why:
            self.value = float(value >= 0.5)
            self._share.clear()

    def _screened(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self.lost, self.counts = frozenset(), {}
        flags: list[Bools] = []
        if self.value:
            with Boundary(self._failed, user_code=True):
                flags.append(self._flags(batch))
        if not flags or not flags[0].any():
            return self._compute(batch, *args, **kwargs)
        inner = getattr(self._module, FUNCTION)

        def compute(data: Any, batch_keys: Sequence[str], *rest: Any, **named: Any) -> Any:
            return self._without_lost(data, list(batch_keys), flags[0], lambda: inner(data, batch_keys, *rest, **named))

        setattr(self._module, FUNCTION, compute)  # one driver, one thread: nobody else computes advantages here
        try:
            return self._compute(batch, *args, **kwargs)
        finally:
            setattr(self._module, FUNCTION, inner)

    def _flags(self, batch: Any) -> Bools:
        """Whether each row of the batch is flagged, from its text; a row that only pads is not."""
        queue = importlib.import_module("transfer_queue")
        names = ["prompts", "responses", "response_mask"]
        data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        fields = {name: [from_tensor(row).tolist() for row in data[name].unbind()] for name in names}

        def decode(tokens: Sequence[int]) -> str:
            return str(self.trainer.tokenizer.decode(tokens, skip_special_tokens=True))

        prompts, texts = ([decode(row) for row in fields[name]] for name in ("prompts", "responses"))
        if self._flag is None:
            rows = zip(fields["responses"], fields["response_mask"], strict=True)
            turns = [turns_of_tokens(tokens, own, decode) for tokens, own in rows]
            acts = all_acts(from_columns(0, list(range(len(texts))), prompt=prompts, completion=texts, turns=turns))
            answers: Sequence[Any] = [bool(one) for one in acts]
        else:
            answers = self._flag(prompts=prompts, completions=texts)
        if len(answers) != len(texts):
            raise ValueError(f"screen answered {len(answers)} values for {len(texts)} rollouts")
        pads = [isinstance(tag, Mapping) and bool(tag.get("is_padding")) for tag in batch.tags]
        return np.array([bool(answer) and not pad for answer, pad in zip(answers, pads, strict=True)], bool)

    def _without_lost(self, data: Any, keys: list[str], flags: Bools, compute: Callable[[], Any]) -> Any:
        """veRL's advantages, with those of rollouts that leave as 0. A rollout may have several rows: one session."""
        uids = data.non_tensor_batch["uid"]
        sessions = [key.rsplit("_", 1)[0] for key in keys]
        last: dict[str, int] = {}  # row by session, of the output that is paid
        for row, key in enumerate(keys):
            if sessions[row] not in last or int(keys[last[sessions[row]]].rsplit("_", 1)[1]) < int(
                key.rsplit("_", 1)[1]
            ):
                last[sessions[row]] = row
        flagged = {session for session, flag in zip(sessions, flags, strict=True) if flag}
        finals = list(last.values())
        pay = np.asarray(from_tensor(data.batch["token_level_rewards"].sum(-1)), np.float64)[finals]
        _, groups = np.unique([str(uids[row]) for row in finals], return_inverse=True)
        leaves = screened_rows(pay, np.array([session in flagged for session in last], bool), groups)
        if self._ends_itself(int(leaves.sum()), len(leaves)):
            return compute()
        stay = np.bincount(groups, ~leaves, minlength=groups.max() + 1)
        left = np.bincount(groups, leaves, minlength=groups.max() + 1)
        alone = (stay[groups] == 1) & (left[groups] > 0) & ~leaves  # veRL compares a group of one with 0
        lost = {session for session, leaves_now in zip(last, leaves, strict=True) if leaves_now}
        silent = lost | {session for session, is_alone in zip(last, alone, strict=True) if is_alone}
        own = [f"{uid} {session}" if session in lost else uid for uid, session in zip(uids, sessions, strict=True)]
        data.non_tensor_batch["uid"] = np.array(own, object)
        data = compute()
        data.non_tensor_batch["uid"] = uids
        rows = [row for row, session in enumerate(sessions) if session in silent]
        for name in ("advantages", "returns"):
            changed = data.batch[name].clone()
            changed[rows] = 0.0
            data.batch[name] = changed
        self.lost = frozenset(lost)
        self.counts = {"screen.lost": float(len(lost)), "screen.flagged": float(len(flagged))}
        return data

    def _ends_itself(self, lost: int, rows: int) -> bool:
        if not (why := self._share.why_too_much(lost, rows)):
            return False
        self.value, self.why, self.ended = 0.0, why, why
        return True
