"""Makes batches of verifiers 0.4 episodes, as prime-rl appends them to traces.jsonl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.jsonl import compact, step_of
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.data.batches import from_columns, plain_text
from tiltmeter.data.records import RolloutBatch

#: Their per-token columns and ours. `logprobs` are the inference engine's.
TOKENS = {
    "logprobs": "engine_logprob",
    "trainer_logprobs": "logprob",
    "reference_logprobs": "ref_logprob",
    "entropies": "entropy",
}
_NOT_FACTS = ("prompt", "artifact_max_bytes")  # a column of its own, and a setting that every task has
_LIMIT = re.compile(r"max_|limit|length|too_long|truncat|budget")


class UnscoredError(Exception):
    """Scoring failed for infrastructure reasons: the row has no reward and is flagged `infra`."""


def is_episode(row: TableRow) -> bool:
    """Whether a row is an episode of verifiers 0.4."""
    return isinstance(row.get("traces"), list) and "env" in row and "task" in row


def episode_step(episode: TableRow, path: Path) -> int:
    """The training step that is stored in an episode."""
    work = _object(_object(episode.get("run")).get("work"))
    return step_of(work, path) if "step" in work else 0


def traces(episode: TableRow) -> Iterator[TableRow]:
    """An episode's traces whose agent is trained."""
    for trace in episode["traces"]:
        if not isinstance(trace, dict):
            raise TypeError("a trace that is no JSON object")
        if _object(trace.get("agent")).get("trainable", True):
            yield trace


def reward_of(episode: TableRow, trace: TableRow) -> tuple[object, dict[str, object]]:
    """The total and its parts: score times weight over the parts that were scored.

    A part that is null was not scored. With an error attached, the infrastructure failed: it is missing, not 0.

    >>> reward_of({}, {"rewards": {"correct": {"score": 1.0, "weight": 2.0}, "brief": None}})
    (2.0, {'correct': 1.0, 'brief': None})
    """
    failed = bool(trace.get("errors") or episode.get("errors"))
    unscored: object = UnscoredError() if failed else None
    parts: dict[str, object] = {}
    total: list[float] = []
    for name, part in _object(trace.get("rewards")).items():
        score, weight = (part.get("score"), part.get("weight", 1.0)) if isinstance(part, dict) else (None, 1.0)
        parts[name] = unscored if score is None else score
        if isinstance(score, (int, float)) and isinstance(weight, (int, float)):
            total.append(score * weight)
    return (sum(total) if total else unscored), parts


def gold_of(trace: TableRow, name: str) -> object:
    """A metric, or a part of the reward, that the user chose as gold."""
    metric = _object(trace.get("metrics")).get(name)
    return _object(_object(trace.get("rewards")).get(name)).get("score") if metric is None else metric


def batch_of(step: int, episodes: Iterable[TableRow], effective: frozenset[str] | None, gold: str = "") -> RolloutBatch:
    """One step's batch. `effective`: ids of the episodes that were trained on, where they are known."""
    rows = [_row(episode, trace, effective, gold) for episode in episodes for trace in traces(episode)]
    names = list(dict.fromkeys(name for row in rows for name in row["rewards"]))
    columns: dict[str, Any] = {
        name: [row[name] for row in rows]
        for name in ("reward", "prompt", "completion", "truncated", "advantage", "facts")
    }
    columns["rewards"] = {name: [row["rewards"].get(name) for row in rows] for name in names}
    if gold:
        columns["gold"] = [row["gold"] for row in rows]
    counted = any(len(row["tokens"]) for row in rows)
    if counted:
        columns["tokens"] = [row["tokens"] for row in rows]
    for theirs, ours in TOKENS.items():
        # A row without tokens has none of these either; a row with tokens and without them leaves the column out.
        if counted and all(len(row[theirs]) == len(row["tokens"]) for row in rows):
            columns[ours] = [row[theirs] for row in rows]
    if all(advantage is None for advantage in columns["advantage"]):
        del columns["advantage"]
    return from_columns(step, [row["group"] for row in rows], **columns)


def _row(episode: TableRow, trace: TableRow, effective: frozenset[str] | None, gold: str) -> dict[str, Any]:
    nodes = [node for node in trace.get("nodes", []) if isinstance(node, dict)]
    sampled = [node for node in nodes if node.get("sampled")]
    prompt_nodes = nodes[: nodes.index(sampled[0])] if sampled else nodes
    reward, parts = reward_of(episode, trace)
    row: dict[str, Any] = {
        "reward": reward,
        "rewards": parts,
        "gold": gold_of(trace, gold) if gold else None,
        "prompt": _text(prompt_nodes),
        "completion": _text(sampled) if sampled else None,
        "truncated": _truncated(trace),
        "group": _group(episode, trace),
        "facts": _facts(episode, effective),
        "tokens": compact([token for node in sampled for token in _masked(node, "token_ids")]),
    }
    for theirs in TOKENS:
        row[theirs] = compact([value for node in sampled for value in _masked(node, theirs)])
    # One number for a rollout, stored at each of its tokens.
    row["advantage"] = next((value for node in sampled for value in _masked(node, "advantages")), None)
    return row


def _masked(node: TableRow, name: str) -> Sequence[Any]:
    """The values at the tokens that the policy sampled: stored for every token, or for those alone."""
    values, mask = node.get(name) or [], node.get("mask") or []
    if not isinstance(values, list) or not isinstance(mask, list):
        raise TypeError(f"a node whose {name} is no list")
    if len(values) == len(mask):
        if all(mask):
            return values
        return [value for value, own in zip(values, mask, strict=True) if own]
    return values if len(values) == sum(map(bool, mask)) else []


def _text(nodes: Sequence[TableRow]) -> str:
    texts = (plain_text(_content(_object(node.get("message")))) for node in nodes)
    return "\n".join(text for text in texts if text)


def _content(message: Mapping[str, Any]) -> object:
    """The text of a message, or the texts among its parts."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content


def _truncated(trace: TableRow) -> bool:
    calls = [call for call in trace.get("calls") or [] if isinstance(call, dict)]
    cut = bool(calls) and calls[-1].get("finish_reason") == "length"
    return cut or bool(_LIMIT.search(str(trace.get("stop_condition") or "")))


def _group(episode: TableRow, trace: TableRow) -> str:
    """The group's id; where several agents are trained, each has groups of its own."""
    task = _object(episode.get("task"))
    group = _object(episode.get("group")).get("id") or task.get("key") or task.get("hash") or episode.get("id")
    return f"{_object(trace.get('agent')).get('name', '')} {group}"


def _facts(episode: TableRow, effective: frozenset[str] | None) -> dict[str, Any]:
    data = _object(_object(episode.get("task")).get("data"))
    plain = {
        key: value for key, value in data.items() if key not in _NOT_FACTS and isinstance(value, (str, int, float))
    }
    policy = _object(_object(_object(episode.get("run")).get("work")).get("policy"))
    facts = {**plain, "env": _object(episode.get("env")).get("name")}
    if "start" in policy:
        facts["policy_start"] = policy["start"]
    if effective is not None:
        facts["effective"] = str(episode.get("id")) in effective
    return facts


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
