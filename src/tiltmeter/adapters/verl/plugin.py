"""The veRL plug-in (entry-point group `verl.plugins`): wraps `fit` of veRL's trainers once they are imported.

veRL imports this module in every process and does not call it; an error here would go to its debug log. So nothing else
is imported here. When a process imports a veRL trainer, its `fit` is wrapped, and `fit` checks `TILTMETER_VERL` and the
configuration whether to watch the run. `TILTMETER_VERL=0` turns off even the wrapping.
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

from tiltmeter.adapters.verl.switch import SWITCH, is_enabled

#: Where veRL 0.9 has its training loops, and the class whose `fit` is one.
TRAINERS = {
    "verl.trainer.ppo.v1.trainer_base": "PPOTrainer",
    "verl.trainer.ppo.ray_trainer": "RayPPOTrainer",
}

log = logging.getLogger("tiltmeter")


class TrainerFinder(importlib.abc.MetaPathFinder):
    """An import finder that wraps `fit` of veRL's trainers after their module is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in TRAINERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _WrappingLoader(spec.loader)
        return spec


class _WrappingLoader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # other loader methods that tools use: the source, the file
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap_in(module)


def _wrap_in(module: ModuleType) -> None:
    """Wrap a module's trainer class, if it has the expected name. An import of veRL never fails because of us."""
    name = TRAINERS[module.__name__]
    trainer_class = vars(module).get(name)
    if trainer_class is not None and hasattr(trainer_class, "fit"):
        wrap(trainer_class)
    elif os.environ.get(SWITCH, "0") not in ("", "0"):
        log.warning("this veRL has no %s.%s with a fit: it is not watched", module.__name__, name)


def wrap(trainer: Any) -> None:
    """Wrap a trainer class's `fit` so that it is watched where enabled. Wrapping twice has no effect."""
    original = trainer.fit
    if hasattr(original, "tiltmeter"):
        return

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_enabled(self.config if hasattr(self, "config") else None):
            return original(self, *args, **kwargs)
        from tiltmeter.adapters.verl.driver import (
            VerlObserver,  # only in the process that trains, and only if it is watched
        )

        observer = VerlObserver(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            observer.close()

    fit.tiltmeter = True  # type: ignore[attr-defined]
    trainer.fit = fit


def install() -> None:
    """Install the import finder in this process, and wrap trainers that are already imported."""
    if os.environ.get(SWITCH) == "0" or any(isinstance(finder, TrainerFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, TrainerFinder())
    for module in TRAINERS:
        if module in sys.modules:
            _wrap_in(sys.modules[module])


install()
