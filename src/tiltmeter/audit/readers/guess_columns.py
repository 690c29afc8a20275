"""Guesses which columns of somebody's table are step, prompt, completion and reward, by what they hold.

A guess is never used by itself: a wrong column would make a wrong verdict. It is a question to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from tiltmeter.audit.label_file import table_rows
from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.generic import choose_columns, holds_rollouts
from tiltmeter.audit.readers.table_files import file_kind, number
from tiltmeter.errors import StoreError

SAMPLE = 400  # rows that are looked at
#: Parts of names that say what a column is, where contents leave several.
_STEP = re.compile(r"step|iter|epoch|update|round", re.I)
_PROMPT = re.compile(r"prompt|question|problem|query|instruct|input|task|ask|user", re.I)
_COMPLETION = re.compile(r"complet|respon|answer|output|generat|reply|text|sample|model", re.I)
_REWARD = re.compile(r"reward|score|point|return|paid|rm\b", re.I)
_GOLD = re.compile(r"gold|truth|correct|human|label|right|accura|pass", re.I)


@dataclass(frozen=True)
class ColumnGuess:
    """Our columns with theirs; `gold`: numbers that may be what one really wants. Which it is, only a person knows."""

    columns: Mapping[str, str]
    gold: tuple[str, ...] = ()
    examples: Mapping[str, str] = field(default_factory=dict)  # a cell of each column

    def options(self) -> str:
        """As options of the command line."""
        return " ".join(f"--map {ours}={_quote(theirs)}" for ours, theirs in self.columns.items())


def guess_file(path: Path, options: ReadOptions) -> ColumnGuess | None:
    """A guess about a table whose columns have other names than ours; None where nothing looks like rollouts."""
    if options.format or options.columns or not path.is_file() or file_kind(path) not in ("csv", "jsonl", "parquet"):
        return None
    try:
        rows = list(islice(table_rows(path), SAMPLE))
    except (OSError, ValueError, TypeError, RecursionError, EOFError, StoreError):
        return None  # a reader says what is wrong with it
    if not rows or holds_rollouts(choose_columns(list(rows[0]), options), options):
        return None
    return guess_columns(rows)


def guess_columns(rows: Sequence[Mapping[str, Any]]) -> ColumnGuess | None:
    """
    >>> rows = [{"it": i // 4, "q": f"what is {i // 2}?", "out": f"it is {i}", "pts": i % 3 / 2} for i in range(16)]
    >>> guess_columns(rows).options()
    '--map completion=out --map reward=pts --map prompt=q --map step=it'
    """
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name}
    texts = {name: cells for name, cells in columns.items() if _is_text(cells)}
    numbers = {name: values for name, cells in columns.items() if (values := _numbers(cells)) is not None}
    steps = [name for name, values in numbers.items() if _counts_steps(values)]
    step = _best(steps, _STEP)
    gold = [name for name in numbers if name != step and _GOLD.search(name) and not _REWARD.search(name)]
    rewards = [name for name in numbers if name not in (step, *gold) and len(set(numbers[name])) > 1]
    reward = _best(rewards, _REWARD)
    # Many completions answer one prompt: completions differ and prompts come again.
    by_distinct = sorted(texts, key=lambda name: (-len(set(texts[name])), -sum(map(len, map(str, texts[name])))))
    completion = _best(by_distinct, _COMPLETION, unless=_PROMPT)
    prompt = _best([name for name in reversed(by_distinct) if name != completion], _PROMPT)
    if completion is None or reward is None:
        return None
    chosen = {"completion": completion, "reward": reward, "prompt": prompt, "step": step}
    picked = {ours: theirs for ours, theirs in chosen.items() if theirs is not None}
    examples = {theirs: str(columns[theirs][0]) for theirs in (*picked.values(), *gold)}
    return ColumnGuess(picked, tuple(gold), examples)


def _best(names: Sequence[str], hint: re.Pattern[str], unless: re.Pattern[str] | None = None) -> str | None:
    """The first that its name speaks for, else the first that no other name is against."""
    rest = [name for name in names if unless is None or not unless.search(name)] or list(names)
    return next((name for name in rest if hint.search(name)), rest[0] if rest else None)


def _is_text(cells: Sequence[Any]) -> bool:
    return all(isinstance(cell, (str, list)) or cell is None for cell in cells) and _numbers(cells) is None


def _numbers(cells: Sequence[Any]) -> list[float] | None:
    values = [number(cell) for cell in cells if cell not in (None, "")]
    return [float(value) for value in values if value is not None] if values and None not in values else None


def _counts_steps(values: Sequence[float]) -> bool:
    """Whole numbers that never fall and come several times each: rows of one step follow each other."""
    whole = all(value == int(value) and value >= 0 for value in values)
    return whole and all(a <= b for a, b in pairwise(values)) and 2 * len(set(values)) <= len(values)


def _quote(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else "'" + name.replace("'", "'\\''") + "'"
