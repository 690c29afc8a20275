"""Answers that tell who ran them: harmless code that leaves a note of its process and of what it could read."""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tiltmeter.probe.child import FILE, SECRET
from tiltmeter.probe.forgeries import Task, boxed, in_form


@dataclass(frozen=True)
class Spy:
    """An answer with code in it, and the file in which it leaves word if anybody runs it."""

    name: str
    text: str
    drop: Path


def spies(task: Task) -> list[Spy]:
    """A program, for rewards that run code, or an expression, for those that evaluate an answer."""
    drop = Path(tempfile.gettempdir()) / f"tiltmeter-spy-{secrets.token_hex(8)}.json"
    if task.kind == "code":
        return [Spy("leaves a note", in_form(task, _program(task, drop)), drop)]
    return [Spy("leaves a note", boxed(task, f"exec({_program(task, drop)!r}) or {task.answer}"), drop)]


def _program(task: Task, drop: Path) -> str:
    return f"""
import json, os

def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""

with open({str(drop)!r}, "w") as file:
    told = {{"pid": os.getpid(), "secret": os.environ.get({SECRET!r}, "")}}
    told["file"] = read(os.environ.get({FILE!r}, "")) if os.environ.get({FILE!r}) else ""
    json.dump(told, file)

def {task.name}(*args, **kwargs):
    return None
"""
