"""What a gold source is asked about one stored rollout: its texts, and what else is known of its row."""

from __future__ import annotations

from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.records import LABEL_COLUMNS, RolloutBatch
from tiltmeter.data.turns import plain_turns, shown_text
from tiltmeter.gold import CompletionToLabel

FACT_COLUMNS = (*LABEL_COLUMNS, "artifacts")  # of an agent's row, for a function that asks for them
#: Of a stored step, for a request.
REQUEST_COLUMNS = (
    *("group", "reward", "advantage", "prompt", "completion", "facts", "length", "truncated", "turns"),
    *FACT_COLUMNS,
)


def row_request(batch: RolloutBatch, row: int, key: str, purpose: str) -> CompletionToLabel | None:
    """What is asked about one row; None if its text was not stored."""
    text = batch.completion[row] if batch.completion is not None and row < len(batch) else None
    if text is None:
        return None
    prompt = None if batch.prompt is None else batch.prompt[row]
    columns, seen = _row_columns(batch, row), shown_text(batch, row) or ""
    conversation = "" if seen == text else seen
    return CompletionToLabel(key, batch.attempt, batch.step, row, purpose, prompt, text, columns, conversation)


def _row_columns(batch: RolloutBatch, row: int) -> dict[str, object]:
    """What else is known of a row: the dataset's facts, and what the trainer measured under names of its own."""
    try:
        columns: dict[str, object] = {} if batch.facts is None else {**from_text(batch.facts[row])}
    except ValueError:  # not an object: whoever needs a fact of this row says that it has none
        columns = {}
    if batch.turns is not None:
        columns["turns"] = plain_turns(batch.turns[row])
    columns |= {name: getattr(batch, name)[row] for name in FACT_COLUMNS if batch.column(name) is not None}
    measured = (name for name in ("length", "truncated") if batch.column(name) is not None)
    return columns | {name: getattr(batch, name)[row].item() for name in measured}
