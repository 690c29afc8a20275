"""Load a function or class named as `path/to/file.py:thing`; only names that the user gave, never names from a file.

It imports almost nothing, so that a process that only calls one function starts quickly.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tiltmeter.errors import AttachError

_SHA256 = re.compile(r"[0-9a-f]{64}")


def load_function(name: object) -> Callable[..., Any]:
    """The function that `path/to/file.py:function` names."""
    if not isinstance(name, str):
        raise AttachError(f"{name!r} does not name a function: write it as path/to/file.py:function")
    function = load_named(name, "a function", "function")
    if not callable(function):
        raise AttachError(f"{name!r} is a {type(function).__name__}, not a function")
    target: Callable[..., Any] = function
    return target


def load_named(name: str, what: str, example: str) -> Any:
    """The object with this name; the error for a wrong name says `what` it should be and shows an `example`."""
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py") or not attribute:
        raise AttachError(f"{name!r} does not name {what}: write it as path/to/file.py:{example}")
    source = Path(path).resolve()
    if _is_running(source):
        raise AttachError(
            f"{name!r} is in the script that runs now: loading it again, here or in the monitor, would run it again. "
            f"Put {attribute} into a file of its own and name that"
        )
    spec = importlib.util.spec_from_file_location(f"tiltmeter_plugin_{source.stem}", source)
    if not source.is_file() or spec is None or spec.loader is None:
        raise AttachError(f"{name!r}: there is no file {source}: check its name, or give the whole path")
    module = importlib.util.module_from_spec(spec)
    if _SHA256.fullmatch(source.parent.name):
        _run_as_named(source, module)
        return _attribute_of(module, attribute, name)
    if str(source.parent) not in sys.path:
        # Last, so that nothing is shadowed: what a file imports from beside it must be found here and in the monitor,
        # which was not started from there.
        sys.path.append(str(source.parent))
    sys.modules[spec.name] = module  # a dataclass looks its own module up while it is made
    spec.loader.exec_module(module)
    return _attribute_of(module, attribute, name)


def _run_as_named(source: Path, module: ModuleType) -> None:
    """Run a file whose folder is named by its hash: what is hashed is what is run.

    `open_run` writes such a file into the run directory, for a function that was passed to it. Others may write there
    too, so neither bytecode nor modules that lie beside it are read.
    """
    content = source.read_bytes()
    if hashlib.sha256(content).hexdigest() != source.parent.name:
        raise AttachError(f"{source} has changed since it was written: it is not run")
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, str(source), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except KeyError as error:
        if f"environ[{error.args[0]!r}]".encode() not in content:
            raise
        raise AttachError(
            f"{source.name} needs the environment variable {error.args[0]}, which is not set here: export it and start "
            "again"
        ) from None


def _attribute_of(module: ModuleType, attribute: str, name: str) -> Any:
    part = getattr(module, attribute, None)
    if part is None:
        raise AttachError(f"{name!r}: {Path(str(module.__file__)).name} defines no {attribute}")
    return part


def _is_running(source: Path) -> bool:
    """Whether this file is the program itself. An interactive session has none."""
    main = vars(sys.modules["__main__"]).get("__file__")
    return main is not None and Path(main).resolve() == source.resolve()
