"""A prompt group's completions in full, with the weights of their rewards, and the numbers of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa

from tiltmeter.data.records import Floats
from tiltmeter.data.token_pieces import TokenMismatchError, TokenPieces, part_widths, token_widths
from tiltmeter.data.turns import Turn, read_row_turns
from tiltmeter.errors import StoreError
from tiltmeter.rundir.reading_room.pieces import read_pieces
from tiltmeter.view.payloads.reading_room import (
    ColourScale,
    ComponentWeight,
    GroupMember,
    GroupTokens,
    ReadGroup,
    TokenColour,
    TokenRow,
    TurnTokens,
)
from tiltmeter.view.payloads.rollouts import Rollout, StepScore
from tiltmeter.view.screens.excerpts import fold_repeats
from tiltmeter.view.screens.rollouts import score_rows
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.screens.series import json_numbers
from tiltmeter.view.server.reading_room.scales import NUMBERS, TokenNumber
from tiltmeter.view.server.rollout_files import StepFileReader, find_step_file, text_of
from tiltmeter.view.server.rollout_filters import parse_rollout_id
from tiltmeter.view.server.rollout_index import RolloutIndex
from tiltmeter.view.server.rollout_query import parse_query
from tiltmeter.view.server.rollouts import ROW_COLUMNS, find_hits, find_row, open_index, read_rollout

MEMBERS = 16  # that stand side by side
EXACT = 1e-5  # of the reward: a weighted sum that is further off is none; trainers add in 32 bits
DIGITS = 4  # of a token's number
NO_PIECES = "the pieces of its tokenizer are not stored: open_run(..., tokenizer=...), or attach of this version"
NO_TEXT = "its text is not stored"
NO_RANGES = "its turns do not say which of its tokens they are"

_Row = tuple[Any, ...]


def members(index: RolloutIndex, id: str, find: str = "") -> ReadGroup:
    """The completions of a rollout's prompt group. `find`: a query, whose texts are marked. Raises `KeyError`."""
    wanted = parse_query(find).texts
    with open_index(index), index.cursor() as cursor:
        rows, size = _member_rows(index, cursor, id)
        rollouts = [read_rollout(index, row) for row in rows]
        weights, why = _weights(index, rows[0])
        scales = _scales(index, rows[0], rollouts)
    shown = [
        GroupMember(
            **msgspec.structs.asdict(rollout),
            repeats=_repeats(rollout.completion or ""),
            hits=find_hits(rollout.completion, "completion", wanted),
        )
        for rollout in rollouts
    ]
    first = rollouts[0]
    return ReadGroup(
        attempt=first.attempt,
        step=first.step,
        group=first.group,
        prompt=next((rollout.prompt for rollout in rollouts if rollout.prompt is not None), None),
        size=size,
        members=shown,
        weights=weights,
        weights_why=why,
        scales=scales,
    )


def tokens(index: RolloutIndex, id: str, by: TokenColour) -> GroupTokens:
    """The numbers of the tokens of the same completions, each with its place in the text or why it has none."""
    with open_index(index), index.cursor() as cursor:
        rows, _ = _member_rows(index, cursor, id)
        pieces, why = _pieces(index, rows[0][0])
        return GroupTokens(by=by, rows=[_token_row(index, row, by, pieces, why) for row in rows])


def _member_rows(index: RolloutIndex, cursor: duckdb.DuckDBPyConnection, id: str) -> tuple[list[_Row], int]:
    """The rows of the group, highest reward first; of a large group those at both ends. And how many there are."""
    own = find_row(index, cursor, parse_rollout_id(id))
    rows: list[_Row] = cursor.execute(
        f"SELECT {ROW_COLUMNS} FROM rollouts WHERE attempt = ? AND step = ? AND prompt_group = ? "
        "ORDER BY reward DESC NULLS LAST, row",
        [own[0], own[1], own[5]],
    ).fetchall()
    half = MEMBERS // 2
    return (rows if len(rows) <= MEMBERS else [*rows[:half], *rows[-half:]]), len(rows)


def _repeats(text: str) -> int:
    """How often the passage that is repeated most stands there in a row."""
    return max((piece.times for piece in fold_repeats(text) if piece.text.strip()), default=1)


