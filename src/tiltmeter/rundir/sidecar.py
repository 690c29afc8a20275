"""Small JSON files beside the journal: one reader that trusts nothing, one way to refuse a file, one writer.

A file is opened without following a link, must be a plain file within a size limit, and is checked against a type.
The standard library parses, msgspec checks: msgspec's own parser passes over a key that stands twice, and refuses lone
surrogates, which texts of a model may have. Keys that the type does not name are ignored: a newer version may add some.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta, convert

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.run_path import open_folder, read_file
from tiltmeter.safety.safe_text import log_line

LIMIT = 1 << 20  # bytes, of a file whose reader names no limit of its own
REASON = 300  # characters
DEEPEST = 200  # arrays and objects within each other

#: Fields of a file: a number of an attempt, step or rank, which must fit 64 bits, and a text of bounded length.
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Text300: TypeAlias = Annotated[str, Meta(max_length=300)]

HOSTILE = (
    OSError,
    ValueError,
    RecursionError,
)  # what reading a hostile file raises
#: What content of other types than expected raises in code that uses it.
WRONG_CONTENT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_STAYS = (errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.ENOTDIR, errno.EACCES, errno.EPERM)  # of the file itself

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)  # a text is matched whole, and so left out
T = TypeVar("T")


def read_sidecar(path: Path, kind: type[T], limit: int = LIMIT) -> T:
    """The content of a file as `kind`, a type that msgspec can check. Raises `StoreError` for anything unexpected."""
    try:
        return parse_sidecar(read_file(path, limit), kind)
    except HOSTILE as error:
        raise refuse(path, error) from error


def find_sidecar(path: Path, kind: type[T], limit: int = LIMIT) -> T | None:
    """For readers that try again: None if there is no file of this name, `OSError` for an error that may go away."""
    try:
        return parse_sidecar(read_file(path, limit), kind)
    except FileNotFoundError:
        return None
    except HOSTILE as error:
        if isinstance(error, OSError) and error.errno not in _STAYS:
            raise
        raise refuse(path, error) from error


def list_sidecars(
    folder: Path,
    select: Callable[[str], object],
    kind: type[T],
    limit: int = LIMIT,
    *,
    most: int | None = None,
    owner: int | None = None,
    names: Iterable[str] | None = None,
) -> tuple[dict[str, T], dict[str, str]]:
    """The files of a folder that `select` chooses by name, in the order of names, and why others of them are refused.

    Nothing is passed over: a link or a folder with such a name is refused as well. An I/O error may go away and is no
    refusal: raises `OSError`. At most `most` files are read; with `owner`, those of others are refused. `names`: all
    that are in the folder, if it was listed.
    """
    values: dict[str, T] = {}
    refusals: dict[str, str] = {}
    if names is None:
        try:
            with open_folder(folder) as opened:
                names = os.listdir(opened)  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return values, refusals
    for name in sorted(filter(select, names))[:most]:
        try:
            values[name] = parse_sidecar(read_file(folder / name, limit, owner=owner), kind)
        except FileNotFoundError:
            continue  # removed since it was listed
        except HOSTILE as error:
            if isinstance(error, OSError) and error.errno not in _STAYS:
                raise
            refusals[name] = reason(error)
    return values, refusals


def parse_sidecar(content: bytes, kind: type[T]) -> T:
    """JSON as `kind`. Raises `ValueError` or `RecursionError`.

    >>> parse_sidecar(b'{"step": 3, "of a newer version": 1}', dict[str, int])
    {'step': 3, 'of a newer version': 1}
    """
    if content.count(b"[") + content.count(b"{") > DEEPEST and _depth(content) > DEEPEST:
        raise RecursionError  # here, and not where the interpreter's own limit stands, which others may raise
    return convert(_DECODER.decode(content.decode("utf-8")), kind)


def refuse(path: Path, error: Exception | str) -> StoreError:
    """The one way in which a file is refused: its path and a short reason, neither of which can act on a terminal."""
    return StoreError(f"{log_line(str(path))} cannot be read: {reason(error)}")


def reason(error: Exception | str) -> str:
    """Why a file is refused: one line of ASCII, bounded.

    >>> reason("no \\x1b[2J of 'a'"), len(reason("a" * 1000))
    ("no \\\\u{1b}[2J of 'a'", 300)
    """
    match error:
        case str():
            text = error
        case OSError(errno=errno.ELOOP):
            text = "a symbolic link"
        case OSError():
            text = error.strerror or type(error).__name__
        case RecursionError():
            text = "nested too deeply"
        case UnicodeDecodeError():
            text = f"not UTF-8: {error.reason} at byte {error.start}"
        case json.JSONDecodeError():
            text = f"not JSON: {error}"
        case _:
            text = str(error) or type(error).__name__
    return log_line(text).encode("ascii", "backslashreplace").decode("ascii")[:REASON]


def write_sidecar(path: Path, facts: Any, *, indent: int | None = None) -> bool:
    """Publish a file, which is never replaced: raises `FileExistsError`. Numbers must be finite. See `publish`."""
    return publish(path, [json.dumps(facts, indent=indent, allow_nan=False).encode("ascii")])


def _depth(content: bytes) -> int:
    """How deeply arrays and objects are nested; brackets in texts do not count."""
    deepest = depth = 0
    for match in _BRACKETS.finditer(content):
        mark = match[0]
        depth += mark in (b"[", b"{")
        depth -= mark in (b"]", b"}")
        deepest = max(deepest, depth)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
