"""An OpenRLHF run, watched: rows from a captured reward function, steps and metrics from its trainer, and the KL.

OpenRLHF has no plug-ins and writes no rollouts. Its reward function runs in rollout workers, one sample at a time, and
is captured there; `install` in the start script makes the trainer say where steps end. Written against OpenRLHF 0.11.2;
see `docs/other-trainers.md` for what of it was run and what only read.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from tiltmeter.adapters.capture import capture
from tiltmeter.adapters.launch import place_of
from tiltmeter.adapters.levers import Lever, Levers, Limits, fixed, in_reward_kl
from tiltmeter.adapters.names import canonical
from tiltmeter.adapters.recorder import recorder_of
from tiltmeter.control import Knob, Mode
from tiltmeter.errors import AttachError
from tiltmeter.piles import SECONDS
from tiltmeter.unplaced import Boundary, numbers_of

PROVIDES = frozenset({"group", "prompt", "completion", "reward", "rewards", "facts", "scalars", "boundaries"})
WORKERS = "it is an argument of the workers, which the trainer does not change: restart with {}"

log = logging.getLogger("tiltmeter")


def install(
    directory: str | os.PathLike[str], *, mode: Mode = "advise", limits: Limits | None = None, **settings: Any
) -> None:
    """In the start script, before OpenRLHF's `train`: open the run and let the trainer say where its steps end.

    `mode`, `limits`: as for `tiltmeter.attach`. `settings`: those of `open_run`. Raises `AttachError` where it cannot
    work; `TILTMETER_DISABLED=1` makes it do nothing.
    """
    if capture.open(directory, **settings) is None:
        return
    trainer = importlib.import_module("openrlhf.trainer.ppo_trainer").PPOTrainer
    wrap(trainer, str(place_of(directory).absolute()), mode, limits)


def wrap(trainer: Any, place: str, mode: Mode = "advise", limits: Limits | None = None) -> None:
    """Wrap three methods of a trainer class. One that Ray has made an actor of is sent to its process by value, with
    what is wrapped here."""
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
            self._tiltmeter.step(global_step, logs_dict or {})
        else:  # a class made of this one, with a fit of its own
            log.warning("%s.fit is not the one that is watched: steps are not recorded", type(self).__name__)
        return save(self, global_step, logs_dict, *args, **kwargs)

    @functools.wraps(evaluate)
    def evaluating(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = evaluate(self, *args, **kwargs)
        if "_tiltmeter" in vars(self):
            self._tiltmeter.begin = time.time()  # what was scored since the last step was held out
        return result

    @functools.wraps(fit)
    def fitting(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._tiltmeter = Watched(self, place, mode, limits)
        try:
            return fit(self, *args, **kwargs)
        finally:
            self._tiltmeter.close()

    fitting.tiltmeter = place  # type: ignore[attr-defined]
    inner.save_logs_and_checkpoints, inner.evaluate, inner.fit = saving, evaluating, fitting


def scalars(logs: Mapping[str, Any], *, reference: bool) -> dict[str, float]:
    """What OpenRLHF logged, under the names that every trainer shares. Without a reference model its `kl` is 0 because
    nothing was measured, and that is no KL.

    >>> scalars({"kl": 0.0, "ppo_kl": 0.1, "generated_samples": ["a", 1.0], "acc": 0.5}, reference=False)
    {'kl_old_new': 0.1, 'acc': 0.5}
    """
    names = canonical(logs)
    told = {names.get(key, key): value for key, value in logs.items()}
    if not reference:
        told.pop("kl_ref", None)
    return numbers_of(told)


class Watched:
    """One OpenRLHF trainer that is watched, in the process it trains from. Nothing here raises once training runs.

    `provides` says what the run will have, `knobs` what may be changed.
    """

    provides = PROVIDES

    def __init__(self, trainer: Any, place: str, mode: Mode, limits: Limits | None) -> None:
        self.trainer = trainer
        self.begin: float | None = time.time()
        self.recorder = recorder_of(place, driver=True, seconds=SECONDS, rows=256, settings={"monitor": False})
        self._levers = Levers(self.recorder.store, self.recorder.attempt, self._find_levers(), mode, limits)

    @property
    def knobs(self) -> dict[str, Knob]:
        return self._levers.knobs

    def step(self, step: int, logs: Mapping[str, Any]) -> None:
        """A step was trained: say so, with its metrics, and do what was asked."""
        try:
            filtered = bool(self.trainer.args.algo.dynamic_filtering_enable)  # then more is scored than is trained on
            told = scalars(logs, reference=self._reference()) | {"beta": float(self.trainer.kl_ctl.value)}
            rows = None if filtered or "rollout/num_samples" not in logs else int(logs["rollout/num_samples"])
            self.recorder.step(Boundary(int(step), time.time(), self.begin, rows, told))
            self.begin = None
            self._levers.poll(int(step))
        except Exception as error:  # noqa: BLE001  # the boundary: whatever we get wrong, training goes on
            why = f"the OpenRLHF adapter failed and training goes on: {type(error).__name__}: {str(error)[:200]}"
            self.recorder.tell(why)

    def close(self) -> None:
        self.recorder.close()

    def _reference(self) -> bool:
        return self.trainer.reference_model_group is not None and self.trainer.args.algo.kl.init_coef > 0

    def _find_levers(self) -> list[Lever]:
        why = "" if self._reference() else "there is no reference model: restart with --algo.kl.init_coef above 0"
        args = self.trainer.args
        found = [
            in_reward_kl(self.trainer.kl_ctl, why),
            fixed("stop", 0.0, "OpenRLHF's loop asks nobody whether to go on: stop its job"),
            fixed("rollback", 0.0, "OpenRLHF goes back only by a restart: --ckpt.load_enable"),
        ]
        if args.actor.entropy_coef is not None:
            found.append(fixed("entropy_coef", float(args.actor.entropy_coef), WORKERS.format("--actor.entropy_coef")))
        return found