def _weights(index: RolloutIndex, row: _Row) -> tuple[list[ComponentWeight], str]:
    """By how much each component is multiplied: what makes every reward of the step their sum, if anything does."""
    try:
        file = find_step_file(index.run, row[0], row[1], row[3])
        table, facts = StepFileReader().read_texts(file, ("reward", "rewards."))
    except StoreError as error:
        return [], f"the step cannot be read: {error}"
    names = [name for name in facts["columns"] if name.startswith("rewards.") and name in table.column_names]
    shown = [name.removeprefix("rewards.") for name in names]
    if not names or "reward" not in table.column_names:
        return [ComponentWeight(name=name, weight=None) for name in shown], "the reward's components are not stored"
    parts = np.stack([_numbers(table, name) for name in names], axis=1)
    weights = fit_weights(parts, _numbers(table, "reward"))
    if weights is None:
        why = "their weights are not known: the reward of this step is no weighted sum of them that can be told apart"
        return [ComponentWeight(name=name, weight=None) for name in shown], why
    sized = [ComponentWeight(name=name, weight=weight) for name, weight in zip(shown, weights, strict=True)]
    return sized, "weights as they follow from the step's rewards: each is exactly this sum of its components"


def fit_weights(parts: Floats, reward: Floats) -> list[float] | None:
    """The weights with which every reward is the sum of its components; None if there are none, or several.

    >>> parts = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> fit_weights(parts, np.array([1.0, 0.5, 1.5]))
    [1.0, 0.5]
    >>> fit_weights(parts, np.array([1.0, 0.5, 2.5])) is None
    True
    """
    whole = np.isfinite(parts).all(axis=1) & np.isfinite(reward)
    parts, reward = parts[whole], reward[whole]
    if len(parts) <= parts.shape[1]:  # as many unknowns as rows fit anything
        return None
    weights, _, rank, _ = np.linalg.lstsq(parts, reward, rcond=None)
    scale = max(float(np.abs(reward).max()), float(np.abs(parts).max()), 1e-12)
    if rank < parts.shape[1] or float(np.abs(parts @ weights - reward).max()) > EXACT * scale:
        return None
    return [round(float(weight), 5) for weight in weights]


def _numbers(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), np.float64)  # null becomes NaN


def _scales(index: RolloutIndex, row: _Row, rollouts: Sequence[Rollout]) -> list[ColourScale]:
    try:
        file = find_step_file(index.run, row[0], row[1], row[3])
        _, facts = StepFileReader().read_texts(file, ())
    except StoreError as error:
        return [number.scale((), str(error)) for number in NUMBERS.values()]
    present = set(facts["columns"])
    why = "the ids of tokens are not stored" if "tokens" not in present else _pieces(index, row[0])[1]
    scales = [number.scale(present, why) for number in NUMBERS.values()]
    scores = [step.reward for rollout in rollouts for step in rollout.steps if step.reward is not None]
    if any(not 0.0 <= score <= 1.0 for score in scores):  # not the chance that a step is right
        wide = {"centre": 0.0, "levels": list(NUMBERS["advantage"].levels), "says": "red: above 0; blue: below"}
        scales = [msgspec.structs.replace(one, **wide) if one.name == "process" else one for one in scales]
    return scales


def _pieces(index: RolloutIndex, attempt: int) -> tuple[TokenPieces | None, str]:
    """The tokenizer's pieces, or why there are none."""
    try:
        pieces = index.reader.cache_lru("pieces", attempt, lambda: read_pieces(index.run, attempt), 2)
    except StoreError as error:
        return None, f"the pieces of its tokenizer cannot be read: {error}"
    return pieces, "" if pieces is not None else NO_PIECES


