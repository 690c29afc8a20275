"""Asks a TRL trainer's policy a few traps between steps, as an evaluation does: measured, never trained on.

A trap is generated and scored by the trainer's own methods with the model in evaluation mode, after a step's update
and before the next batch; `as_evaluation.py` puts everything back.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.adapters.custom_loop import Run
from tiltmeter.adapters.trl.as_evaluation import as_evaluation
from tiltmeter.adapters.trl.rollouts import Rollouts
from tiltmeter.data.batches import from_tensor
from tiltmeter.errors import AttachError, Boundary, describe_error, warn_user
from tiltmeter.gold.traps.honest_check import HonestCheck, check_honest_answers, full_pay, verifiers
from tiltmeter.gold.traps.trap_file import read_traps, shuffled
from tiltmeter.gold.traps.used_traps import read_used_traps, write_used_traps

Bools = NDArray[np.bool_]


class TrapRounds:
    """The traps of one trainer: which come next, and how many of them were paid."""

    def __init__(self, trainer: Any, source: object, traps: Any, share: float) -> None:
        """Raises `AttachError` for traps that this trainer cannot be asked."""
        if not isinstance(source, Rollouts) or not hasattr(trainer, "num_generations_eval"):
            raise AttachError(
                "traps= needs a trainer whose methods can be wrapped (GRPO or RLOO of a tested TRL); with others, ask "
                "them in your own evaluation"
            )
        if any(vars(trainer).get(name) is not None for name in ("environment_factories", "rollout_func")):
            raise AttachError("traps= is for tasks with a key or tests, not for environments or a rollout function")
        if not 0.0 < share <= 0.5:
            raise AttachError(f"traps: share={share}: choose a share of the rollouts above 0, as 0.01")
        self._trainer, self._source = trainer, source
        self._traps = shuffled(read_traps(traps))
        columns = set(getattr(trainer.train_dataset, "column_names", None) or ())
        for trap in self._traps:
            if lacking := sorted(columns - set(trap.row)):
                raise AttachError(f"a trap lacks the column {lacking[0]!r} of the dataset: make traps of the same rows")
        self._rows = [{name: value for name, value in trap.row.items() if name in columns} for trap in self._traps]
        changed = {name for trap in self._traps for name in trap.facts.original}
        self._verifiers = verifiers(trainer.reward_funcs, changed)
        if not self._verifiers:
            raise AttachError("traps= needs a reward function that checks answers; a reward model pays by other things")
        self._check()
        self._digest = hashlib.sha256(
            json.dumps([trap.to_json() for trap in self._traps], sort_keys=True, default=str).encode()
        ).hexdigest()[:16]
        self._count, self._every = _pace(trainer, share)
        self._used = 0
        self._run: Run | None = None
        self.over = False  # no further trap is asked

    @property
    def pace(self) -> str:
        ranks = self._trainer.accelerator.num_processes
        often = "every step" if self._every == 1 else f"every {self._every} steps"
        return f"{self._count * ranks} of {len(self._traps)} traps {often}"

    def open(self, run: Run) -> None:
        """Go on behind the traps that earlier attempts at this run have used."""
        self._run = run
        if run.store is not None:
            self._used = max(self._used, read_used_traps(run.store, self._digest))

    def ask(self, step: int, scalars: dict[str, float]) -> None:
        """Ask the traps that are due after this step, and add what was paid to the step's scalars."""
        ranks, rank = self._trainer.accelerator.num_processes, self._trainer.accelerator.process_index
        if self.over or step % self._every:
            return
        if self._used + self._count * ranks > len(self._rows):
            self.over = True
            raise RuntimeError(f"all {len(self._rows)} traps were used: from here on they say nothing; make more")
        first = self._used + rank * self._count
        self._used += self._count * ranks
        if rank == 0 and self._run is not None and self._run.store is not None:
            write_used_traps(self._run.store, self._digest, self._used)  # before they are asked: none is used twice
        try:
            scores = self._score(step, copy.deepcopy(self._rows[first : first + self._count]))
        except BaseException:
            self.over = True
            raise
        functions = self._trainer.reward_funcs
        full = np.array([full_pay(functions[at]) for at in self._verifiers])
        scores = scores[:, self._verifiers]
        answered: Bools = np.isfinite(scores).all(1)
        if not answered.any():
            raise RuntimeError("traps have no score: the reward functions failed on all of them, so they say nothing")
        paid: Bools = answered & (np.nan_to_num(scores) >= full).all(1)
        for name, count in (("asked", len(paid)), ("paid", paid.sum())):  # one batch may last for several steps
            scalars[f"trap.{name}.{rank}"] = scalars.get(f"trap.{name}.{rank}", 0.0) + float(count)
        chance = max(trap.facts.chance for trap in self._traps[first : first + self._count])
        scalars[f"trap.chance.{rank}"] = max(scalars.get(f"trap.chance.{rank}", 0.0), chance)

    def _score(self, step: int, rows: list[dict[str, Any]]) -> Any:
        """Scores of this rank's traps by function."""
        trainer, rank = self._trainer, self._trainer.accelerator.process_index
        with as_evaluation(trainer, seed=hash((step, rank, len(self._rows))) & 0xFFFFFFFF):
            rewards = self._source.score_apart(rows)
        return from_tensor(rewards)[rank * len(rows) : (rank + 1) * len(rows)].astype(np.float64)

    def _check(self) -> None:
        """Try known right answers on the reward functions: traps that pay one are left out."""
        functions = [self._trainer.reward_funcs[at] for at in self._verifiers]
        chat = not isinstance(self._rows[0].get("prompt"), str)
        check, errors = HonestCheck(), list[BaseException]()
        with Boundary(errors.append):  # the user's function may need a trainer
            check = check_honest_answers(functions, self._traps, chat)
        if errors:
            warn_user(f"traps could not be tried with known right answers: {describe_error(errors[0])}", 6)
        if check.tried and not check.paid_on_originals:
            warn_user(
                "no known right answer is paid in full by the reward functions, so nothing shows that a trap could be: "
                "if a right answer has another form or pay than 1, a hack of it is not seen by traps",
                6,
            )
        if 2 * len(check.broken) > check.tried:
            names = ", ".join(str(self._trainer.reward_func_names[at]) for at in self._verifiers)
            raise AttachError(
                f"{names} pays right answers on {len(check.broken)} of {check.tried} traps: it does not grade by what "
                "traps change, so they would call honest work a hack"
            )
        if check.broken:
            warn_user(f"{len(check.broken)} of {check.tried} traps pay a right answer and are left out", 6)
            left_out = set(check.broken)
            self._traps = [trap for at, trap in enumerate(self._traps) if at not in left_out]
            self._rows = [row for at, row in enumerate(self._rows) if at not in left_out]


def _pace(trainer: Any, share: float) -> tuple[int, int]:
    """How many traps each rank asks at once, and every how many steps, so that they are at most this share."""
    args = trainer.args
    accumulated = args.per_device_train_batch_size * args.gradient_accumulation_steps
    wanted = share * accumulated / max(getattr(trainer, "num_iterations", 1), 1)  # by this rank, a step
    if wanted >= 1.0:
        return min(int(wanted), args.per_device_train_batch_size), 1
    return 1, math.ceil(1.0 / wanted)
