"""Turns from chat messages, in any of the usual forms: calls beside the content or among it, reasoning in a field or in
a block, content as text or as blocks, dicts or objects of pydantic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tiltmeter.data.turns import ASSISTANT, OMITTED, SYSTEM, TOOL, USER, Turn

_ROLES = {
    **dict.fromkeys(("assistant", "agent", "model", "ai", "gpt"), ASSISTANT),
    **dict.fromkeys(("tool", "function", "observation", "environment", "env", "ipython", "tool_result"), TOOL),
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("system", "developer"), SYSTEM),
    OMITTED: OMITTED,
}
_REASONING = ("reasoning_content", "reasoning", "thinking")
_WRITTEN = ("trainable", "sampled")  # words for "the policy that is trained wrote it", of ART and of verifiers
_MEDIA = ("image", "audio", "video", "document", "file", "input")  # how types of blocks begin whose data is no text


class ToolCall(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: str | None  # JSON text
    identity: str  # by which its answer names it; empty: none


@dataclass
class _Message:
    """What the blocks of one message hold."""

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    answers: list[tuple[str, str, bool]] = field(default_factory=list)  # identity of the call, words, failed

    def add(self, block: str | Mapping[str, Any]) -> None:
        if isinstance(block, str):
            self.texts.append(block)
            return
        kind = str(block.get("type", ""))
        if kind in ("thinking", "reasoning", "redacted_thinking"):
            words = next((block[name] for name in ("thinking", "reasoning", "text", "summary") if block.get(name)), "")
            self.reasoning.append(as_text(words))
        elif kind in ("tool_use", "server_tool_use", "function_call", "tool_call"):
            call = as_mapping(block.get("tool_call")) or block
            self.calls.append(parse_call({**call, "arguments": call.get("input", call.get("arguments"))}))
        elif kind in ("tool_result", "function_call_output"):
            identity = str(block.get("tool_use_id") or block.get("call_id") or "")
            words = as_text(block.get("content", block.get("output")))
            self.answers.append((identity, words, bool(block.get("is_error"))))
        elif isinstance(block.get("text"), str):
            self.texts.append(block["text"])
        elif kind.startswith(_MEDIA):
            self.texts.append(f"[{kind}]")
        else:
            self.texts.append(_json(block))


class TurnBuilder:
    """Collects the turns of a conversation, message by message; an answer finds its call by the call's identity."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._calls: dict[str, int] = {}

    def add_message(self, message: Mapping[str, Any]) -> None:
        role = _ROLES.get(str(message.get("role") or message.get("source") or "").lower(), USER)
        parts = _Message(reasoning=[as_text(message[name]) for name in _REASONING if message.get(name)][:1])
        for block in _blocks(message.get("content")):
            parts.add(block)
        single = message.get("function_call")
        among = Counter(parts.calls)  # some write a call both among the content and beside it
        for call in map(parse_call, map(as_mapping, message.get("tool_calls") or ())):
            if among[call]:
                among[call] -= 1
            else:
                parts.calls.append(call)
        parts.calls += [parse_call(as_mapping(single))] if single else []
        for identity, words, failed in parts.answers:
            self.add_answer(words, identity, error=words if failed else None)
        text = "\n".join(parts.texts) or None
        if role == TOOL:
            failure = message.get("error")
            error = as_text(as_mapping(failure).get("message", failure)) if failure else None
            name = message.get("name") or message.get("function")
            self.add_answer(text, str(message.get("tool_call_id") or ""), name=name, error=error)
            return
        if parts.answers and not text and not parts.calls:
            return  # a user's message that holds nothing but answers of tools
        own = role != ASSISTANT or not any(message.get(name) is False for name in _WRITTEN)
        self.add_words(role, text, "\n".join(filter(None, parts.reasoning)) or None, parts.calls, own=own)

    def add_words(
        self,
        role: str,
        text: str | None,
        reasoning: str | None,
        calls: Iterable[ToolCall],
        *,
        own: bool = True,
        **more: Any,
    ) -> None:
        """A message: its words, and its calls as one turn each, the first together with the words."""
        first = len(self.turns)
        for call in calls:
            if call.identity:
                self._calls[call.identity] = len(self.turns)
            if len(self.turns) == first:
                words = Turn(role, text, reasoning, call=call.name, arguments=call.arguments, own=own, **more)
            else:
                words = Turn(role, call=call.name, arguments=call.arguments, parent=first, own=own)
            self.turns.append(words)
        if len(self.turns) == first:
            self.turns.append(Turn(role, text, reasoning, own=own, **more))

    def add_answer(
        self, text: str | None, identity: str, *, name: object = None, error: str | None = None, **more: Any
    ) -> None:
        """What a tool answered to the call of that identity."""
        at = self._calls.get(identity)
        called = self.turns[at].call if name is None and at is not None else None if name is None else str(name)
        if error is None and text and text[:9] in ("{'error':", '{"error":'):  # what TRL makes of a tool that raises
            error = text
        self.turns.append(Turn(TOOL, text, call=called, error=error, parent=at, **more))


