"""Read a YAML file strictly: no Python objects, no duplicate keys, and 1e-6 is a number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError

MAX_BYTES = 1 << 20  # bytes
MAX_DEPTH = 40
MAX_ALIASES = 100  # more of them can make a small file as large as the machine
#: YAML 1.1 takes 1e-6 for text, because it has no point; every other tool that reads the same file means a number.
EXPONENT = re.compile(r"^[-+]?(?:\d[\d_]*)(?:\.[\d_]*)?[eE][-+]?\d+$")


def read_yaml(path: Path) -> Any:
    """The content of a YAML file. Raises `AttachError` with the line for a syntax error or a duplicate key."""
    try:
        import yaml
    except ImportError as error:
        raise AttachError("a recipe is YAML, which needs one package more: pip install 'tiltmeter[train]'") from error

    class StrictLoader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            lines: dict[Any, int] = {}
            for key_node, _ in node.value:
                key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
                if not isinstance(key, str):
                    raise AttachError(
                        f"{path}, line {line}: {key!r} is no name; put it in quotes if it is meant as one"
                    )
                if key in lines:
                    raise AttachError(
                        f"{path}, line {line}: {key} stands there already, in line {lines[key]}; keep one"
                    )
                lines[key] = line
            return dict(super().construct_mapping(node, deep))

    StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            raise AttachError(f"{path} has more than {MAX_BYTES >> 20} MB: no recipe has; name the right file")
        text = content.decode("utf-8-sig")
        depth = aliases = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > MAX_DEPTH or aliases > MAX_ALIASES:
                what = "is nested too deep" if depth > MAX_DEPTH else f"has more than {MAX_ALIASES} aliases (*name)"
                raise AttachError(f"{path} {what} for a recipe: write the values out")
        return yaml.load(text, Loader=StrictLoader)
    except OSError as error:
        raise AttachError(f"{path} cannot be read: {error.strerror or error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f", line {mark.line + 1},"
        raise AttachError(
            f"{path}{line} is not YAML: {error.problem or error.context}; look at its indentation and quotes"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise AttachError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
