"""The knobs of a running TRL trainer: which can be changed, how, and why some cannot. Every change is read back."""

from __future__ import annotations

import math
from typing import Any

from tiltmeter.adapters.arguments import Limits
from tiltmeter.adapters.trl.rollout_screen import RolloutScreen
from tiltmeter.adapters.trl.rollouts import distinct_names
from tiltmeter.errors import AttachError
from tiltmeter.rundir.requests import Knob

BETA_FLOOR = 1e-6  # never 0: a buffered batch without reference log-probabilities ends training with a KeyError
FROM_ZERO = (
    "it started at 0, so TRL loaded no reference model and a change would crash training; start with beta=1e-6, which "
    "keeps the reference and costs nothing"
)


class Knobs:
    """The knobs of one trainer. Floors and ceilings are fixed at attach."""

    def __init__(
        self,
        trainer: Any,
        limits: Limits | None = None,
        gold_share: float | None = None,
        screen: RolloutScreen | None = None,
    ) -> None:
        self.trainer, self.gold_share, self.screen = trainer, gold_share, screen
        self._limits = dict(limits or {})  # floor and ceiling of each knob, fixed at the first read
        knobs = self.read()
        if unknown := sorted(set(limits or {}) - set(knobs)):
            raise AttachError(f"limits= names {unknown}; this trainer has {sorted(knobs)}")

    def read(self) -> dict[str, Knob]:
        """Every knob with its value as it is now."""
        trainer = self.trainer
        knobs: dict[str, Knob] = {}
        if "beta" in vars(trainer):
            fixed = (
                FROM_ZERO if trainer.beta == 0.0 and trainer.ref_model is None and not _has_reference(trainer) else ""
            )
            knobs["beta"] = self._knob("beta", float(trainer.beta), BETA_FLOOR, max(1.0, trainer.beta), fixed)
        if "entropy_coef" in vars(trainer):
            fixed = "TRL's own adaptive entropy control is on" if trainer.use_adaptive_entropy else ""
            knobs["entropy_coef"] = self._knob("entropy_coef", float(trainer.entropy_coef), 0.0, 0.05, fixed)
        now, fixed = float(trainer.args.learning_rate), ""
        if trainer.optimizer is not None and trainer.lr_scheduler is not None:
            if hasattr(_scheduler(trainer), "base_lrs"):
                now = float(_scheduler(trainer).base_lrs[0])
            else:
                fixed = (
                    f"{type(_scheduler(trainer)).__name__} does not say what it multiplies: restart with another rate"
                )
        knobs["learning_rate"] = self._knob("learning_rate", now, now / 100.0, now, fixed)
        if "reward_weights" in vars(trainer):
            for name, weight in zip(
                distinct_names(trainer.reward_func_names), trainer.reward_weights.tolist(), strict=True
            ):
                knob = f"reward_weight.{name}"
                knobs[knob] = self._knob(knob, weight, min(0.0, weight), max(1.0, weight), "")
        if self.gold_share is not None:  # belongs to the monitor; the trainer only passes it on
            knobs["gold_share"] = self._knob(
                "gold_share", self.gold_share, self.gold_share, max(0.2, self.gold_share), ""
            )
        for name, knob_of_rollouts in (self.screen.knobs() if self.screen is not None else {}).items():
            one = knob_of_rollouts
            knobs[name] = self._knob(name, one.value, one.floor, one.ceiling, one.why)
        knobs["stop"] = Knob("stop", 0.0, 0.0, 1.0, "")
        knobs["rollback"] = Knob("rollback", 0.0, 0.0, math.inf, "")
        return knobs

    def set(self, name: str, value: float) -> tuple[float, float]:
        """Change a knob; its value before, and as it is read back afterwards. Raises `ValueError` with the reason."""
        knobs = self.read()
        if name not in knobs or name in ("stop", "rollback"):
            raise ValueError(f"this trainer has no knob {name}")
        knob = knobs[name]
        if knob.why:
            raise ValueError(f"{name} cannot be changed: {knob.why}")
        if not math.isfinite(value) or not knob.floor <= value <= knob.ceiling:
            raise ValueError(f"{name} = {value:g} is outside [{knob.floor:g}, {knob.ceiling:g}], fixed at attach")
        trainer = self.trainer
        if name == "beta":
            trainer.beta = value
        elif name == "entropy_coef":
            trainer.entropy_coef = value
            trainer._entropy_bonus_enabled = True  # decided at construction, and without it the value is ignored
        elif name == "gold_share":
            self.gold_share = value
        elif self.screen is not None and name in self.screen.values:
            self.screen.set(name, value)
        elif name == "learning_rate":
            _set_rate(trainer, knob.value, value)
        else:
            position = distinct_names(trainer.reward_func_names).index(name.removeprefix("reward_weight."))
            trainer.reward_weights[position] = value
        return knob.value, self.read()[name].value

    def _knob(self, name: str, value: float, floor: float, ceiling: float, why: str) -> Knob:
        floor, ceiling = self._limits.setdefault(name, (floor, ceiling))
        return Knob(name, value, floor, ceiling, why)


def _has_reference(trainer: Any) -> bool:
    """With adapters the reference is the model without them, whatever beta was at the start; but a batch that was made
    at beta 0 and is used again has no reference log-probabilities, and the loss would ask for them."""
    args = trainer.args
    fresh = args.gradient_accumulation_steps % (args.steps_per_generation * trainer.num_iterations) == 0
    return fresh and hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config")


def _scheduler(trainer: Any) -> Any:
    scheduler = trainer.lr_scheduler
    return scheduler.scheduler if hasattr(scheduler, "scheduler") else scheduler


def _set_rate(trainer: Any, before: float, after: float) -> None:
    """Both places: the scheduler's base acts one step late, the optimiser's own value holds for one step only."""
    ratio = after / before
    scheduler = _scheduler(trainer)
    scheduler.base_lrs = [rate * ratio for rate in scheduler.base_lrs]
    for group in trainer.optimizer.param_groups:
        group["lr"] *= ratio
