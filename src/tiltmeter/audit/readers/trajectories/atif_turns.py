"""The turns of ATIF documents, with those of sub-agents behind the call that started them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.data.messages import TurnBuilder, as_text
from tiltmeter.data.rows import as_object, as_objects, compact
from tiltmeter.data.turns import Turn

SUBAGENTS = 1_000  # of one trajectory
DEPTH = 16  # of sub-agents that start sub-agents

Waiting = tuple[TableRow, int | None, int]  # a sub-agent's document, the turn that started it, how deep it is


def turns_of(
    documents: Sequence[TableRow], load: Callable[[object], TableRow | None]
) -> tuple[list[Turn], dict[str, Any]]:
    """The turns of a trajectory and what continues it, and its columns of tokens. `load`: a document beside it."""
    turns: list[Turn] = []
    numbers: dict[str, list[Any]] = {"tokens": [], "engine_logprob": []}
    counts = [0] * 2  # steps of the policy, and those of them whose tokens are stored
    waiting: list[Waiting] = []
    for at, document in enumerate(documents):
        waiting += _add(turns, document, None, None, 0, load, copies=at == 0)
        _add_tokens(document, numbers, counts)
    done = 0
    while waiting and done < SUBAGENTS:
        document, parent, depth = waiting.pop(0)
        done += 1
        name = as_object(document.get("agent")).get("name")
        waiting += _add(turns, document, parent, str(name or "subagent"), depth, load, copies=False)
    whole = counts[0] > 0 and counts[0] == counts[1] and not done
    return turns, {name: compact(values) if whole else None for name, values in numbers.items()}


def _add(
    turns: list[Turn],
    document: TableRow,
    parent: int | None,
    agent: str | None,
    depth: int,
    load: Callable[[object], TableRow | None],
    *,
    copies: bool,
) -> list[Waiting]:
    """Adds the turns of one document; returns the sub-agents that it started. `copies`: keep what it copied."""
    builder, base = TurnBuilder(), len(turns)
    started: list[tuple[TableRow, int]] = []
    for step in as_objects(document.get("steps")):
        copied = bool(step.get("is_copied_context"))
        if copied and not copies:
            continue
        # A step without a call of a model was dispatched by a rule; a copied one counts where it was written.
        own = not copied and step.get("llm_call_count") != 0
        message = {"role": step.get("source"), "content": step.get("message"), "sampled": own}
        message |= {name: step.get(name) for name in ("reasoning_content", "tool_calls")}
        builder.add_message(message)
        for result in as_objects(as_object(step.get("observation")).get("results")):
            words = _words(result.get("content"))
            builder.add_answer(words, str(result.get("source_call_id") or ""))
            references = as_objects(result.get("subagent_trajectory_ref"))
            started += [(reference, len(builder.turns) - 1) for reference in references]
    for at, turn in enumerate(builder.turns):
        moved = None if turn.parent is None else turn.parent + base
        moved = parent if moved is None and at == 0 else moved
        turns.append(msgspec.structs.replace(turn, parent=moved, agent=agent))
    if depth >= DEPTH:
        return []
    embedded = {str(one.get("trajectory_id")): one for one in as_objects(document.get("subagent_trajectories"))}
    waiting: list[Waiting] = []
    for reference, place in started:
        one = embedded.pop(str(reference.get("trajectory_id")), None) or load(reference.get("trajectory_path"))
        if one is not None:
            waiting.append((one, base + place, depth + 1))
    waiting += [(one, None, depth + 1) for one in embedded.values()]  # that no answer names
    return waiting


def _words(content: object) -> str | None:
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {"text": as_text(part)} for part in content]
        return "\n".join(
            part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]" for part in parts
        )
    return as_text(content) or None


def _add_tokens(document: TableRow, numbers: dict[str, list[Any]], counts: list[int]) -> None:
    for step in as_objects(document.get("steps")):
        if step.get("source") != "agent" or step.get("is_copied_context") or step.get("llm_call_count") == 0:
            continue
        counts[0] += 1
        metrics = as_object(step.get("metrics"))
        tokens, logprobs = metrics.get("completion_token_ids"), metrics.get("logprobs")
        if isinstance(tokens, list) and isinstance(logprobs, list) and len(tokens) == len(logprobs):
            counts[1] += 1
            numbers["tokens"] += tokens
            numbers["engine_logprob"] += logprobs
