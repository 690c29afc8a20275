"""S2, what the model wrote: a page of rollouts by filter and order, one of them in full, its group and its base."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import duckdb
import pyarrow as pa

from tiltmeter.dashboard.rollout_files import Reader, hashes, locate, prompt_hash, text_of
from tiltmeter.dashboard.rollout_filters import Chosen, Id, Ordering, flag_word, parse
from tiltmeter.dashboard.rollout_index import RolloutIndex
from tiltmeter.dashboard.rollout_search import Found, search
from tiltmeter.errors import StoreError
from tiltmeter.page.book import Book
from tiltmeter.page.rollouts import steps
from tiltmeter.page.samples import rollout_id
from tiltmeter.parquet import open_sealed

__all__ = ["RolloutIndex", "group", "rollout", "rollouts"]

MOST_ROWS = 100  # a page
GROUP_ROWS = 256  # shown of one prompt group, best paid first
BEGINNING = 200  # characters of a completion in a list

_COLUMNS = "attempt, step, row, rank, place, prompt_group, reward, flag, gold, length, truncated, advantage"
_Text = dict[Id, str]


def rollouts(
    index: RolloutIndex,
    filters: Mapping[str, Any],
    sort: str = "step",
    order: str = "down",
    after: str = "",
    limit: int = 50,
    *,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """A page of the rollouts that match, `Rollouts` of the page's types. Raises `ValueError` for what cannot be asked.

    With `phrase`, text is searched, newest steps first, within limits: `searched` of `to_search` rows, and `cancel`
    ends it.
    """
    began = time.perf_counter()
    chosen, ordering = Chosen.of(filters), Ordering.of(sort, order)
    if not 1 <= limit <= MOST_ROWS:
        raise ValueError(f"limit is a whole number from 1 to {MOST_ROWS}")
    beyond, at = ordering.after(after) if after else ("TRUE", ())
    index.keep_up()
    if index.ready < 1.0 and chosen.steps is not None and chosen.steps[0] == chosen.steps[1]:
        _fetch_step(index, chosen.steps[0], chosen.attempt)
    found: Found | None = None
    where = chosen.where
    with index.cursor() as cursor:
        if chosen.phrase:
            found = search(index, chosen, fresh=not after, cancel=cancel)
            cursor.register("found", found.rows)
            where += " AND (attempt, step, row) IN (SELECT (attempt, step, row) FROM found)"
        (total,) = cursor.execute(f"SELECT count(*) FROM rollouts WHERE {where}", chosen.values).fetchone() or (0,)
        cursor.execute(
            f"SELECT {_COLUMNS}, {ordering.key} FROM rollouts WHERE {where} AND {beyond} "
            f"ORDER BY {ordering.sql} LIMIT ?",
            [*chosen.values, *at, limit + 1],
        )
        rows = cursor.fetchall()
    shown, more = rows[:limit], len(rows) > limit
    texts = _beginnings(index, shown)
    told = {"searched": found.searched, "to_search": found.of} if found is not None else {}
    return {
        "rows": [_row(row, texts) for row in shown],
        "total": total,
        "rollouts": index.rollouts,
        "after": ordering.cursor(shown[-1][-1], shown[-1][:3]) if more else "",
        "ready": index.ready,
        "ms": round(1000.0 * (time.perf_counter() - began), 1),
        **told,
    }


def rollout(of: RolloutIndex | Book, id: str) -> dict[str, Any]:
    """One rollout in full, `Rollout` of the page's types. Raises `ValueError` if `id` is none, `KeyError` if there is
    no such rollout. A run that is not indexed will do; labels that were asked for at other steps are then unknown."""
    key = parse(id)
    with _indexed(of) as index, index.cursor() as cursor:
        return _full(index, _look_up(index, cursor, key))


def group(of: RolloutIndex | Book, id: str) -> dict[str, Any]:
    """A rollout, the others of its prompt group, and the same prompt at the start: `Group` of the page's types."""
    key = parse(id)
    with _indexed(of) as index, index.cursor() as cursor:
        own = _look_up(index, cursor, key)
        attempt, step, number = own[0], own[1], own[5]
        same, values = "attempt = ? AND step = ? AND prompt_group = ?", [attempt, step, number]
        rows = cursor.execute(
            f"SELECT {_COLUMNS} FROM rollouts WHERE {same} ORDER BY reward DESC NULLS LAST, row LIMIT {GROUP_ROWS}",
            values,
        ).fetchall()
        mean, spread = cursor.execute(
            f"SELECT avg(reward), stddev_pop(reward) FROM rollouts WHERE {same}", values
        ).fetchone() or (None, None)
        full = _full(index, own)
        base, why = _base(index, cursor, full["prompt"], own)
        texts = _beginnings(index, rows)
        listed = [_row(row, texts) for row in rows]
    return {"rollout": full, "rows": listed, "mean": mean, "spread": spread, "base": base, "base_why": why}


@contextmanager
def _indexed(of: RolloutIndex | Book) -> Iterator[RolloutIndex]:
    """The index, or for a run that has none, a small one that holds what is asked for."""
    if isinstance(of, RolloutIndex):
        of.keep_up()
    with nullcontext(of) if isinstance(of, RolloutIndex) else closing(RolloutIndex(of)) as index:
        yield index


def _fetch_step(index: RolloutIndex, step: int, attempt: int | None) -> None:
    """Have a step at hand while the table is built; one that is not there, or damaged, matches nothing."""
    for one in index.run.attempts() if attempt is None else [attempt]:
        try:
            index.fetch(one, step)
        except (KeyError, StoreError):
            continue


