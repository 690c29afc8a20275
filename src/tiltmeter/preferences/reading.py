"""Preference data as comparisons, whatever form the file has, with a word on all that was assumed or left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter.preferences.columns import Layout, layout
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.preferences.ratings import Ratings
from tiltmeter.preferences.turns import parted
from tiltmeter.preferences.voting import meaning, plain
from tiltmeter.rows import Row, number, read_splits

Floats = NDArray[np.float64]

EXAMPLE = '{"prompt": "What is 2 + 2?", "chosen": "It is 4.", "rejected": "It is 5."}'
NOBODY = "?"  # the rater of votes that name none
KINDS = 50  # different labels; a column with more holds texts
MOST = 10**8  # cells of items x raters; a table of votes beyond it does not fit a laptop


@dataclass(frozen=True)
class Reading:
    """The comparisons of a file, and what a person should know about how they were read.

    A column taken for something it is not gives a report that looks right. So everything assumed is said, and rows that
    could not be used are counted. A file of labels without two answers each has `labels` and no pairs: agreement and
    raters can still be asked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pairs.jsonl"
    ...     _ = file.write_text(EXAMPLE)
    ...     read(file).told
    ('chosen and rejected, as TRL reads them; prompt: prompt',)
    """

    pairs: Comparisons
    told: tuple[str, ...]
    left_out: int
    labels: Ratings | None = None
    given: Sequence[Mapping[str, Any]] = ()  # by comparison: prompt, first and second as the file has them


def read(path: str | Path, columns: Mapping[str, str] | None = None) -> Reading:
    """Read a file or folder; `columns` says which column is what (`columns.KEYS`) where names do not tell."""
    rows, splits = _rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row if isinstance(name, str)))
    found = layout(names, columns or {}, path)
    if found.split:
        splits = [str(row.get(found.split) or "") for row in rows]
    if not found.two_sided:
        return _labels(rows, splits, found, path)
    return _voted(rows, splits, found, path) if found.rater else _compared(rows, splits, found, path)


def _rows(path: str | Path) -> tuple[list[Row], list[str]]:
    by_split = read_splits(path, EXAMPLE)
    rows = [row for part in by_split.values() for row in part]
    splits = [name for name, part in by_split.items() for _ in part]
    return rows, splits


def _compared(rows: list[Row], splits: list[str], found: Layout, path: object) -> Reading:
    """One row is one comparison; its votes are in one column per rater, or in which answer was chosen."""
    told, texts, kept = _texts(rows, found)
    used = [rows[at] for at in kept]
    swapped: Floats | None = None
    if found.decided:
        votes = np.ones((len(kept), 1))
    else:
        votes, swapped, more = _meant(used, found, path)
        told += more
    pairs = Comparisons(
        *texts,
        votes,
        ("label",) if len(found.votes) < 2 else found.votes,
        swapped,
        found.order_known,
        _quality(used, found),
        _kept_splits([splits[at] for at in kept]),
        [at + 1 for at in kept],
    )
    return Reading(pairs, _said(told, found, pairs), len(rows) - len(kept), None, [_given(row, found) for row in used])


def _voted(rows: list[Row], splits: list[str], found: Layout, path: object) -> Reading:
    """One row is one vote. Rows of the same two answers are one comparison, in whichever order they stand."""
    told, (prompts, first, second), kept = _texts(rows, found)
    used = [rows[at] for at in kept]
    here = [splits[at] for at in kept]
    votes, swapped = np.ones((len(used), 1)), None
    if not found.decided:
        votes, swapped, more = _meant(used, found, path)
        told += more
    ends = [_ends(row, found) for row in used] if found.sides else list(zip(first, second, strict=True))
    keys: dict[tuple[object, ...], int] = {}
    item: list[int] = []
    start: list[int] = []
    turned = np.zeros(len(used), bool)
    for at, (row, (one, other)) in enumerate(zip(used, ends, strict=True)):
        name = tuple(str(row.get(column)) for column in found.item) if found.item else (prompts[at],)
        low, high = sorted((one, other))
        number = keys.setdefault((here[at], name, low, high), len(keys))
        if number == len(start):
            start.append(at)
        item.append(number)
        turned[at] = ends[start[number]] != (one, other)
    who, rater = _numbered(_rater(row, found) for row in used)
    if NOBODY in who:
        told.append(f"votes that name no rater, taken for those of one: {rater.count(who.index(NOBODY))}")
    if swapped is None:
        votes[turned] = 1.0 - votes[turned]
    else:  # what was shown first there was shown second here
        votes[turned], swapped[turned] = 1.0 - swapped[turned], 1.0 - votes[turned]
    table, repeats, differ = _table(item, rater, votes[:, 0], (len(start), len(who)), path)
    other_way = None if swapped is None else _table(item, rater, swapped[:, 0], table.shape, path)[0]
    told += _repeated(repeats, differ)
    if turned.any():
        told.append(f"votes on the same answers in the other order, turned round: {int(turned.sum())}")
    pairs = Comparisons(
        [prompts[at] for at in start],
        [first[at] for at in start],
        [second[at] for at in start],
        table,
        who,
        other_way,
        found.order_known and not turned.any(),
        None if (quality := _quality(used, found)) is None else quality[start],
        _kept_splits([here[at] for at in start]),
        [kept[at] + 1 for at in start],
    )
    told.append(f"votes: {len(used)}, raters: {len(who)}, comparisons: {len(pairs)}")
    given = [_given(used[at], found) for at in start]
    return Reading(pairs, _said(told, found, pairs), len(rows) - len(kept), None, given)


def _labels(rows: list[Row], splits: list[str], found: Layout, path: object) -> Reading:
    """Labels of single items, in any categories: there is nothing to compare, but raters agree or do not."""
    if found.rater and not found.item:
        raise AttachError(f"{path} has raters but nothing that names what they rated: --map item=COLUMN+COLUMN")
    values = [[plain(row.get(column)) for column in found.votes] for row in rows]
    categories, code = _numbered(sorted({value for row in values for value in row if value}))
    if len(categories) > KINDS or (len(found.votes) < 2 and not found.rater):
        raise AttachError(
            f"{path} holds no comparisons that are recognised, and no labels by several raters in "
            f"{' and '.join(found.votes)}. A comparison looks like {EXAMPLE}; for other names use --map, such as "
            "first=COLUMN,second=COLUMN,votes=COLUMN"
        )
    number = dict(zip(categories, code, strict=True))
    codes = np.array([[number.get(value, math.nan) for value in row] for row in values], float)
    told = [f"labels without two answers to compare: {', '.join(categories[:6])} in {' and '.join(found.votes)}"]
    raters: Sequence[str] = found.votes
    items: Sequence[str] = ()
    blank = int(np.isnan(codes).all(axis=1).sum())
    if found.rater:
        items, item = _numbered(
            " / ".join((split, *(str(row.get(column)) for column in found.item))).removeprefix(" / ")
            for row, split in zip(rows, splits, strict=True)
        )
        raters, rater = _numbered(_rater(row, found) for row in rows)
        codes, repeats, differ = _table(item, rater, codes[:, 0], (len(items), len(raters)), path)
        told += _repeated(repeats, differ)
        told.append(f"an item is {' + '.join(found.item)}, a rater {' + '.join(found.rater)}")
    if blank:
        told.append(f"rows without a label: {blank}")
    if not len(categories):
        raise AttachError(f"{path}: no row has a label in {' or '.join(found.votes)}")
    nothing = Comparisons((), (), (), np.zeros((0, len(raters))), raters)
    return Reading(nothing, tuple(told), blank, Ratings(codes, categories, raters, items))


def _texts(rows: Sequence[Row], found: Layout) -> tuple[list[str], tuple[list[str], list[str], list[str]], list[int]]:
    """Prompts and answers of the rows that have both answers, what is to be said, and which rows those are."""
    told: list[str] = []
    prompts: list[str] = []
    first: list[str] = []
    second: list[str] = []
    kept: list[int] = []
    alone = 0
    for at, row in enumerate(rows):
        if found.first and (_none(row.get(found.first)) or _none(row.get(found.second))):
            continue
        asked = _asked(row, found)
        if not found.first:
            asked = asked or " / ".join(str(row.get(name)) for name in found.item)
        prompt, one, other, apart = parted(asked, row.get(found.first), row.get(found.second))
        alone += not apart
        for texts, text in ((prompts, prompt), (first, one), (second, other)):
            texts.append(text)
        kept.append(at)
    if not kept:
        raise AttachError(f"no row has both {found.first} and {found.second}; a row looks like {EXAMPLE}")
    if len(rows) > len(kept):
        told.append(f"rows left out because {found.first} or {found.second} is missing: {len(rows) - len(kept)}")
    if alone:
        told.append(
            f"rows whose prompt could not be told from the answers: {alone}; each counts as a prompt of its own, and "
            "whatever stands before the answers is judged with them"
        )
    if not found.first:
        told.append("the file has no texts: only what votes alone tell can be said")
    return told, (prompts, first, second), kept


def _asked(row: Row, found: Layout) -> Any:
    """The prompt as the file has it; None where it has none."""
    known = [row[name] for name in found.prompt if not _none(row.get(name))]
    if len(found.prompt) < 2:
        return known[0] if known else None
    return "\n\n".join(str(value) for value in known if value)


def _given(row: Row, found: Layout) -> dict[str, Any]:
    """What a trainer would be given: messages stay messages, and a prompt that both answers begin with stays there."""
    asked = _asked(row, found)
    prompt = {} if asked is None else {"prompt": asked}
    return {**prompt, "first": row.get(found.first), "second": row.get(found.second)}


def _meant(rows: Sequence[Row], found: Layout, path: object) -> tuple[Floats, Floats | None, list[str]]:
    """Votes (rows x columns) and those with the answers swapped."""
    wanted = (*found.votes, *found.swapped)
    names = (found.first, found.second) if found.first else found.sides or ("1", "2")
    where = f"{path}, column {' and '.join(wanted)}"
    votes, told, lost = meaning((row.get(name) for row in rows for name in wanted), names, found.answers, where)
    if not votes:
        raise AttachError(f"{where}: no row has a vote")

    def table(columns: Iterable[str]) -> Floats:
        return np.array([[votes.get(plain(row.get(name)), math.nan) for name in columns] for row in rows], float)

    said = [f"in {' and '.join(wanted)}, {told}"]
    if lost:
        said.append(f"votes that are neither answer nor a tie, counted as none: {lost}")
    plain_votes = table(found.votes)
    if blank := int(np.isnan(plain_votes).all(axis=1).sum()):
        said.append(f"rows without a vote: {blank}")
    return plain_votes, table(found.swapped) if found.swapped else None, said


def _table(
    item: Sequence[int], rater: Sequence[int], value: Floats, shape: tuple[int, int], path: object
) -> tuple[Floats, int, int]:
    """Items x raters from one vote per row; votes given twice are counted, and the first of them stays."""
    if shape[0] * shape[1] > MOST:
        raise AttachError(f"{path}: {shape[0]} items by {shape[1]} raters is too large a table; read it in parts")
    known = np.flatnonzero(np.isfinite(value))
    cell = np.asarray(item, np.int64)[known] * shape[1] + np.asarray(rater, np.int64)[known]
    once, where, back = np.unique(cell, return_index=True, return_inverse=True)
    table = np.full(shape[0] * shape[1], np.nan)
    table[once] = value[known][where]
    differ = int((value[known] != value[known][where][back]).sum())
    return table.reshape(shape), len(known) - len(once), differ


def _numbered(names: Iterable[str]) -> tuple[tuple[str, ...], list[int]]:
    seen: dict[str, int] = {}
    numbers = [seen.setdefault(name, len(seen)) for name in names]
    return tuple(seen), numbers


def _rater(row: Row, found: Layout) -> str:
    return " / ".join(str(row[name]) for name in found.rater if row.get(name) not in (None, "")) or NOBODY


def _ends(row: Row, found: Layout) -> tuple[str, str]:
    assert found.sides is not None
    return str(row.get(found.sides[0])), str(row.get(found.sides[1]))


def _quality(rows: Sequence[Row], found: Layout) -> Floats | None:
    if found.quality is None:
        return None
    return np.array([[number(row.get(name)) for name in found.quality] for row in rows], float).reshape(-1, 2)


def _none(value: object) -> bool:
    """A missing cell; tables that went through pandas say so with a number that is none."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _kept_splits(splits: Sequence[str]) -> Sequence[str]:
    return splits if len(set(splits)) > 1 else ()


