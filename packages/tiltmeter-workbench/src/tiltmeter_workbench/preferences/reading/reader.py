"""Reads preference data in any supported layout into comparisons, with notes on what was assumed or left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import Row, parse_number, read_splits
from tiltmeter_workbench.preferences.reading.columns import Layout, find_layout
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.prompt_split import split_prompt
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.preferences.reading.vote_values import normalise_vote, vote_meanings

Floats = NDArray[np.float64]

EXAMPLE = '{"prompt": "What is 2 + 2?", "chosen": "It is 4.", "rejected": "It is 5."}'
NOBODY = "?"  # the rater of votes that name none
KINDS = 50  # different labels; a column with more holds texts
MOST = 10**8  # cells of items x raters; a table of votes beyond it does not fit a laptop


@dataclass(frozen=True)
class PreferenceData:
    """The comparisons of a file, with notes on how they were read.

    A misread column gives a report that looks right. So every assumption is noted, and rows that could not be used are
    counted. A file of labels without two answers each has `labels` and no pairs: agreement and raters can still be
    checked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pairs.jsonl"
    ...     _ = file.write_text(EXAMPLE)
    ...     read_preferences(file).input_notes
    ('chosen and rejected, as TRL reads them; prompt: prompt',)
    """

    pairs: Comparisons
    input_notes: tuple[str, ...]
    left_out: int
    labels: Ratings | None = None
    raw_rows: Sequence[Mapping[str, Any]] = ()  # by comparison: prompt, first and second as the file has them


def read_preferences(path: str | Path, columns: Mapping[str, str] | None = None) -> PreferenceData:
    """Read a file or folder; `columns` maps keys (`columns.KEYS`) to column names where these are not recognised."""
    rows, splits = _rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row if isinstance(name, str)))
    file_layout = find_layout(names, columns or {}, path)
    if file_layout.split:
        splits = [str(row.get(file_layout.split) or "") for row in rows]
    if not file_layout.two_sided:
        return _read_label_rows(rows, splits, file_layout, path)
    return (
        _read_vote_rows(rows, splits, file_layout, path)
        if file_layout.rater
        else _read_pair_rows(rows, splits, file_layout, path)
    )


def _rows(path: str | Path) -> tuple[list[Row], list[str]]:
    by_split = read_splits(path, EXAMPLE)
    rows = [row for part in by_split.values() for row in part]
    splits = [name for name, part in by_split.items() for _ in part]
    return rows, splits


def _read_pair_rows(rows: list[Row], splits: list[str], layout: Layout, path: object) -> PreferenceData:
    """One row is one comparison; its votes are in one column per rater, or in which answer was chosen."""
    notes, texts, usable = _texts(rows, layout)
    used = [rows[at] for at in usable]
    swapped: Floats | None = None
    if layout.decided:
        votes = np.ones((len(usable), 1))
    else:
        votes, swapped, more = _read_votes(used, layout, path)
        notes += more
    pairs = Comparisons(
        *texts,
        votes,
        ("label",) if len(layout.votes) < 2 else layout.votes,
        swapped,
        layout.order_known,
        _quality(used, layout),
        _several_splits([splits[at] for at in usable]),
        [at + 1 for at in usable],
    )
    return PreferenceData(
        pairs,
        _layout_notes(notes, layout, pairs),
        len(rows) - len(usable),
        None,
        [_raw_row(row, layout) for row in used],
    )


def _read_vote_rows(rows: list[Row], splits: list[str], layout: Layout, path: object) -> PreferenceData:
    """One row is one vote. Rows of the same two answers are one comparison, in whichever order they stand."""
    notes, (prompts, first, second), usable = _texts(rows, layout)
    used = [rows[at] for at in usable]
    here = [splits[at] for at in usable]
    votes, swapped = np.ones((len(used), 1)), None
    if not layout.decided:
        votes, swapped, more = _read_votes(used, layout, path)
        notes += more
    ends = [_ends(row, layout) for row in used] if layout.sides else list(zip(first, second, strict=True))
    keys: dict[tuple[object, ...], int] = {}
    item: list[int] = []
    start: list[int] = []
    turned = np.zeros(len(used), bool)
    for at, (row, (one, other)) in enumerate(zip(used, ends, strict=True)):
        name = tuple(str(row.get(column)) for column in layout.item) if layout.item else (prompts[at],)
        low, high = sorted((one, other))
        number = keys.setdefault((here[at], name, low, high), len(keys))
        if number == len(start):
            start.append(at)
        item.append(number)
        turned[at] = ends[start[number]] != (one, other)
    who, rater = _number_names(_rater(row, layout) for row in used)
    if NOBODY in who:
        notes.append(f"votes that name no rater, taken for those of one: {rater.count(who.index(NOBODY))}")
    if swapped is None:
        votes[turned] = 1.0 - votes[turned]
    else:  # what was shown first there was shown second here
        votes[turned], swapped[turned] = 1.0 - swapped[turned], 1.0 - votes[turned]
    table, repeats, differ = _table(item, rater, votes[:, 0], (len(start), len(who)), path)
    other_way = None if swapped is None else _table(item, rater, swapped[:, 0], table.shape, path)[0]
    notes += _repeat_notes(repeats, differ)
    if turned.any():
        notes.append(f"votes on the same answers in the other order, turned round: {int(turned.sum())}")
    pairs = Comparisons(
        [prompts[at] for at in start],
        [first[at] for at in start],
        [second[at] for at in start],
        table,
        who,
        other_way,
        layout.order_known and not turned.any(),
        None if (quality := _quality(used, layout)) is None else quality[start],
        _several_splits([here[at] for at in start]),
        [usable[at] + 1 for at in start],
    )
    notes.append(f"votes: {len(used)}, raters: {len(who)}, comparisons: {len(pairs)}")
    raw_rows = [_raw_row(used[at], layout) for at in start]
    return PreferenceData(pairs, _layout_notes(notes, layout, pairs), len(rows) - len(usable), None, raw_rows)


def _read_label_rows(rows: list[Row], splits: list[str], layout: Layout, path: object) -> PreferenceData:
    """Labels of single items, in any categories: there is nothing to compare, but raters agree or do not."""
    if layout.rater and not layout.item:
        raise AttachError(f"{path} has raters but nothing that names what they rated: --map item=COLUMN+COLUMN")
    values = [[normalise_vote(row.get(column)) for column in layout.votes] for row in rows]
    categories, code = _number_names(sorted({value for row in values for value in row if value}))
    if len(categories) > KINDS or (len(layout.votes) < 2 and not layout.rater):
        raise AttachError(
            f"{path} holds no comparisons that are recognised, and no labels by several raters in "
            f"{' and '.join(layout.votes)}. A comparison looks like {EXAMPLE}; for other names use --map, such as "
            "first=COLUMN,second=COLUMN,votes=COLUMN"
        )
    number = dict(zip(categories, code, strict=True))
    codes = np.array([[number.get(value, math.nan) for value in row] for row in values], float)
    notes = [f"labels without two answers to compare: {', '.join(categories[:6])} in {' and '.join(layout.votes)}"]
    raters: Sequence[str] = layout.votes
    items: Sequence[str] = ()
    blank = int(np.isnan(codes).all(axis=1).sum())
    if layout.rater:
        items, item = _number_names(
            " / ".join((split, *(str(row.get(column)) for column in layout.item))).removeprefix(" / ")
            for row, split in zip(rows, splits, strict=True)
        )
        raters, rater = _number_names(_rater(row, layout) for row in rows)
        codes, repeats, differ = _table(item, rater, codes[:, 0], (len(items), len(raters)), path)
        notes += _repeat_notes(repeats, differ)
        notes.append(f"an item is {' + '.join(layout.item)}, a rater {' + '.join(layout.rater)}")
    if blank:
        notes.append(f"rows without a label: {blank}")
    if not len(categories):
        raise AttachError(f"{path}: no row has a label in {' or '.join(layout.votes)}")
    nothing = Comparisons((), (), (), np.zeros((0, len(raters))), raters)
    return PreferenceData(nothing, tuple(notes), blank, Ratings(codes, categories, raters, items))


def _texts(rows: Sequence[Row], layout: Layout) -> tuple[list[str], tuple[list[str], list[str], list[str]], list[int]]:
    """Notes, prompts and answers of the rows that have both answers, and the numbers of these rows."""
    notes: list[str] = []
    prompts: list[str] = []
    first: list[str] = []
    second: list[str] = []
    usable: list[int] = []
    alone = 0
    for at, row in enumerate(rows):
        if layout.first and (_is_missing(row.get(layout.first)) or _is_missing(row.get(layout.second))):
            continue
        raw_prompt = _raw_prompt(row, layout)
        if not layout.first:
            raw_prompt = raw_prompt or " / ".join(str(row.get(name)) for name in layout.item)
        prompt, one, other, apart = split_prompt(raw_prompt, row.get(layout.first), row.get(layout.second))
        alone += not apart
        for texts, text in ((prompts, prompt), (first, one), (second, other)):
            texts.append(text)
        usable.append(at)
    if not usable:
        raise AttachError(f"no row has both {layout.first} and {layout.second}; a row looks like {EXAMPLE}")
    if len(rows) > len(usable):
        notes.append(f"rows left out because {layout.first} or {layout.second} is missing: {len(rows) - len(usable)}")
    if alone:
        notes.append(
            f"rows whose prompt could not be told from the answers: {alone}; each counts as a prompt of its own, and "
            "whatever stands before the answers is judged with them"
        )
    if not layout.first:
        notes.append("the file has no texts: only what votes alone tell can be said")
    return notes, (prompts, first, second), usable


def _raw_prompt(row: Row, layout: Layout) -> Any:
    """The prompt as the file has it; None where it has none."""
    parts = [row[name] for name in layout.prompt if not _is_missing(row.get(name))]
    if len(layout.prompt) < 2:
        return parts[0] if parts else None
    return "\n\n".join(str(value) for value in parts if value)


def _raw_row(row: Row, layout: Layout) -> dict[str, Any]:
    """The row as a trainer reads it: messages stay messages, and a prompt inside the answers stays there."""
    raw_prompt = _raw_prompt(row, layout)
    prompt = {} if raw_prompt is None else {"prompt": raw_prompt}
    return {**prompt, "first": row.get(layout.first), "second": row.get(layout.second)}


def _read_votes(rows: Sequence[Row], layout: Layout, path: object) -> tuple[Floats, Floats | None, list[str]]:
    """Votes (rows x columns) and those with the answers swapped."""
    vote_columns = (*layout.votes, *layout.swapped)
    names = (layout.first, layout.second) if layout.first else layout.sides or ("1", "2")
    where = f"{path}, column {' and '.join(vote_columns)}"
    votes, sentence, lost = vote_meanings(
        (row.get(name) for row in rows for name in vote_columns), names, layout.answers, where
    )
    if not votes:
        raise AttachError(f"{where}: no row has a vote")

    def table(columns: Iterable[str]) -> Floats:
        return np.array(
            [[votes.get(normalise_vote(row.get(name)), math.nan) for name in columns] for row in rows], float
        )

    notes = [f"in {' and '.join(vote_columns)}, {sentence}"]
    if lost:
        notes.append(f"votes that are neither answer nor a tie, counted as none: {lost}")
    plain_votes = table(layout.votes)
    if blank := int(np.isnan(plain_votes).all(axis=1).sum()):
        notes.append(f"rows without a vote: {blank}")
    return plain_votes, table(layout.swapped) if layout.swapped else None, notes


def _table(
    item: Sequence[int], rater: Sequence[int], value: Floats, shape: tuple[int, int], path: object
) -> tuple[Floats, int, int]:
    """Items x raters from one vote per row; votes given twice are counted, and the first of them stays."""
    if shape[0] * shape[1] > MOST:
        raise AttachError(f"{path}: {shape[0]} items by {shape[1]} raters is too large a table; read it in parts")
    finite = np.flatnonzero(np.isfinite(value))
    cell = np.asarray(item, np.int64)[finite] * shape[1] + np.asarray(rater, np.int64)[finite]
    once, where, back = np.unique(cell, return_index=True, return_inverse=True)
    table = np.full(shape[0] * shape[1], np.nan)
    table[once] = value[finite][where]
    differ = int((value[finite] != value[finite][where][back]).sum())
    return table.reshape(shape), len(finite) - len(once), differ


def _number_names(names: Iterable[str]) -> tuple[tuple[str, ...], list[int]]:
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(name, len(number_of)) for name in names]
    return tuple(number_of), numbers


def _rater(row: Row, layout: Layout) -> str:
    return " / ".join(str(row[name]) for name in layout.rater if row.get(name) not in (None, "")) or NOBODY


def _ends(row: Row, layout: Layout) -> tuple[str, str]:
    assert layout.sides is not None
    return str(row.get(layout.sides[0])), str(row.get(layout.sides[1]))


def _quality(rows: Sequence[Row], layout: Layout) -> Floats | None:
    if layout.quality is None:
        return None
    return np.array([[parse_number(row.get(name)) for name in layout.quality] for row in rows], float).reshape(-1, 2)


def _is_missing(value: object) -> bool:
    """A missing cell; in tables from pandas it is NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _several_splits(splits: Sequence[str]) -> Sequence[str]:
    return splits if len(set(splits)) > 1 else ()


