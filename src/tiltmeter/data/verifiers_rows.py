"""Rows of verifiers 0.4 episodes: as prime-rl hands them to its monitors, and as it appends them to traces.jsonl."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter.data.rows import UnscoredError, as_number, as_object, columns_of, compact
from tiltmeter.data.verifiers_turns import Record, stop_of, turns_of

#: Their per-token columns and ours. `logprobs` are the inference engine's.
TOKENS = {
    "logprobs": "engine_logprob",
    "trainer_logprobs": "logprob",
    "reference_logprobs": "ref_logprob",
    "entropies": "entropy",
}
_NOT_FACTS = ("prompt", "artifact_max_bytes")  # a column of its own, and a setting that every task has
_LIMIT = re.compile(r"max_|limit|length|too_long|truncat|budget")


def traces(episode: Record) -> Iterator[Record]:
    """An episode's traces whose agent is trained; an empty one where it failed before any agent began."""
    if not episode["traces"] and episode.get("errors"):
        yield {}
    for trace in episode["traces"]:
        if not isinstance(trace, dict):
            raise TypeError("a trace that is no JSON object")
        if as_object(trace.get("agent")).get("trainable", True):
            yield trace


def reward_of(episode: Record, trace: Record) -> tuple[object, dict[str, object]]:
    """The total and its parts: score times weight over the parts that were scored.

    A part that is null was not scored. With an error attached, the infrastructure failed: it is missing, not 0.

    >>> reward_of({}, {"rewards": {"correct": {"score": 1.0, "weight": 2.0}, "brief": None}})
    (2.0, {'correct': 1.0, 'brief': None})
    """
    failed = bool(trace.get("errors") or episode.get("errors"))
    unscored: object = UnscoredError() if failed else None
    parts: dict[str, object] = {}
    total: list[float] = []
    for name, part in as_object(trace.get("rewards")).items():
        score, weight = (part.get("score"), part.get("weight", 1.0)) if isinstance(part, dict) else (None, 1.0)
        parts[name] = unscored if score is None else score
        if isinstance(score, (int, float)) and isinstance(weight, (int, float)):
            total.append(score * weight)
    return (sum(total) if total else unscored), parts


def gold_of(trace: Record, name: str) -> object:
    """A metric, or a part of the reward, that the user chose as gold."""
    metric = as_object(trace.get("metrics")).get(name)
    return as_object(as_object(trace.get("rewards")).get(name)).get("score") if metric is None else metric


def episode_columns(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns of a step from the rows of its traces."""
    counted = any(len(row["tokens"]) for row in rows)
    for row in rows:
        if not counted:
            row["tokens"] = row["own"] = None
        elif int(np.sum(row["own"])) != len(row["tokens"]):
            row["own"] = None
        for ours in TOKENS.values():
            # A row without tokens has none of these either; a row with tokens and without them leaves the column out.
            if not counted or len(row[ours]) != len(row["tokens"]):
                row[ours] = None
    return columns_of(rows)


def trace_row(episode: Record, trace: Record, trained: bool | None = None, gold: str = "") -> dict[str, Any]:
    """One trace's row. `trained`: whether it was trained on, where that is known. `gold`: the metric that is gold."""
    nodes = trace.get("nodes") or []
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise TypeError("nodes that are no list of JSON objects")
    written = [at for at, node in enumerate(nodes) if node.get("sampled")]
    sampled = [nodes[at] for at in written]
    turns, links = turns_of(trace, nodes)
    reward, parts = reward_of(episode, trace)
    policy = _policy(episode)
    env, task = as_object(episode.get("env")), as_object(episode.get("task"))
    own = [mask for node in nodes[written[0] :] for mask in _mask(node)] if written else []
    advantages = [_mean(_masked(node, "advantages")) for node in sampled]
    facts = _facts(episode, trained)
    if links:
        facts["links"] = links
    if len(set(advantages)) > 1:
        facts["turn_advantages"] = advantages
    row: dict[str, Any] = {
        "group": _group(episode, trace),
        "reward": reward,
        "rewards": parts,
        "gold": gold_of(trace, gold) if gold else None,
        "turns": turns,
        "truncated": _truncated(trace),
        "facts": facts,
        "agent": as_object(trace.get("agent")).get("name"),
        "env": env.get("name") or env.get("id") or None,
        "task": task.get("key") or task.get("hash"),
        "stop": stop_of(trace, episode),
        "version": [policy["start"], policy.get("end", policy["start"])] if "start" in policy else None,
        "trained": trained,
        "tokens": compact([token for node in sampled for token in _masked(node, "token_ids")]),
        "own": np.array(own, np.uint8),
        # One number for a rollout, at each of its tokens; where turns differ, the mean over the tokens.
        "advantage": _mean([value for node in sampled for value in _masked(node, "advantages")]),
    }
    for theirs, ours in TOKENS.items():
        row[ours] = compact([value for node in sampled for value in _masked(node, theirs)])
    return row


def _mean(values: Sequence[Any]) -> float | None:
    """The mean, exact where all are equal; None where there are none."""
    numbers = [value for value in map(as_number, values) if value is not None]
    if not numbers or numbers.count(numbers[0]) == len(numbers):
        return numbers[0] if numbers else None
    return math.fsum(numbers) / len(numbers)


def _mask(node: Record) -> list[bool]:
    mask = node.get("mask") or []
    if not isinstance(mask, list):
        raise TypeError("a node whose mask is no list")
    return [bool(own and node.get("sampled")) for own in mask]


def _masked(node: Record, name: str) -> Sequence[Any]:
    """The values at the tokens that the policy sampled: stored for every token, or for those alone."""
    values, mask = node.get(name) or [], node.get("mask") or []
    if not isinstance(values, list) or not isinstance(mask, list):
        raise TypeError(f"a node whose {name} is no list")
    if len(values) == len(mask):
        if all(mask):
            return values
        return [value for value, own in zip(values, mask, strict=True) if own]
    return values if len(values) == sum(map(bool, mask)) else []


def _truncated(trace: Record) -> bool:
    calls = [call for call in trace.get("calls") or [] if isinstance(call, dict)]
    cut = bool(calls) and calls[-1].get("finish_reason") == "length"
    return cut or bool(_LIMIT.search(str(trace.get("stop_condition") or "")))


def _group(episode: Record, trace: Record) -> str:
    """The group's id; where several agents are trained, each has groups of its own."""
    task = as_object(episode.get("task"))
    group = as_object(episode.get("group")).get("id") or task.get("key") or task.get("hash") or episode.get("id")
    return f"{as_object(trace.get('agent')).get('name', '')} {group}"


def _policy(episode: Record) -> Mapping[str, Any]:
    return as_object(as_object(as_object(episode.get("run")).get("work")).get("policy"))


def _facts(episode: Record, trained: bool | None) -> dict[str, Any]:
    data = as_object(as_object(episode.get("task")).get("data"))
    plain = {
        key: value for key, value in data.items() if key not in _NOT_FACTS and isinstance(value, (str, int, float))
    }
    policy = _policy(episode)
    facts = {**plain, "env": as_object(episode.get("env")).get("name")}
    if "start" in policy:
        facts["policy_start"] = policy["start"]
    if trained is not None:
        facts["effective"] = trained
    return facts
