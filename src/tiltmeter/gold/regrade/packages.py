"""A folder with pytest and the packages that tests import, for a sandbox, which sees none of those installed here."""

from __future__ import annotations

import ast
import atexit
import compileall
import importlib.metadata
import py_compile
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from tiltmeter.errors import AttachError

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def imported_modules(files: Mapping[str, bytes], is_used: Callable[[str], bool] = lambda path: True) -> set[str]:
    """Top-level modules that Python files import when they are loaded, and that do not stand among these files.
    `is_used`: files that count; others, as a `setup.py`, are not loaded.

    >>> files = {"a.py": b"import numpy.linalg, json, b", "b.py": b"try:\\n    import x\\nexcept ImportError: x = 0"}
    >>> sorted(imported_modules(files))
    ['numpy']
    """
    own = {part.removesuffix(".py") for path in files for part in PurePosixPath(path).parts}
    names: set[str] = set()
    for path, content in files.items():
        if path.endswith(".py") and is_used(path):
            try:
                body = ast.parse(content).body
            except (SyntaxError, ValueError, RecursionError):
                continue
            for node in body:  # not those in `try` or `if`, which may be missing
                if isinstance(node, ast.Import):
                    names |= {one.name.partition(".")[0] for one in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    return names - own - sys.stdlib_module_names - {"pytest", "_pytest"}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def installed(modules: Iterable[str]) -> set[str]:
    """Those of these modules that are installed here."""
    return {name for name in modules if name in _distributions()}


@cache
def package_folder(modules: frozenset[str]) -> Path:
    """A folder with pytest and these modules or distributions, and all that they require, readable to everybody. It
    lives as long as this process. Raises `AttachError` for what is not installed."""
    folder = Path(tempfile.mkdtemp(prefix="tiltmeter-packages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    waiting, done = ["pytest", *sorted(modules)], set[str]()
    while waiting:
        name = waiting.pop()
        for distribution in _distributions().get(name, [name]):
            key = distribution.lower().replace("_", "-")
            if key in done:
                continue
            done.add(key)
            waiting += _copy(distribution, folder)
    compileall.compile_dir(folder, quiet=2, workers=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def _copy(name: str, folder: Path) -> list[str]:
    """Copy a distribution's modules; the names of what it requires."""
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise AttachError(f"Regrade needs {name}, which is not installed here: pip install {name}") from None
    for file in package.files or ():
        if ".." in file.parts or file.is_absolute() or file.suffix == ".pyc":
            continue
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), target)
    return _required(package)


def _required(package: importlib.metadata.Distribution) -> list[str]:
    needed = []
    for line in package.requires or ():
        requirement, _, marker = line.partition(";")
        name = _NAME.match(requirement)
        if name and "extra" not in marker and _applies(marker):
            needed.append(name[0])
    return needed


def _applies(marker: str) -> bool:
    """Whether what a marker names is needed here: it is, where it is installed and nothing rules it out."""
    if not marker.strip():
        return True
    from packaging.markers import InvalidMarker, Marker  # comes with pytest, which not everybody has

    try:
        return Marker(marker.strip()).evaluate()
    except InvalidMarker:
        return False