def _look_up(index: RolloutIndex, cursor: duckdb.DuckDBPyConnection, key: Id) -> tuple[Any, ...]:
    """The row of the table; its step is read first, if it is not there yet."""
    try:
        index.fetch(key[0], key[1])
    except StoreError as error:
        raise KeyError(f"rollout {rollout_id(*key)} cannot be read: {error}") from error
    found = cursor.execute(
        f"SELECT {_COLUMNS} FROM rollouts WHERE attempt = ? AND step = ? AND row = ?", list(key)
    ).fetchone()
    if found is None:
        raise KeyError(f"there is no rollout {rollout_id(*key)}")
    return tuple(found)


def _row(row: Sequence[Any], texts: _Text) -> dict[str, Any]:
    return {
        "id": rollout_id(*row[:3]),
        "attempt": row[0],
        "step": row[1],
        "group": row[5],
        "reward": row[6],
        "flag": flag_word(row[7]),
        "gold": row[8],
        "length": row[9],
        "truncated": row[10],
        "advantage": row[11],
        "text": texts.get((row[0], row[1], row[2]), ""),
    }


def _beginnings(index: RolloutIndex, rows: Sequence[Sequence[Any]]) -> _Text:
    """How the completions of these rows begin; nothing where the text was not stored or is gone."""
    found: _Text = {}
    reader = Reader()
    files: dict[tuple[int, int, int], list[Sequence[Any]]] = {}
    for row in sorted(rows, key=lambda row: (row[0], row[1], row[3], row[4])):
        files.setdefault((row[0], row[1], row[3]), []).append(row)
    for place, inside in files.items():
        try:
            cells = reader.cells(locate(index.run, *place), [row[4] for row in inside], ("completion",))
        except StoreError:
            continue
        for row, cell in zip(inside, cells, strict=True):
            found[row[0], row[1], row[2]] = (text_of(cell, "completion") or "")[:BEGINNING]
    return found


def _full(index: RolloutIndex, row: Sequence[Any]) -> dict[str, Any]:
    try:
        file = locate(index.run, row[0], row[1], row[3])
        (cell,) = Reader().cells(file, [row[4]], ("prompt", "completion", "facts", "step_reward", "rewards."))
    except StoreError:
        cell = {}  # deleted since, or damaged: its numbers are still known
    completion = text_of(cell, "completion")
    names = [n for n in cell if n.startswith("rewards.") and not n.endswith("_flag") and cell.get(f"{n}_flag")]
    rewards = [
        {
            "name": name.removeprefix("rewards."),
            "value": cell[name] if cell[f"{name}_flag"] == "ok" else None,
            "flag": "" if cell[f"{name}_flag"] == "ok" else str(cell[f"{name}_flag"]),
        }
        for name in names  # of a packed file, where another step had more functions, only this one's have a flag
    ]
    return {
        **_row(row, {(row[0], row[1], row[2]): (completion or "")[:BEGINNING]}),
        "prompt": text_of(cell, "prompt"),
        "completion": completion,
        "rewards": rewards,
        "steps": steps(completion, cell.get("step_reward") or ()),
        "facts": text_of(cell, "facts") or "",
        "capped": any(cell.get(f"{name}_sha256") is not None for name in ("prompt", "completion")),
    }


def _base(
    index: RolloutIndex, cursor: duckdb.DuckDBPyConnection, prompt: str | None, own: Sequence[Any]
) -> tuple[dict[str, Any] | None, str]:
    """What was said to the same prompt at the start: by the reference, else at the earliest step; or why not."""
    if prompt is None:
        return None, "the text of prompts is not stored"
    if (text := _reference(index, prompt)) is not None:
        return {"step": None, "text": text, "source": "reference"}, ""
    found = cursor.execute(
        "SELECT attempt, step, row, rank, place FROM rollouts WHERE prompt = ? AND step < ? "
        "AND (NOT abandoned OR attempt = ?) ORDER BY step, attempt DESC, row LIMIT 1",
        [prompt_hash(prompt), own[1], own[0]],
    ).fetchone()
    if found is None:
        if index.ready < 1.0:
            return None, f"rollouts are still being indexed ({index.ready:.0%} so far): ask again in a moment"
        return None, f"step {own[1]} is the first with this prompt, and the reference does not hold it"
    try:
        (cell,) = Reader().cells(locate(index.run, found[0], found[1], found[3]), [found[4]], ("completion",))
    except StoreError as error:
        return None, f"step {found[1]} had this prompt and cannot be read: {error}"
    text = text_of(cell, "completion")
    if text is None:
        return None, f"step {found[1]} had this prompt, without the text of completions"
    return {"step": found[1], "text": text, "source": f"attempt {found[0]}, step {found[1]}"}, ""


def _reference(index: RolloutIndex, prompt: str) -> str | None:
    """The reference policy's answer to a prompt, if it was given one."""
    path = index.run.path / "reference.parquet"
    if path.is_symlink() or not path.is_file():
        return None
    try:
        sealed, _ = open_sealed(pa.memory_map(str(path)).read_buffer(), str(path))
        asked = sealed.read(None, ("prompt", "prompt_raw"))
        if (row := hashes(asked).index(pa.scalar(prompt_hash(prompt), pa.uint64())).as_py()) < 0:
            return None
        answers = sealed.read(None, ("completion", "completion_raw"))
        return text_of(answers.slice(row, 1).to_pylist()[0], "completion")
    except (StoreError, pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError):
        return None  # a damaged reference is reported by the monitor; an earlier step may serve
