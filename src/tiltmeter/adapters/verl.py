"""A veRL run, watched from its driver: rollouts as veRL itself decodes them, its metrics, and the in-reward KL.

Loud in `fit`, before the first step: what cannot work raises `AttachError` and says how to train without it. Silent
afterwards. Written against veRL 0.9.1; see `docs/other-trainers.md` for what of it was run and what only read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.adapters.levers import Lever, Levers, fixed, in_reward_kl
from tiltmeter.adapters.loop import Run, open_run
from tiltmeter.adapters.names import canonical
from tiltmeter.adapters.recorder import Recorder, recorder_of
from tiltmeter.adapters.verl_plugin import SWITCH
from tiltmeter.errors import AttachError
from tiltmeter.piles import SECONDS
from tiltmeter.unplaced import Boundary, numbers_of

#: Kept under veRL's own name.
KEPT = (
    *(
        "critic/score/",
        "critic/rewards/",
        "critic/advantages/",
        "critic/returns/",
        "critic/values/",
        "critic/vf_explained_var",
    ),
    *("training/off_policy/", "val-core/", "rollout_corr/", "response/aborted_ratio"),
)
NOWHERE = "tiltmeter: kept by the run, not written here"  # a path that veRL's dump is never allowed to reach
ELSEWHERE = "it lives in the workers' configuration, which the driver cannot change: restart with {}"

log = logging.getLogger("tiltmeter")


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What veRL logged, under the names that every trainer shares.

    >>> scalars({"actor/ppo_kl": 0.1, "actor/kl_loss": 0.2, "perf/mfu": 0.3, "critic/score/mean": 1})
    {'kl_old_new': 0.1, 'kl_ref': 0.2, 'reward': 1.0}
    """
    names = canonical(metrics)
    told = {names.get(key, key): value for key, value in metrics.items() if key in names or key.startswith(KEPT)}
    return numbers_of(told)


