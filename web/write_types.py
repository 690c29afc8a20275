"""`web/src/types.ts`, written from the payloads: python web/write_types.py > web/src/types.ts

A class becomes an interface with its docstring, a field keeps the comment behind it, and a literal or union with a name
becomes a type with that name.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, UnsetType

from tiltmeter.verdict.states import STATES
from tiltmeter.view.payloads import (
    alarms,
    claims,
    compare,
    monitor,
    notes,
    overview,
    people,
    picture,
    plots,
    reading_room,
    rollouts,
)

MODULES = (picture, claims, overview, plots, rollouts, reading_room, alarms, compare, monitor, notes, people)
HEAD = """\
/** The JSON of every route and of the report, generated from `src/tiltmeter/view/payloads/`: edit it there, then run
 * `make types`.
 *
 * A number that does not exist is null. Text that a model, a dataset or a person wrote (names of runs and readings
 * included) arrives as it is and is shown through `Shown`, never as markup.
 */"""
PLAIN: dict[Any, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    Any: "unknown",
}
_COMMENT = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)
_ALIAS_COMMENT = re.compile(r"^#: (.+)\n(\w+)\b", re.MULTILINE)
_Names = dict[Any, str]  # of literals and unions that have one


def render() -> str:
    """The whole file: what each module declares or imports, in its order, each name once."""
    declared: dict[str, str] = {}
    names: _Names = {int | None: "Number"}  # TypeScript has one type of numbers
    for module in MODULES:
        comments = {name: comment for comment, name in _ALIAS_COMMENT.findall(inspect.getsource(module))}
        for name, value in vars(module).items():
            if name in declared or name.startswith("_"):
                continue
            if get_origin(value) in (Literal, Union, UnionType):
                comment = f"\n/** {comments[name]} */\n" if name in comments else ""
                declared[name] = f"{comment}export type {name} = {_render_type(value, names)};"
                names[value] = name
            elif _is_payload(value):
                declared[name] = _declare(value, names)
    meanings = json.dumps({name: word.meaning for name, word in STATES.items()}, indent=2, ensure_ascii=False)
    head = "\n/** What each state means, the worst first. */"
    table = f"{head}\nexport const MEANINGS: Record<State, string> = {meanings};"
    return "\n".join([HEAD, *declared.values(), table, ""])


def _is_payload(value: object) -> bool:
    if not isinstance(value, type) or value is Struct:
        return False
    return issubclass(value, (Struct, tuple)) or dataclasses.is_dataclass(value)


def _declare(payload: type, names: _Names) -> str:
    head = "\n".join(["", *_doc_lines(payload)])
    hints, comments = get_type_hints(payload), dict(_COMMENT.findall(inspect.getsource(payload)))
    if issubclass(payload, tuple):
        members = ", ".join(f"{name}: {_render_type(hint, names)}" for name, hint in hints.items())
        return f"{head}\nexport type {payload.__name__} = [{members}];"
    base = payload.__base__
    extends = f" extends {base.__name__}" if base is not None and base not in (Struct, object) else ""
    lines = [f"{head}\nexport interface {payload.__name__}{extends} {{"]
    if issubclass(payload, Struct) and (tag := payload.__struct_config__.tag) is not None:
        lines.append(f"  {payload.__struct_config__.tag_field}: {json.dumps(tag)};")
    keys = _json_keys(payload)
    for name in inspect.get_annotations(payload):
        optional = "?" if UnsetType in get_args(hints[name]) else ""
        comment = f" // {comments[name]}" if name in comments else ""
        lines.append(f"  {keys.get(name, name)}{optional}: {_render_type(hints[name], names)};{comment}")
    return "\n".join([*lines, "}"])


def _doc_lines(payload: type) -> list[str]:
    lines = inspect.cleandoc(payload.__doc__ or "").splitlines()
    if len(lines) == 1:
        return [f"/** {lines[0]} */"]
    return [f"/** {lines[0]}", *(f" * {line}".rstrip() for line in lines[1:]), " */"]


def _json_keys(payload: type) -> dict[str, str]:
    """The key of each field in the JSON."""
    if not issubclass(payload, Struct):
        return {}
    return dict(zip(payload.__struct_fields__, payload.__struct_encode_fields__, strict=True))


def _render_type(hint: Any, names: _Names) -> str:
    """
    >>> _render_type(list[int | None], {}), _render_type(dict[str, Literal["a", "b"]], {})
    ('(number | null)[]', 'Record<string, "a" | "b">')
    """
    if (name := names.get(hint) or PLAIN.get(hint)) is not None:
        return name
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(json.dumps(value) for value in args)
    if origin in (Union, UnionType):
        if UnsetType in args:
            return _render_type(Union[tuple(arg for arg in args if arg is not UnsetType)], names)  # noqa: UP007
        return " | ".join(dict.fromkeys(_render_type(arg, names) for arg in args))
    if origin is list:
        item = _render_type(args[0], names)
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin is dict:
        return f"Record<string, {_render_type(args[1], names)}>"
    if not _is_payload(hint):
        raise TypeError(f"{hint} has no type in TypeScript: give it one in {__name__}")
    return str(hint.__name__)


if __name__ == "__main__":
    sys.stdout.write(render())