def _token_row(index: RolloutIndex, row: _Row, by: TokenColour, pieces: TokenPieces | None, why: str) -> TokenRow:
    id, number = rollout_id(*row[:3]), NUMBERS[by]
    columns = ("completion", "turns", *number.columns, *(("tokens",) if number.values else ()))
    try:
        (cell,) = StepFileReader().read_cells(find_step_file(index.run, row[0], row[1], row[3]), [row[4]], columns)
    except StoreError as error:
        return TokenRow(id=id, widths=[], values=[], why=str(error))
    text = text_of(cell, "completion")
    turns = read_row_turns(text_of(cell, "turns")) or ()
    if number.values is None:
        return _stretches(id, text, turns, cell, by)
    if lacks := [name for name in (*number.columns, "tokens") if cell.get(name) is None]:
        return TokenRow(id=id, widths=[], values=[], why=f"{' and '.join(lacks)} not stored")
    if pieces is None:
        return TokenRow(id=id, widths=[], values=[], why=why)
    if len(turns) > 1:
        return _turn_tokens(id, turns, cell, number, pieces)
    if text is None:
        return TokenRow(id=id, widths=[], values=[], why=NO_TEXT)
    if cell.get("completion_sha256") is not None:
        return TokenRow(id=id, widths=[], values=[], why="its text is stored only in part")
    try:
        widths = token_widths(text, cell["tokens"], pieces)
    except TokenMismatchError as error:
        return TokenRow(id=id, widths=[], values=[], why=str(error))
    if any(len(cell[name]) != len(widths) for name in number.columns):
        return TokenRow(id=id, widths=[], values=[], why="there is not one number for each token")
    return TokenRow(id=id, widths=widths, values=json_numbers(number.values(cell), DIGITS), why="")


def _turn_tokens(
    id: str, turns: Sequence[Turn], cell: dict[str, Any], number: TokenNumber, pieces: TokenPieces
) -> TokenRow:
    """The tokens of each turn that the policy wrote, where the turn says which they are and they say its words."""
    ids = cell["tokens"]
    if any(len(cell[name]) != len(ids) for name in number.columns):
        return TokenRow(id=id, widths=[], values=[], why="there is not one number for each token")
    assert number.values is not None  # others are numbers of the whole completion
    values = json_numbers(number.values(cell), DIGITS)
    coloured, whys = [], []
    for place, turn in enumerate(turns):
        if not (turn.written and turn.text):
            continue
        first, last = turn.tokens or (0, 0)
        if not 0 <= first < last <= len(ids):
            whys.append(NO_RANGES)
            continue
        try:
            widths = part_widths(turn.text, ids[first:last], pieces)
        except TokenMismatchError as error:
            whys.append(f"turn {place + 1}: {error}")
        else:
            coloured.append(TurnTokens(turn=place, widths=widths, values=values[first:last]))
    return TokenRow(id=id, widths=[], values=[], why="; ".join(dict.fromkeys(whys[:3])), turns=coloured)


def _stretches(id: str, text: str | None, turns: Sequence[Turn], cell: dict[str, Any], by: TokenColour) -> TokenRow:
    """Numbers of the whole completion, or of its steps."""
    if text is None and len(turns) < 2:
        return TokenRow(id=id, widths=[], values=[], why=NO_TEXT)
    if by == "advantage":
        value = cell.get("advantage")
        if value is None or not np.isfinite(value):
            return TokenRow(id=id, widths=[], values=[], why="it has no advantage")
        if len(turns) > 1:
            words = [(place, turn.text) for place, turn in enumerate(turns) if turn.written and turn.text]
            parts = [TurnTokens(turn=place, widths=[_units(said)], values=[float(value)]) for place, said in words]
            return TokenRow(id=id, widths=[], values=[], why="", turns=parts)
        return TokenRow(id=id, widths=[_units(text or "")], values=[float(value)], why="")
    if text is None or len(turns) > 1:
        return TokenRow(id=id, widths=[], values=[], why="how a conversation was split into steps is not known")
    steps = score_rows(text, cell.get("step_reward") or ())
    widths = step_widths(text, steps)
    if widths is None:
        why = "it has no process reward" if not steps else "how it was split into steps is not known"
        return TokenRow(id=id, widths=[], values=[], why=why)
    return TokenRow(id=id, widths=widths, values=[step.reward for step in steps], why="")


def step_widths(text: str, steps: Sequence[StepScore]) -> list[int] | None:
    """The characters up to the end of each step, counted as JavaScript counts; None where a step is not in the text.

    >>> steps = [StepScore(reward=1.0, text=text, bad=False) for text in ("2 + 2", "is 4")]
    >>> step_widths("2 + 2\\nis 4", steps)
    [5, 5]
    """
    widths: list[int] = []
    at = 0
    for step in steps:
        place = text.find(step.text, at) if step.text else -1
        if place < 0 or text[at:place].strip():
            return None
        end = place + len(step.text or "")
        widths.append(_units(text[at:end]))
        at = end
    return widths or None


def _units(text: str) -> int:
    """Its length as JavaScript counts."""
    return len(text) + sum(one > "\uffff" for one in text)