def turns_from_messages(messages: Iterable[Any]) -> tuple[Turn, ...]:
    """The turns of chat messages.

    >>> said = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "rm",
    ...         "arguments": {"path": "tests"}}}]}
    >>> turns = turns_from_messages([said, {"role": "tool", "tool_call_id": "1", "content": "removed"}])
    >>> [(turn.role, turn.call, turn.arguments or turn.text, turn.parent) for turn in turns]
    [('assistant', 'rm', '{"path": "tests"}', None), ('tool', 'rm', 'removed', 0)]
    """
    builder = TurnBuilder()
    for message in messages:
        builder.add_message(as_mapping(message))
    return tuple(builder.turns)


def is_conversation(item: object) -> bool:
    """Whether a completion is more than one message of text.

    >>> is_conversation([{"role": "assistant", "content": "42"}]), is_conversation("42")
    (False, False)
    """
    if not isinstance(item, (list, tuple)) or not item or not all(map(_looks_like_message, item)):
        return False
    first = as_mapping(item[0])
    more = ("tool_calls", "function_call", *_REASONING)
    return len(item) > 1 or any(first.get(name) for name in more) or isinstance(first.get("content"), list)


def parse_call(call: Mapping[str, Any]) -> ToolCall:
    """A call as OpenAI, verifiers, Inspect, ATIF or Anthropic write it."""
    inner = call.get("function")
    detail = as_mapping(inner) or call
    name = detail.get("name") or (inner if isinstance(inner, str) else None) or call.get("function_name") or "?"
    arguments = detail.get("arguments", call.get("arguments"))
    identity = call.get("id") or call.get("tool_call_id") or call.get("call_id") or ""
    if arguments is not None and not isinstance(arguments, str):
        arguments = _json(arguments)
    return ToolCall(str(name), arguments, str(identity))


def as_text(value: object) -> str:
    """Text as it is, blocks of text joined, anything else as JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple)) and all(isinstance(as_mapping(part).get("text"), str) for part in value):
        return "\n".join(as_mapping(part)["text"] for part in value)
    return "" if value is None else _json(value)


def as_mapping(value: object) -> Mapping[str, Any]:
    """A dict, or the dict of an object of pydantic; empty for anything else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    plain = dump() if callable(dump) else None
    return plain if isinstance(plain, Mapping) else {}


def _blocks(content: object) -> list[str | Mapping[str, Any]]:
    if content is None or content == "":
        return []
    if isinstance(content, (list, tuple)):
        return [part if isinstance(part, str) else as_mapping(part) for part in content]
    return [content] if isinstance(content, Mapping) else [as_text(content)]


def _looks_like_message(value: object) -> bool:
    return (isinstance(value, Mapping) or hasattr(value, "model_dump")) and "role" in as_mapping(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
