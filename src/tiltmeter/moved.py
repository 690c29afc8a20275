"""Old import paths that users' own files may have: they still work, with a notice."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

#: Modules that the documentation named before they stood in rooms.
MOVED = {
    "tiltmeter.adapters.verl_plugin": "tiltmeter.adapters.verl.plugin",
    "tiltmeter.baseline": "tiltmeter.data.baseline",
    "tiltmeter.batches": "tiltmeter.data.batches",
    "tiltmeter.records": "tiltmeter.data.records",
    "tiltmeter.store": "tiltmeter.rundir.store",
    "tiltmeter.train.soft": "tiltmeter.workbench.train.methods.soft_trainers",
}


class MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import finder that stands last: it is asked only for what is not there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in MOVED:
            return importlib.machinery.ModuleSpec(fullname, self)
        if any(name.startswith(f"{fullname}.") for name in MOVED):  # a package that held one
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        if spec.name not in MOVED:
            return None
        warnings.warn(f"{spec.name} is now {MOVED[spec.name]}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(MOVED[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module was executed where it stands now; the import system has only put another label on it."""
        if module.__spec__ is not None and module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
