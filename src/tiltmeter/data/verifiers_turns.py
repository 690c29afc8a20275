"""The turns of a verifiers trace, which is a graph: every message once, with the message that it follows.

A context that was compacted, or a sub-agent, begins a new root; the links that the harness declared say from where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tiltmeter.data.messages import TurnBuilder, as_text
from tiltmeter.data.rows import as_number, as_object, as_objects
from tiltmeter.data.turns import TOOL, Turn

Record = Mapping[str, Any]  # a JSON object

#: Links that lead into a context; the others come back to one that is known already.
_RETURNS = ("continuation", "subagent_return", "subagent_cancel", "agent_message")
_SUBAGENT = "subagent_call"

#: What failed, as the package names the boundary that an error crossed, and how such a trajectory ended.
_FAILURES = {
    "sandbox": "sandbox",
    "harness": "sandbox",
    "toolset": "sandbox",
    "env": "sandbox",
    "task": "verifier",
    "provider": "engine",
    "interception": "engine",
    "tunnel": "engine",
}
_STOPS = {
    "max_turns": "turns",
    "max_input_tokens": "length",
    "max_output_tokens": "length",
    "max_total_tokens": "length",
    "compaction_failed": "length",
}


def turns_of(trace: Record, nodes: Sequence[Record]) -> tuple[list[Turn], list[list[Any]]]:
    """A trace's turns, and the links between them that `parent` cannot carry: from, to, kind."""
    calls = {call.get("node"): call for call in as_objects(trace.get("calls"))}
    builder = TurnBuilder()
    first: list[int] = []  # of each node, the turn that it begins with
    for at, node in enumerate(nodes):
        first.append(len(builder.turns))
        builder.add_message({**as_object(node.get("message")), "sampled": bool(node.get("sampled"))})
        _describe(builder.turns, first[at], calls.get(at, {}))
    turns, ends = builder.turns, [*first[1:], len(builder.turns)]
    links = [
        (link["node"], at, str(link.get("type")))
        for at, node in enumerate(nodes)
        for link in as_objects(node.get("semantic_parents"))
        if _is_position(link.get("node"), len(nodes))
    ]
    roots = _roots(nodes)
    entered = {roots[at]: (source, kind) for source, at, kind in reversed(links) if kind not in _RETURNS}
    subagents = {root for root, (_, kind) in entered.items() if kind == _SUBAGENT}
    for at, node in enumerate(nodes):
        if first[at] == ends[at]:
            continue
        turn, parent = turns[first[at]], node.get("parent")
        if turn.role != TOOL or turn.parent is None:
            source = parent if _is_position(parent, len(nodes)) else entered.get(at, (None, ""))[0]
            if source is not None and source != at and ends[source] > first[source] and ends[source] != first[at]:
                turns[first[at]] = msgspec.structs.replace(turn, parent=ends[source] - 1)
        if roots[at] in subagents:
            for place in range(first[at], ends[at]):
                turns[place] = msgspec.structs.replace(turns[place], agent="subagent")
    stored = [[first[source], first[at], kind] for source, at, kind in links if kind != "continuation"]
    return turns, stored


def _describe(turns: list[Turn], at: int, call: Mapping[str, Any]) -> None:
    """Adds what is known of the model call that wrote a turn."""
    if not call or at >= len(turns):
        return
    time = as_object(call.get("time"))
    start, end = as_number(time.get("start")), as_number(time.get("end"))
    error = as_object(call.get("error"))
    fields: dict[str, Any] = {}
    if start is not None and end is not None and end > start:
        fields["seconds"] = end - start
    if error:
        fields["error"] = as_text(error.get("message", error))
    turns[at] = msgspec.structs.replace(turns[at], **fields)


def _roots(nodes: Sequence[Record]) -> list[int]:
    """The root of each node's branch. A parent comes before its child; anything else is a root."""
    roots: list[int] = []
    for at, node in enumerate(nodes):
        parent = node.get("parent")
        roots.append(roots[parent] if _is_position(parent, at) else at)  # type: ignore[index]
    return roots


def _is_position(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def stop_of(trace: Record, episode: Record) -> str | None:
    """Why a trace ended, in the words of `tiltmeter.data.stops`.

    >>> [stop_of(trace, {}) for trace in ({"is_timeout": True}, {"stop_condition": "max_turns"})]
    ['wall_clock', 'turns']
    """
    condition = str(trace.get("stop_condition") or "")
    if trace.get("is_timeout") or episode.get("is_timeout"):
        return "verifier" if condition == "scoring_timeout" else "wall_clock"
    errors = [*as_objects(trace.get("errors")), *as_objects(episode.get("errors"))]
    if errors and trace.get("ok") is not True:  # of a retry that went well, the errors stay in the record
        kind = str(errors[-1].get("type") or "").removesuffix("Error").lower()
        return _FAILURES.get(kind, "engine")
    if condition in _STOPS:
        return _STOPS[condition]
    if condition.endswith("_error") or condition == "error":
        return _FAILURES.get(condition.removesuffix("_error"), "engine")
    finish = as_objects(trace.get("calls"))[-1:]
    if finish and finish[0].get("finish_reason") == "length":
        return "length"
    if condition or trace.get("is_completed") or trace.get("ok"):
        return "done"  # the agent, its user, or a rule of the task ended it
    return "unknown" if "is_completed" in trace else None
