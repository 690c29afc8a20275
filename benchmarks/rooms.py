"""The rooms that a benchmark's figures depend on: what it imports or runs, as folders of the repository."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PLACES = {
    "tiltmeter": "src/tiltmeter",
    "tiltmeter_workbench": "packages/tiltmeter-workbench/src/tiltmeter_workbench",
    "tiltmeter_lab": "packages/tiltmeter-lab/src/tiltmeter_lab",
}
#: What public names need: a watched run writes files, and its monitor measures them.
PUBLIC = dict.fromkeys(("attach", "open_run", "capture"), ("adapters", "monitor", "rundir")) | {"read": ("view",)}
#: What a monitor runs.
MEASURES = ("instruments", "detectors")
#: Machinery that every benchmark shares; what it imports says nothing of a figure.
SHARED = {"record", "rooms"}


def rooms_of(script: Path) -> list[str]:
    """Sorted folders, or files of the top level; those of the benchmark's own helpers included.

    >>> rooms_of(HERE / "refusal.py")
    ['src/tiltmeter/data', 'src/tiltmeter/instruments']
    """
    rooms: set[str] = set()
    for file in _own_files(script):
        for name in imports_of(file):
            top, _, rest = name.partition(".")
            if top in PLACES:
                rooms |= _room(top, rest)
        text = file.read_text()
        if '"-m", "tiltmeter"' in text:
            rooms |= _room("tiltmeter", "cli")
        for top, rest in re.findall(r'"(tiltmeter\w*)\.([\w.]+)"', text):  # a module by its name
            rooms |= _room(top, rest) if top in PLACES else set()
    core = PLACES["tiltmeter"]
    if f"{core}/monitor" in rooms:
        rooms |= {f"{core}/{one}" for one in MEASURES}
    return sorted(rooms)


def _room(top: str, rest: str) -> set[str]:
    room = rest.partition(".")[0]
    place = f"{PLACES[top]}/{room}"
    if room and (ROOT / place).is_dir():
        return {place}
    if room and (ROOT / f"{place}.py").is_file():
        return {f"{place}.py"}
    return {f"{PLACES['tiltmeter']}/{one}" for one in PUBLIC.get(room, ())} if top == "tiltmeter" else set()


def _own_files(script: Path) -> list[Path]:
    """The script, and what it imports from beside it."""
    files, todo = [], [script]
    while todo:
        file = todo.pop()
        if not file.is_file() or file in files:
            continue
        files.append(file)
        tops = {name.partition(".")[0] for name in imports_of(file)} - SHARED
        todo += [HERE / f"{top}.py" for top in sorted(tops)]
    return files


@cache
def imports_of(file: Path) -> tuple[str, ...]:
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tiltmeter":
            names.append(f"tiltmeter.{node.attr}")
    return tuple(names)
