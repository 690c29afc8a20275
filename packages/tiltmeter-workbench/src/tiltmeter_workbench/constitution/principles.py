"""A constitution: the principles by which answers are criticised, revised and compared, read from a file."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import ENDINGS, read_rows

FIELDS = ("critique", "revise", "compare")
#: For principles that only say how to criticise and revise.
COMPARE = "Somebody was asked this about an answer: {critique} Which answer gives less cause for such a critique?"
#: Names in files of others.
ALIASES = {"critic": "critique", "critique_request": "critique", "revision": "revise", "revision_request": "revise"}
EXAMPLE = """[[principles]]
name = "honest"
critique = "Say which claims of the last answer are false or invented."
revise = "Rewrite the last answer without them. Reply with the new answer only."
compare = "Which answer claims less that is false or invented?"
"""


@dataclass(frozen=True, slots=True)
class Principle:
    """One principle: what to ask for a critique, for a revision, and of two answers."""

    name: str
    critique: str
    revise: str
    compare: str


@dataclass(frozen=True, slots=True)
class Constitution:
    """Principles, and a mark of what they say: another wording is another constitution.

    >>> read_constitution().principles[0].name
    'helpful'
    """

    principles: tuple[Principle, ...]
    mark: str

    def draw_principle(self, *what: object) -> Principle:
        """Draw the principle for one item, by a hash: it does not depend on what else is asked, or when."""
        digest = hashlib.sha256(json.dumps(what).encode()).digest()
        return self.principles[int.from_bytes(digest[:8], "big") % len(self.principles)]


def read_constitution(path: str | Path | None = None) -> Constitution:
    """A TOML file with [[principles]], or a table with a row each; ours without a path. Raises `AttachError`."""
    source = path or "principles.toml"
    rows = _rows(path)
    principles = tuple(_parse_principle(source, number, row) for number, row in enumerate(rows, 1))
    names = [principle.name for principle in principles]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise AttachError(f"{source}: the name {twice[0]!r} stands there twice; a label must tell which one was asked")
    text = json.dumps([asdict(principle) for principle in principles])
    return Constitution(principles, hashlib.sha256(text.encode()).hexdigest()[:12])


def _rows(path: str | Path | None) -> list[Any]:
    if path is not None and Path(path).name.removesuffix(".gz").endswith(ENDINGS):
        return list(read_rows(path, '{"critique": "...", "revise": "...", "compare": "..."}'))
    try:
        source = files("tiltmeter_workbench.constitution") / "principles.toml" if path is None else Path(path)
        facts = tomllib.loads(source.read_text("utf-8"))
    except OSError as error:
        raise AttachError(f"the constitution {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AttachError(f"the constitution {path} is not TOML: {error}. It looks like this:\n{EXAMPLE}") from error
    rows = facts.get("principles")
    if set(facts) != {"principles"} or not isinstance(rows, list) or not rows:
        raise AttachError(f"{path} holds [[principles]] and nothing else. It looks like this:\n{EXAMPLE}")
    return rows


def _parse_principle(path: object, number: int, row: Any) -> Principle:
    if not isinstance(row, Mapping):
        raise AttachError(f"{path}: principle {number} is no table of texts. One looks like this:\n{EXAMPLE}")
    facts = {ALIASES.get(name, name): value for name, value in row.items()}
    texts = {name: facts[name].strip() for name in FIELDS if isinstance(facts.get(name), str) and facts[name].strip()}
    if missing := [name for name in ("critique", "revise") if name not in texts]:
        raise AttachError(f"{path}: principle {number} has no {missing[0]}. One looks like this:\n{EXAMPLE}")
    texts.setdefault("compare", COMPARE.format(critique=texts["critique"]))
    whose = [str(facts[name]) for name in ("constitution", "idx") if name in facts]
    name = facts.get("name") or "-".join(whose) or str(number)
    return Principle(str(name), texts["critique"], texts["revise"], texts["compare"])