def _repeat_notes(repeats: int, differ: int) -> list[str]:
    if not repeats:
        return []
    return [f"votes by a rater on the same item again, of which the first counts: {repeats} ({differ} not the same)"]


def _layout_notes(notes: Sequence[str], layout: Layout, pairs: Comparisons) -> tuple[str, ...]:
    if layout.decided:
        form = f"{layout.first} and {layout.second}, as TRL reads them"
    elif layout.first:
        form = f"{layout.first} against {layout.second}"
    else:
        form = "votes on " + (" against ".join(layout.sides) if layout.sides else "two answers")
    prompt = f"prompt: {' + '.join(layout.prompt)}" if layout.prompt else "prompt: what both answers begin with"
    more = [form + (f"; {prompt}" if layout.first else "")]
    if not layout.decided and layout.order_known and not pairs.order_known:
        more.append("votes on the same answers were given in both orders, so nothing is said about position")
    elif not layout.decided and not pairs.order_known:
        more.append(
            "whether the first answer was also shown first is not known, so nothing is said about position; if it was, "
            "name the columns: --map first=COLUMN,second=COLUMN"
        )
    if layout.quality:
        more.append(f"quality of each answer: {' and '.join(layout.quality)}")
    if len(pairs.splits):
        more.append(f"splits: {', '.join(sorted(set(pairs.splits)))[:200]}")
    return (*more, *notes)