class Watched:
    """One veRL trainer that is watched: the methods of this object alone are wrapped, its class stays as it is.

    `provides` says what the run will have, `knobs` what may be changed. With `TILTMETER_VERL=capture` (or
    `rows: capture` in the configuration) rows come from captured reward functions in the workers, with their parts,
    and the driver writes where each step ends.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        given = trainer.config.trainer.get("tiltmeter", None)
        settings: dict[str, Any] = dict(given) if isinstance(given, Mapping) or hasattr(given, "items") else {}
        rows = settings.pop("rows", "capture" if os.environ.get(SWITCH) == "capture" else "dump")
        mode, limits = settings.pop("mode", "advise"), settings.pop("limits", None)
        where = settings.pop("directory", None) or Path(trainer.config.trainer.default_local_dir) / "tiltmeter"
        self._legacy = not hasattr(trainer, "_compute_metrics")
        self._check(rows)
        self.run: Run | None = None
        self.recorder: Recorder | None = None
        if rows == "capture":
            self.recorder = recorder_of(where, driver=True, seconds=SECONDS, rows=256, settings=settings)
            store, attempt = self.recorder.store, self.recorder.attempt
        else:
            done = int(vars(trainer).get("global_steps", 0))
            settings = {"resume_step": done + 1 if done else None, "steps": _planned(trainer), **settings}
            self.run = open_run(where, rank=0, ranks=1, **settings)
            assert self.run.store is not None  # `asked` has looked whether Tiltmeter is disabled
            store, attempt = self.run.store, self.run.attempt
        self.provides = frozenset(
            {"scalars"} | ({"group", "prompt", "completion", "reward", "facts"} if self.run else {"boundaries"})
        )
        self._levers = Levers(store, attempt, self._find_levers(), mode, limits)
        self._metrics: dict[str, float] = {}
        self._rows: dict[str, Any] | None = None
        self._padding: frozenset[str] = frozenset()
        self._begin: float | None = None
        self._end: float | None = None
        self._undo: Callable[[], None] = lambda: None
        self._wrap()

    @property
    def knobs(self) -> dict[str, Any]:
        return self._levers.knobs

    def close(self) -> None:
        """Called when `fit` returns or raises: veRL skips its own `on_train_end` at the last step."""
        self._undo()
        for part in (self.run, self.recorder):
            if part is not None:
                part.close()

    # -- before training --------------------------------------------------------------------------------------------

    def _check(self, rows: str) -> None:
        out = f"; unset {SWITCH} and trainer.tiltmeter to train without"
        needed = (
            "_dump_generations",
            "_log_rollout_data",
            *(() if self._legacy else ("on_train_begin", "on_step_end")),
        )
        if lacking := [name for name in needed if not hasattr(self.trainer, name)]:
            raise AttachError(f"this veRL's {type(self.trainer).__name__} has no {lacking[0]}: not one known here{out}")
        if rows not in ("dump", "capture"):
            raise AttachError(f"trainer.tiltmeter.rows={rows!r}: choose dump or capture{out}")
        if self._legacy and rows == "capture":
            raise AttachError(f"the older trainer does not say when a step's scoring ends: set rows=dump{out}")
        if self._legacy and not self.trainer.config.trainer.get("rollout_data_dir", None):
            raise AttachError(f"the older trainer shows rollouts only if trainer.rollout_data_dir is set: set it{out}")
        if rows == "capture" and self.trainer.trainer_mode != "sync":
            raise AttachError(
                f"trainer_mode={self.trainer.trainer_mode}: rows are scored while other steps train, and a captured "
                f"reward cannot know for which: set rows=dump{out}"
            )

    def _find_levers(self) -> list[Lever]:
        trainer, config = self.trainer, self.trainer.config
        found = [Lever("stop", self._stopping, self._stop, 0.0, 1.0)]
        if config.algorithm.use_kl_in_reward:
            found.append(in_reward_kl(trainer.kl_ctrl_in_reward))
        else:
            why = "there is no KL in the reward: restart with algorithm.use_kl_in_reward=True"
            found.append(fixed("beta", 0.0, why))
        actor = config.actor_rollout_ref.actor
        why = ELSEWHERE.format("actor_rollout_ref.actor.entropy_coeff")
        found.append(fixed("entropy_coef", float(actor.entropy_coeff), why))
        found.append(
            fixed("learning_rate", float(actor.optim.lr), ELSEWHERE.format("actor_rollout_ref.actor.optim.lr"))
        )
        why = "veRL goes back only by a restart: trainer.resume_mode=resume_path trainer.resume_from_path=..."
        found.append(fixed("rollback", 0.0, why))
        return found

    def _now(self) -> int:
        return int(vars(self.trainer).get("global_steps", 0))  # the older trainer has none before it trains

    def _stopping(self) -> float:
        return float(self.trainer.total_training_steps <= self._now() + 1)

    def _stop(self, value: float) -> None:
        if value >= 1.0:  # the next step is then the last, and is saved if trainer.save_freq > 0
            self.trainer.total_training_steps = min(self.trainer.total_training_steps, self._now() + 1)

    def _wrap(self) -> None:
        self._around("_dump_generations", self._dumped)
        if self._legacy:
            self._hear_tracking()
            return
        self._around("on_train_begin", self._began)
        self._around("on_step_end", self._ended)
        self._around("_compute_metrics", self._computed)

    def _around(self, name: str, mine: Callable[..., Any]) -> None:
        setattr(self.trainer, name, functools.wraps(getattr(self.trainer, name))(mine(getattr(self.trainer, name))))

    # -- during training: nothing below may raise by itself ----------------------------------------------------------

    def _began(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def on_train_begin(*args: Any, **kwargs: Any) -> Any:
            self._begin = time.time()  # what was validated before belongs to no step
            return original(*args, **kwargs)

        return on_train_begin

    def _ended(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def on_step_end(*args: Any, **kwargs: Any) -> Any:
            self._end = time.time()  # trained: what is scored from here on is a validation
            return original(*args, **kwargs)

        return on_step_end

    def _computed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compute_metrics(batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            result = original(batch, metrics, *args, **kwargs)
            self._guard(lambda: self._compute(batch, metrics))
            return result

        return compute_metrics

    def _compute(self, batch: Any, metrics: Mapping[str, Any]) -> None:
        self._metrics = scalars(metrics)
        step = int(self.trainer.global_steps)
        if self.recorder is not None:
            self.recorder.step(Boundary(step, self._end or time.time(), self._begin, None, self._metrics))
            self._begin = time.time()
            self._levers.poll(step)
            return
        pairs = zip(batch.keys, batch.tags, strict=True)
        self._padding = frozenset(key for key, tag in pairs if tag.get("is_padding", False))
        if not self.trainer.config.trainer.get("rollout_data_dir", None):
            self.trainer._log_rollout_data(batch, {}, NOWHERE)  # veRL's own decoding, into the hands below

    def _dumped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def dump_generations(*args: Any, **kwargs: Any) -> Any:
            self._guard(lambda: self._dump(signature.bind(*args, **kwargs).arguments))
            ours = any(isinstance(value, str) and value == NOWHERE for value in (*args, *kwargs.values()))
            return None if ours else original(*args, **kwargs)

        return dump_generations

    def _dump(self, given: Mapping[str, Any]) -> None:
        if given["dump_path"] not in (NOWHERE, self.trainer.config.trainer.get("rollout_data_dir", None)):
            return  # of a validation
        rows = _columns(given, self._padding)
        if self._legacy:
            self._rows = rows  # its metrics come later
        else:
            self._hand_over(int(self.trainer.global_steps), rows)

    def _hear_tracking(self) -> None:
        """The older trainer has no method around its metrics; what it logs at the end of a step is all of them."""
        tracking_class = importlib.import_module("verl.utils.tracking").Tracking
        original, trainer = tracking_class.log, self.trainer

        def logged(tracking: Any, data: Mapping[str, Any], step: int, *args: Any, **kwargs: Any) -> Any:
            result = original(tracking, data, step, *args, **kwargs)
            if self._rows is not None and step == trainer.global_steps:
                self._guard(lambda: self._hand_over_logged(int(step), data))
            return result

        tracking_class.log = functools.wraps(original)(logged)
        self._undo = lambda: setattr(tracking_class, "log", original)

    def _hand_over_logged(self, step: int, data: Mapping[str, Any]) -> None:
        rows, self._rows = self._rows, None
        self._metrics = scalars(data)
        self._hand_over(step, rows or {})

    def _hand_over(self, step: int, rows: dict[str, Any]) -> None:
        assert self.run is not None
        self.run.observe(step=step, scalars=self._metrics, **rows)
        self._levers.poll(step)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # the boundary: whatever we get wrong, training goes on
            why = f"the veRL adapter failed and training goes on: {type(error).__name__}: {str(error)[:200]}"
            if self.run is not None:
                self.run.refuse(error)
                self.run.tell(why)
            elif self.recorder is not None:
                self.recorder.tell(why)


def _columns(given: Mapping[str, Any], padding: frozenset[str]) -> dict[str, Any]:
    """The columns of `observe` from what veRL dumps. A group is a prompt: by its uid where there is one."""
    extra = {key: list(values) for key, values in given["reward_extra_infos_dict"].items()}
    uids = extra.pop("uid", None)
    rows = [row for row in range(len(given["outputs"])) if uids is None or uids[row] not in padding]
    parts = {
        key: [values[row] for row in rows]
        for key, values in extra.items()
        if len(values) == len(given["outputs"]) and all(isinstance(v, (bool, int, float, np.number)) for v in values)
    }
    prompts = [given["inputs"][row] for row in rows]
    return {
        "group": prompts if uids is None else [str(uids[row]).rsplit("_", 2)[0] for row in rows],
        "prompt": prompts,
        "completion": [given["outputs"][row] for row in rows],
        "reward": [given["scores"][row] for row in rows],
        "rewards": {key: values for key, values in parts.items() if key != "score"},
        "facts": [{"ground_truth": given["gts"][row]} for row in rows],
    }


def _planned(trainer: Any) -> int | None:
    """How many steps are planned, where the trainer knows it by now."""
    return int(trainer.total_training_steps) if hasattr(trainer, "total_training_steps") else None
