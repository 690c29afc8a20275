"""Load a function or class named as `path/to/file.py:thing`; only names that the user gave, never names from a file.

It imports almost nothing, so that a process that only calls one function starts quickly.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError


def load_function(name: object) -> Callable[..., Any]:
    """The function that `path/to/file.py:function` names. A function object is refused: the monitor is another process,
    and nothing but a name can be given to it."""
    if not isinstance(name, str):
        qualname = getattr(name, "__qualname__", type(name).__name__)
        home = getattr(getattr(name, "__code__", None), "co_filename", "your_file.py")
        if not home.endswith(".py") or not str(qualname).isidentifier() or _is_running(Path(home)):
            home, qualname = "checks.py", "score"
        raise AttachError(
            f"gold= takes the name of a function, because the monitor that calls it is another process: define it at "
            f'the top level of a file and pass gold="{home}:{qualname}"'
        )
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
        raise AttachError(f"{name!r}: there is no file {source}")
    module = importlib.util.module_from_spec(spec)
    if str(source.parent) not in sys.path:
        # Last, so that nothing is shadowed: what a file imports from beside it must be found here and in the monitor,
        # which was not started from there.
        sys.path.append(str(source.parent))
    sys.modules[spec.name] = module  # a dataclass looks its own module up while it is made
    spec.loader.exec_module(module)
    part = getattr(module, attribute, None)
    if part is None:
        raise AttachError(f"{name!r}: {source.name} defines no {attribute}")
    return part


def _is_running(source: Path) -> bool:
    """Whether this file is the program itself. An interactive session has none."""
    main = vars(sys.modules["__main__"]).get("__file__")
    return main is not None and Path(main).resolve() == source.resolve()
