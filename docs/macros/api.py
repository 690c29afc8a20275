"""The reference of the Python API, from docstrings: every public name with its signature, its text and its example."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import GenericAlias
from typing import Any

from .registry import ResultFiles, macro

#: What is public (docs/versions.md): the modules, each by the names in its `__all__`, else by those defined in it.
MODULES = ("tiltmeter", "tiltmeter.rewards", "tiltmeter.diagnosis", "tiltmeter.testing")
PARAGRAPH = "\n\n"
MADE_BY_US = ("Run",)  # nobody calls its constructor: `open_run` does
EXAMPLE = re.compile(r"^(?:>>>|Example:$)", re.M)


def public_names(module: str) -> list[tuple[str, Any]]:
    """Classes and functions, in the order of the alphabet; constants are said in prose."""
    loaded = importlib.import_module(module)
    # Those of the workbench come with it.
    listed = dir(loaded) if module == "tiltmeter.rewards" else getattr(loaded, "__all__", None)
    names = listed or [name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == module]
    found = [(name, getattr(loaded, name)) for name in sorted(names, key=str.lower) if not name.startswith("_")]
    return [(name, value) for name, value in found if callable(value) and not isinstance(value, GenericAlias)]


def has_example(value: Any) -> bool:
    return bool(EXAMPLE.search(inspect.getdoc(value) or ""))


def signature(name: str, value: Any) -> str:
    """One line, or one line for each argument where that is too long."""
    try:
        parts = [str(one) for one in inspect.signature(value).parameters.values()]
    except (TypeError, ValueError):
        return name
    parts = [re.sub(r": '([^']*)'", r": \1", part) for part in parts if not part.startswith("self")]
    parts = [re.sub(r"<function (\w+) at 0x\w+>", r"\1", part) for part in parts]
    keyword = next((at for at, one in enumerate(parameters(value)) if one.kind is one.KEYWORD_ONLY), None)
    if keyword is not None:
        parts.insert(keyword, "*")
    line = f"{name}({', '.join(parts)})"
    return line if len(line) <= 90 else f"{name}(\n    " + ",\n    ".join(parts) + ",\n)"


def parameters(value: Any) -> list[inspect.Parameter]:
    return [one for one in inspect.signature(value).parameters.values() if one.name != "self"]


def body(text: str) -> str:
    """A docstring as Markdown: prose as it is, what is typed in at a prompt and what is indented as code."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if block.lstrip().startswith(">>>"):
            parts.append(f"```pycon\n{inspect.cleandoc(block)}\n```")
        elif all(line.startswith("    ") for line in block.splitlines()):
            parts.append(f"```python\n{inspect.cleandoc(block)}\n```")
        elif block.strip() != "Example:":
            prose, *code = re.split(r"\n(?=>>>)", block, maxsplit=1)
            parts.append(re.sub(r"<(?=\w)", "&lt;", prose))
            parts += [f"```pycon\n{one}\n```" for one in code]
    return "\n\n".join(parts)


def entries(module: str) -> Iterator[str]:
    for name, value in public_names(module):
        plain = name in MADE_BY_US or (inspect.isclass(value) and issubclass(value, Exception))
        called = "" if plain else signature(name, value)
        yield "\n\n".join(
            part
            for part in (
                f"### `{module}.{name}`",
                f"```python\n{called}\n```" if called else "",
                body(inspect.getdoc(value) or ""),
                methods(value),
            )
            if part
        )


def methods(value: Any) -> str:
    """The public methods of a class that is not a mere record: each with its first paragraph."""
    if not inspect.isclass(value) or issubclass(value, Exception):
        return ""
    own = [(name, one) for name, one in vars(value).items() if inspect.isfunction(one) and not name.startswith("_")]
    lines = [
        f"- `{' '.join(signature(name, one).split())}`: {' '.join(text.split(PARAGRAPH)[0].split())}"
        for name, one in own
        if (text := inspect.getdoc(one))
    ]
    return "Methods:\n\n" + "\n".join(lines) if lines else ""


@macro
def api_reference(_: ResultFiles, module: str) -> str:
    return "\n\n".join(entries(module))


@macro
def api_counts(_: ResultFiles) -> str:
    values = [value for module in MODULES for _name, value in public_names(module)]
    return f"{len(values)} names, {sum(map(has_example, values))} of them with an example"
