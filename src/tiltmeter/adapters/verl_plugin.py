"""What veRL loads in every one of its processes (entry-point group `verl.plugins`): a way in that costs nothing.

veRL imports this module and does not call it, and an error here would go to its debug log. So nothing is imported and
nothing is decided here: when, and only when, a process imports a trainer of veRL, its `fit` is wrapped, and `fit` asks
`TILTMETER_VERL` and the configuration whether the run is to be watched. `TILTMETER_VERL=0` leaves even that out.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

#: Where veRL 0.9 has its training loops, and the class whose `fit` is one.
TRAINERS = {
    "verl.trainer.ppo.v1.trainer_base": "PPOTrainer",
    "verl.trainer.ppo.ray_trainer": "RayPPOTrainer",
}
SWITCH = "TILTMETER_VERL"

log = logging.getLogger("tiltmeter")


class Watching(importlib.abc.MetaPathFinder):
    """Finds veRL's trainers as Python does, and wraps their loop once they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in TRAINERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapping(spec.loader)
        return spec


class _Wrapping(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # what else tools ask a loader for: the source, the file
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap_in(module)


def _wrap_in(module: ModuleType) -> None:
    """Wrap a module's trainer, if it is where it is known to be. An import of veRL never fails for our sake."""
    name = TRAINERS[module.__name__]
    found = vars(module).get(name)
    if found is not None and hasattr(found, "fit"):
        wrap(found)
    elif os.environ.get(SWITCH, "0") not in ("", "0"):
        log.warning("this veRL has no %s.%s with a fit: it is not watched", module.__name__, name)


def wrap(trainer: Any) -> None:
    """Let a trainer class's `fit` ask whether it is watched. Twice is once."""
    original = trainer.fit
    if hasattr(original, "tiltmeter"):
        return

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not asked(self.config if hasattr(self, "config") else None):
            return original(self, *args, **kwargs)
        from tiltmeter.adapters.verl import Watched  # only in the process that trains, and only if it is watched

        watched = Watched(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            watched.close()

    fit.tiltmeter = True  # type: ignore[attr-defined]
    trainer.fit = fit


def asked(config: Any) -> bool:
    """Whether the environment or `trainer.tiltmeter` of the configuration says so.

    >>> class Trainer(dict):
    ...     trainer = {"tiltmeter": {"directory": "runs/tonight"}}
    >>> asked(Trainer())
    True
    """
    if os.environ.get("TILTMETER_DISABLED", "") not in ("", "0"):
        return False
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        return True
    try:
        return bool(config.trainer.get("tiltmeter", None))
    except (AttributeError, TypeError, KeyError):  # a configuration of another make has nothing to say to us
        return False


def install() -> None:
    """Watch for veRL's trainers in this process, those that are there included."""
    if os.environ.get(SWITCH) == "0" or any(isinstance(finder, Watching) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Watching())
    for module in TRAINERS:
        if module in sys.modules:
            _wrap_in(sys.modules[module])


install()