def _repeated(repeats: int, differ: int) -> list[str]:
    if not repeats:
        return []
    return [f"votes by a rater on the same item again, of which the first counts: {repeats} ({differ} not the same)"]


def _said(told: Sequence[str], found: Layout, pairs: Comparisons) -> tuple[str, ...]:
    if found.decided:
        form = f"{found.first} and {found.second}, as TRL reads them"
    elif found.first:
        form = f"{found.first} against {found.second}"
    else:
        form = "votes on " + (" against ".join(found.sides) if found.sides else "two answers")
    prompt = f"prompt: {' + '.join(found.prompt)}" if found.prompt else "prompt: what both answers begin with"
    more = [form + (f"; {prompt}" if found.first else "")]
    if not found.decided and found.order_known and not pairs.order_known:
        more.append("votes on the same answers were given in both orders, so nothing is said about position")
    elif not found.decided and not pairs.order_known:
        more.append(
            "whether the first answer was also shown first is not known, so nothing is said about position; if it was, "
            "name the columns: --map first=COLUMN,second=COLUMN"
        )
    if found.quality:
        more.append(f"quality of each answer: {' and '.join(found.quality)}")
    if len(pairs.splits):
        more.append(f"splits: {', '.join(sorted(set(pairs.splits)))[:200]}")
    return (*more, *told)
