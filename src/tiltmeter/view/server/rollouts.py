"""The rollouts screen: a page of rollouts by filter and order, one rollout in full, its group and its start answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from msgspec import UNSET

from tiltmeter.errors import StoreError
from tiltmeter.rundir.parquet import open_sealed
from tiltmeter.rundir.reading_room.notes import RunNotes
from tiltmeter.rundir.run_path import file_status
from tiltmeter.rundir.seal import map_file
from tiltmeter.view.payloads.rollouts import (
    RewardPart,
    Rollout,
    RolloutGroup,
    RolloutPage,
    RolloutRow,
    StartAnswer,
    TextHit,
)
from tiltmeter.view.screens.rollouts import full_rollout, score_rows
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.server.rollout_files import StepFileReader, find_step_file, prompt_hash, text_hashes, text_of
from tiltmeter.view.server.rollout_filters import Ordering, RolloutFilter, RolloutKey, flag_word, parse_rollout_id
from tiltmeter.view.server.rollout_index import RolloutIndex
from tiltmeter.view.server.rollout_query import parse_query
from tiltmeter.view.server.rollout_search import TextSearchResult, search
from tiltmeter.view.server.text_match import TextMatch

__all__ = ["RolloutIndex", "group", "rollout", "rollouts"]

MOST_ROWS = 100  # a page
GROUP_ROWS = 256  # shown of one prompt group, highest reward first
BEGINNING = 200  # characters of a completion in a list


class Snippet(NamedTuple):
    """What a list shows of a text, and where in it something was found."""

    text: str = ""
    hit: TextHit | None = None


ROW_COLUMNS = "attempt, step, row, rank, place, prompt_group, reward, flag, gold, length, truncated, advantage"
AROUND = 80  # characters on either side of what was searched for
_Texts = dict[RolloutKey, Snippet]


def rollouts(
    index: RolloutIndex,
    filters: Mapping[str, Any],
    sort: str = "step",
    order: str = "down",
    after: str = "",
    limit: int = 50,
    *,
    cancel: threading.Event | None = None,
) -> RolloutPage:
    """A page of the rollouts that match. Raises `ValueError` for invalid filters.

    With texts to find, `searched` of `to_search` rows were looked at so far, newest steps first; the search goes on,
    and who asks again gets more. `cancel` ends the wait for it.
    """
    began = time.perf_counter()
    row_filter = RolloutFilter.of(filters).with_tags(index.reader.notes)
    query = parse_query(str(filters.get("find", "")))
    ordering = Ordering.of(query.sort or sort, query.order or order)
    if not 1 <= limit <= MOST_ROWS:
        raise ValueError(f"limit is a whole number from 1 to {MOST_ROWS}")
    beyond, at = ordering.after(after) if after else ("TRUE", ())
    index.keep_up()
    if index.ready < 1.0 and row_filter.steps is not None and row_filter.steps[0] == row_filter.steps[1]:
        _fetch_step(index, row_filter.steps[0], row_filter.attempt)
    search_result: TextSearchResult | None = None
    where = row_filter.where
    with index.cursor() as cursor:
        if row_filter.texts:
            search_result = search(index, row_filter, cancel=cancel)
            cursor.register("matches", search_result.rows)
            where += " AND (attempt, step, rank, place) IN (SELECT (attempt, step, rank, place) FROM matches)"
        (total,) = cursor.execute(f"SELECT count(*) FROM rollouts WHERE {where}", row_filter.values).fetchone() or (0,)
        cursor.execute(
            f"SELECT {ROW_COLUMNS}, {ordering.key} FROM rollouts WHERE {where} AND {beyond} "
            f"ORDER BY {ordering.sql} LIMIT ?",
            [*row_filter.values, *at, limit + 1],
        )
        rows = cursor.fetchall()
    page_rows, more = rows[:limit], len(rows) > limit
    texts = _text_starts(index, page_rows, row_filter.texts)
    index.reader.notes.poll()
    return RolloutPage(
        rows=[_rollout_row(row, texts, index.reader.notes) for row in page_rows],
        total=total,
        rollouts=index.rollouts,
        after=ordering.cursor(page_rows[-1][-1], page_rows[-1][:3]) if more else "",
        ready=index.ready,
        ms=round(1000.0 * (time.perf_counter() - began), 1),
        searched=UNSET if search_result is None else search_result.searched,
        to_search=UNSET if search_result is None else search_result.of,
        unsearchable=UNSET if search_result is None else search_result.unsearchable,
    )


def rollout(of: RolloutIndex | RunReader, id: str) -> Rollout:
    """One rollout in full. Raises `ValueError` if `id` is none, `KeyError` if there is no such rollout. A
    run that is not indexed will do; labels that were asked for at other steps are then unknown."""
    key = parse_rollout_id(id)
    with open_index(of) as index, index.cursor() as cursor:
        return read_rollout(index, find_row(index, cursor, key))


def group(of: RolloutIndex | RunReader, id: str, find: str = "") -> RolloutGroup:
    """A rollout, the others of its prompt group, and the same prompt at the start. `find`: a query, whose texts are
    marked."""
    wanted = parse_query(find).texts
    key = parse_rollout_id(id)
    with open_index(of) as index, index.cursor() as cursor:
        own_row = find_row(index, cursor, key)
        attempt, step, number = own_row[0], own_row[1], own_row[5]
        same, values = "attempt = ? AND step = ? AND prompt_group = ?", [attempt, step, number]
        rows = cursor.execute(
            f"SELECT {ROW_COLUMNS} FROM rollouts WHERE {same} ORDER BY reward DESC NULLS LAST, row LIMIT {GROUP_ROWS}",
            values,
        ).fetchall()
        mean, spread = cursor.execute(
            f"SELECT avg(reward), stddev_pop(reward) FROM rollouts WHERE {same}", values
        ).fetchone() or (None, None)
        full = read_rollout(index, own_row)
        base, why = _start_answer(index, cursor, full.prompt, own_row)
        texts = _text_starts(index, rows)
        group_rows = [_rollout_row(row, texts, index.reader.notes) for row in rows]
    return RolloutGroup(
        rollout=full,
        rows=group_rows,
        mean=mean,
        spread=spread,
        base=base,
        base_why=why,
        hits=[hit for name in ("prompt", "completion") for hit in find_hits(getattr(full, name), name, wanted)],
    )


def find_hits(text: str | None, name: Literal["prompt", "completion"], wanted: Sequence[TextMatch]) -> list[TextHit]:
    """Where the texts stand, without overlaps, in the order of the text, counted as JavaScript counts characters."""
    if not text:
        return []
    spans = sorted({span for match in wanted if name in match.columns for span in match.spans(text)})
    units = np.concatenate(([0], np.cumsum([1 + (ord(one) > 0xFFFF) for one in text]))) if spans else np.empty(0)
    hits: list[TextHit] = []
    end = 0
    for start, stop in spans:
        if start >= end:
            hits.append(TextHit(start=int(units[start]), stop=int(units[stop]), where=name))
            end = stop
    return hits


@contextmanager
def open_index(of: RolloutIndex | RunReader) -> Iterator[RolloutIndex]:
    """The index, or for a run without one, a temporary index of what is needed."""
    if isinstance(of, RolloutIndex):
        of.keep_up()
        of.reader.notes.poll()
    with nullcontext(of) if isinstance(of, RolloutIndex) else closing(RolloutIndex(of)) as index:
        yield index


def _fetch_step(index: RolloutIndex, step: int, attempt: int | None) -> None:
    """Insert a step before the table is complete; a missing or damaged step matches nothing."""
    for attempt_number in index.run.attempts() if attempt is None else [attempt]:
        try:
            index.fetch(attempt_number, step)
        except (KeyError, StoreError):
            continue


def find_row(index: RolloutIndex, cursor: duckdb.DuckDBPyConnection, key: RolloutKey) -> tuple[Any, ...]:
    """The row of the table; its step is inserted first if it is missing."""
    try:
        index.fetch(key[0], key[1])
    except StoreError as error:
        raise KeyError(f"rollout {rollout_id(*key)} cannot be read: {error}") from error
    row = cursor.execute(
        f"SELECT {ROW_COLUMNS} FROM rollouts WHERE attempt = ? AND step = ? AND row = ?", list(key)
    ).fetchone()
    if row is None:
        raise KeyError(f"there is no rollout {rollout_id(*key)}")
    return tuple(row)


def _rollout_row(row: Sequence[Any], texts: _Texts, notes: RunNotes) -> RolloutRow:
    id = rollout_id(*row[:3])
    return RolloutRow(
        id=id,
        attempt=row[0],
        step=row[1],
        group=row[5],
        reward=row[6],
        flag=flag_word(row[7]),
        gold=row[8],
        length=row[9],
        truncated=row[10],
        advantage=row[11],
        text=texts.get((row[0], row[1], row[2]), Snippet()).text,
        hit=texts.get((row[0], row[1], row[2]), Snippet()).hit,
        tags=notes.tags_of(id),
        notes=notes.note_count(id),
    )


def _text_starts(index: RolloutIndex, rows: Sequence[Sequence[Any]], wanted: Sequence[TextMatch] = ()) -> _Texts:
    """The beginnings of the completions of these rows, or what stands around the first text that was searched for;
    none where the text is not stored."""
    columns = ("completion", "prompt") if wanted else ("completion",)
    starts: _Texts = {}
    reader = StepFileReader()
    files: dict[tuple[int, int, int], list[Sequence[Any]]] = {}
    for row in sorted(rows, key=lambda row: (row[0], row[1], row[3], row[4])):
        files.setdefault((row[0], row[1], row[3]), []).append(row)
    for file_key, file_rows in files.items():
        try:
            cells = reader.read_cells(find_step_file(index.run, *file_key), [row[4] for row in file_rows], columns)
        except StoreError:
            continue
        for row, cell in zip(file_rows, cells, strict=True):
            starts[row[0], row[1], row[2]] = _snippet(cell, wanted)
    return starts


def _units(text: str) -> int:
    """Its length as JavaScript counts."""
    return len(text) + sum(one > "\uffff" for one in text)


def _snippet(cell: dict[str, Any], wanted: Sequence[TextMatch]) -> Snippet:
    """The text of a row in a list: around the first hit, else its beginning."""
    for match in wanted:
        for name in reversed(match.columns):
            text = text_of(cell, name)
            if text and (spans := match.spans(text, most=1)):
                start, stop = spans[0]
                low, stop = max(0, start - AROUND), min(stop, start + BEGINNING)
                before = "…" * bool(low) + text[low:start]
                places = (_units(before), _units(before + text[start:stop]))
                where: Literal["prompt", "completion"] = "prompt" if name == "prompt" else "completion"
                return Snippet(
                    f"{before}{text[start : stop + AROUND]}", TextHit(start=places[0], stop=places[1], where=where)
                )
    return Snippet((text_of(cell, "completion") or "")[:BEGINNING])


def read_rollout(index: RolloutIndex, row: Sequence[Any]) -> Rollout:
    """The rollout of a row of the table, with its texts as they are stored."""
    try:
        file = find_step_file(index.run, row[0], row[1], row[3])
        (cell,) = StepFileReader().read_cells(
            file,
            [row[4]],
            ("prompt", "completion", "facts", "turns", "env", "stop", "artifacts", "step_reward", "rewards."),
        )
    except StoreError:
        cell = {}  # deleted since, or damaged: its numbers are still known
    completion = text_of(cell, "completion")
    names = [n for n in cell if n.startswith("rewards.") and not n.endswith("_flag") and cell.get(f"{n}_flag")]
    rewards = [
        RewardPart(
            name=name.removeprefix("rewards."),
            value=cell[name] if cell[f"{name}_flag"] == "ok" else None,
            flag="" if cell[f"{name}_flag"] == "ok" else str(cell[f"{name}_flag"]),
        )
        for name in names  # of a packed file, where another step had more functions, only this one's have a flag
    ]
    return full_rollout(
        _rollout_row(row, {(row[0], row[1], row[2]): Snippet((completion or "")[:BEGINNING])}, index.reader.notes),
        text_of(cell, "prompt"),
        completion,
        rewards,
        score_rows(completion, cell.get("step_reward") or ()),
        text_of(cell, "facts") or "",
        *(text_of(cell, name) for name in ("turns", "env", "stop", "artifacts")),
        capped=any(cell.get(f"{name}_sha256") is not None for name in ("prompt", "completion")),
    )


def _start_answer(
    index: RolloutIndex, cursor: duckdb.DuckDBPyConnection, prompt: str | None, own_row: Sequence[Any]
) -> tuple[StartAnswer | None, str]:
    """The answer to the same prompt at the start: by the reference, else at the earliest step; or why there is none."""
    if prompt is None:
        return None, "the text of prompts is not stored"
    if (text := _reference_answer(index, prompt)) is not None:
        return StartAnswer(step=None, text=text, source="reference"), ""
    row = cursor.execute(
        "SELECT attempt, step, row, rank, place FROM rollouts WHERE prompt = ? AND step < ? "
        "AND (NOT abandoned OR attempt = ?) ORDER BY step, attempt DESC, row LIMIT 1",
        [prompt_hash(prompt), own_row[1], own_row[0]],
    ).fetchone()
    if row is None:
        if index.ready < 1.0:
            return None, f"rollouts are still being indexed ({index.ready:.0%} so far): ask again in a moment"
        return None, f"step {own_row[1]} is the first with this prompt, and the reference does not hold it"
    try:
        (cell,) = StepFileReader().read_cells(
            find_step_file(index.run, row[0], row[1], row[3]), [row[4]], ("completion",)
        )
    except StoreError as error:
        return None, f"step {row[1]} had this prompt and cannot be read: {error}"
    text = text_of(cell, "completion")
    if text is None:
        return None, f"step {row[1]} had this prompt, without the text of completions"
    return StartAnswer(step=row[1], text=text, source=f"attempt {row[0]}, step {row[1]}"), ""


def _reference_answer(index: RolloutIndex, prompt: str) -> str | None:
    """The reference policy's answer to a prompt, if it was given one."""
    path = index.run.path / "reference.parquet"
    if file_status(path) is None:
        return None
    try:
        sealed, _ = open_sealed(map_file(path), str(path))
        prompts = sealed.read(None, ("prompt", "prompt_raw"))
        if (row := text_hashes(prompts).index(pa.scalar(prompt_hash(prompt), pa.uint64())).as_py()) < 0:
            return None
        answers = sealed.read(None, ("completion", "completion_raw"))
        return text_of(answers.slice(row, 1).to_pylist()[0], "completion")
    except (StoreError, pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError):
        return None  # the monitor reports damage; an earlier step is tried instead
