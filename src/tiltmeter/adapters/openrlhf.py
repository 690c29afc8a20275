"""Watches an OpenRLHF run: rows from a captured reward function; steps, metrics and KL coefficient from its trainer.

OpenRLHF has no plug-ins and writes no rollouts. Its reward function runs in rollout workers, one sample at a time, and
is captured there; `install` in the start script makes the trainer report its steps. Written against OpenRLHF 0.11.2;
see `docs/other-trainers.md` for what was run and what was only read in its source.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from tiltmeter.adapters.arguments import Act, read_act
from tiltmeter.adapters.capture.capture import capture
from tiltmeter.adapters.capture.recorder import open_recorder
from tiltmeter.adapters.knobs import KnobControl, LiveKnob, fixed_knob, reward_kl_knob
from tiltmeter.adapters.launch import run_path
from tiltmeter.adapters.metric_names import canonical_names, first_metrics
from tiltmeter.errors import AttachError, Boundary, describe_error
from tiltmeter.rundir.requests import Knob
from tiltmeter.rundir.staging.pending_rows import FLUSH_SECONDS
from tiltmeter.rundir.staging.staged_rows import StepBoundary, finite_numbers

PROVIDES = frozenset({"group", "prompt", "completion", "reward", "rewards", "facts", "scalars", "boundaries"})
WORKER_SETTING = "it is an argument of the workers, which the trainer does not change: restart with {}"

log = logging.getLogger("tiltmeter")


def install(
    directory: str | os.PathLike[str], *, act: Act | Mapping[str, Any] | str | None = None, **settings: Any
) -> None:
    """In the start script, before OpenRLHF's `train`: open the run and make the trainer report where its steps end.

    Args:
        directory: Where the run is kept.
        act: What may be changed, as for `tiltmeter.attach`: its `mode` and `limits`.
        settings: What `open_run` takes: `gold`, `options`, ...

    Raises `AttachError` where it cannot work; `TILTMETER_DISABLED=1` makes it do nothing.
    """
    allowed = read_act(act)
    if capture.open(directory, **settings) is None:
        return
    trainer = importlib.import_module("openrlhf.trainer.ppo_trainer").PPOTrainer
    wrap(trainer, str(run_path(directory)), allowed)


def wrap(trainer: Any, place: str, act: Act | str | None = None) -> None:
    """Wrap three methods of a trainer class. A Ray actor class is sent to its process by value, wrappers included."""
    inner = trainer.__ray_metadata__.modified_class if hasattr(trainer, "__ray_metadata__") else trainer
    if lacking := [name for name in ("save_logs_and_checkpoints", "evaluate", "fit") if not hasattr(inner, name)]:
        raise AttachError(
            f"this OpenRLHF's {inner.__name__} has no {lacking[0]}: not one known here; leave install() out, and give "
            "tiltmeter.capture(reward_func, directory, batch_size=...) the number of samples per step"
        )
    if hasattr(inner.fit, "tiltmeter"):
        if inner.fit.tiltmeter != place:
            raise AttachError(
                f"OpenRLHF is watched in {inner.fit.tiltmeter} already: install() once, with one directory"
            )
        return
    save, evaluate, fit = inner.save_logs_and_checkpoints, inner.evaluate, inner.fit

    @functools.wraps(save)
    def saving(self: Any, global_step: int, logs_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        if "_tiltmeter" in vars(self):
            self._tiltmeter.step(global_step, logs_dict)
        else:  # a subclass with its own fit
            log.warning("%s.fit is not the one that is watched: steps are not recorded", type(self).__name__)
        return save(self, global_step, logs_dict, *args, **kwargs)

    @functools.wraps(evaluate)
    def evaluating(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = evaluate(self, *args, **kwargs)
        if "_tiltmeter" in vars(self):
            self._tiltmeter.begin = time.time()  # what was scored since the last step was an evaluation
        return result

    @functools.wraps(fit)
    def fitting(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._tiltmeter = OpenRLHFObserver(self, place, read_act(act))
        try:
            return fit(self, *args, **kwargs)
        finally:
            self._tiltmeter.close()

    fitting.tiltmeter = place  # type: ignore[attr-defined]
    inner.save_logs_and_checkpoints, inner.evaluate, inner.fit = saving, evaluating, fitting


def scalars(logs: Mapping[str, Any], *, reference: bool) -> dict[str, float]:
    """OpenRLHF's logged metrics under canonical names. Without a reference model its `kl` is 0 because nothing was
    measured, so it is left out.

    >>> scalars({"kl": 0.0, "ppo_kl": 0.1, "generated_samples": ["a", 1.0], "acc": 0.5}, reference=False)
    {'kl_old_new': 0.1, 'acc': 0.5}
    """
    logs = first_metrics(logs)
    names = canonical_names(logs)
    metrics = {names.get(key, key): value for key, value in logs.items()}
    if not reference:
        metrics.pop("kl_ref", None)
    return finite_numbers(metrics)


class OpenRLHFObserver:
    """Observes one OpenRLHF trainer, in its driver process. Nothing here raises once training runs.

    `provides`: the columns that the run will have. `knobs`: the numbers that may be changed.
    """

    provides = PROVIDES

    def __init__(self, trainer: Any, place: str, act: Act) -> None:
        self.trainer = trainer
        self.begin: float | None = time.time()
        self.recorder = open_recorder(place, driver=True, seconds=FLUSH_SECONDS, rows=256, settings={"monitor": False})
        self._knob_control = KnobControl(
            self.recorder.store, self.recorder.attempt, self._live_knobs(), act.mode, act.limits
        )

    @property
    def knobs(self) -> dict[str, Knob]:
        return self._knob_control.knobs

    def step(self, step: int, logs_or_none: Mapping[str, Any] | None) -> None:
        """Record the end of a step with its metrics, and apply pending requests."""
        with Boundary(self._report_failure):
            logs = logs_or_none or {}
            filtered = bool(self.trainer.args.algo.dynamic_filtering_enable)  # then not all scored rows are trained on
            metrics = scalars(logs, reference=self._has_reference()) | {"beta": float(self.trainer.kl_ctl.value)}
            rows = None if filtered or "rollout/num_samples" not in logs else int(logs["rollout/num_samples"])
            self.recorder.step(StepBoundary(int(step), time.time(), self.begin, rows, metrics))
            self.begin = None
            self._knob_control.poll(int(step))

    def _report_failure(self, error: BaseException) -> None:
        self.recorder.record_problem(f"the OpenRLHF adapter failed and training goes on: {describe_error(error)}")

    def close(self) -> None:
        self.recorder.close()

    def _has_reference(self) -> bool:
        return self.trainer.reference_model_group is not None and self.trainer.args.algo.kl.init_coef > 0

    def _live_knobs(self) -> list[LiveKnob]:
        why = "" if self._has_reference() else "there is no reference model: restart with --algo.kl.init_coef above 0"
        args = self.trainer.args
        knobs = [
            reward_kl_knob(self.trainer.kl_ctl, why),
            fixed_knob("stop", 0.0, "OpenRLHF's loop asks nobody whether to go on: stop its job"),
            fixed_knob("rollback", 0.0, "OpenRLHF goes back only by a restart: --ckpt.load_enable"),
        ]
        if args.actor.entropy_coef is not None:
            knobs.append(
                fixed_knob(
                    "entropy_coef", float(args.actor.entropy_coef), WORKER_SETTING.format("--actor.entropy_coef")
                )
            )
        return knobs
