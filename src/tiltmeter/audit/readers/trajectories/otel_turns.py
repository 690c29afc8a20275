"""The turns of a conversation that is recorded as spans: each call of a model repeats the history before it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.audit.readers.trajectories.otel_spans import Span
from tiltmeter.data.messages import TurnBuilder, as_text, parse_call
from tiltmeter.data.rows import as_objects
from tiltmeter.data.turns import ASSISTANT, SYSTEM, Turn

_CALLS = ("chat", "text_completion", "generate_content")


def turns_of(spans: Sequence[Span]) -> list[Turn]:
    """The turns of one conversation's spans, which are in the order of time."""
    talk = _SpanMessages()
    tools: list[Span] = []
    for span in spans:
        if span.operation in _CALLS:
            talk.add_call(span)
        elif span.operation == "execute_tool":
            tools.append(span)
    for span in tools:  # a model that is told of a call comes after it, and tells more
        talk.add_tool(span)
    return talk.builder.turns


class _SpanMessages:
    def __init__(self) -> None:
        self.builder = TurnBuilder()
        self._history: list[str] = []  # what the last call saw and output
        self._seen: set[str] = set()
        self._calls: set[str] = set()
        self._answers: set[str] = set()

    def add_call(self, span: Span) -> None:
        rules = _messages(span.attributes.get("gen_ai.system_instructions"))
        before = [{"role": SYSTEM, "parts": rules}] if rules and "parts" not in rules[0] else rules
        before += _messages(span.attributes.get("gen_ai.input.messages"))
        keys = [_key(message) for message in before]
        same = 0
        while same < min(len(keys), len(self._history)) and keys[same] == self._history[same]:
            same += 1
        for key, message in zip(keys[same:], before[same:], strict=True):
            # In another context, of a sub-agent or after a compaction, what is known is not output again.
            if same or key not in self._seen:
                self._add(key, message, span, own=False)
        output = _messages(span.attributes.get("gen_ai.output.messages"))
        for message in output:
            self._add(_key(message), message, span, own=True)
        self._history = [*keys, *map(_key, output)]

    def _add(self, key: str, message: TableRow, span: Span, *, own: bool) -> None:
        self._seen.add(key)
        first = len(self.builder.turns)
        parts = as_objects(message.get("parts"))
        role = str(message.get("role"))
        calls = [part for part in parts if part.get("type") == "tool_call"]
        self._calls |= {str(part.get("id") or "") for part in calls}
        answers = [part for part in parts if part.get("type") == "tool_call_response"]
        for part in answers:
            self._answers.add(str(part.get("id") or ""))
            words = part.get("response", part.get("result", part.get("content")))
            self.builder.add_answer(as_text(words) or None, str(part.get("id") or ""), name=message.get("name"))
        words_of = [part for part in parts if part.get("type") not in ("tool_call", "tool_call_response")]
        if words_of or calls or not answers:
            plain: dict[str, Any] = {"role": role, "sampled": own, "tool_calls": calls}
            plain["reasoning"] = "\n".join(as_text(part.get("content")) for part in words_of if _is_reasoning(part))
            blocks = [_block(part) for part in words_of if not _is_reasoning(part)]
            plain["content"] = blocks or message.get("content")
            self.builder.add_message(plain)
        if own and span.seconds is not None and first < len(self.builder.turns):
            turns = self.builder.turns
            turns[first] = msgspec.structs.replace(turns[first], seconds=span.seconds)

    def add_tool(self, span: Span) -> None:
        """A call of a tool, where no message holds it, and its answer, where no message does."""
        attributes = span.attributes
        identity = str(attributes.get("gen_ai.tool.call.id") or "")
        name = str(attributes.get("gen_ai.tool.name") or "?")
        if not identity or identity not in self._calls:
            self._calls.add(identity)
            call = {"id": identity, "name": name, "arguments": attributes.get("gen_ai.tool.call.arguments")}
            self.builder.add_words(ASSISTANT, None, None, [parse_call(call)])
        elif identity in self._answers:
            return
        self._answers.add(identity)
        error = (span.message or str(attributes.get("error.type") or "failed")) if span.failed else None
        words = as_text(attributes.get("gen_ai.tool.call.result")) or None
        self.builder.add_answer(words, identity, name=name, error=error, seconds=span.seconds)


def _is_reasoning(part: TableRow) -> bool:
    return part.get("type") in ("reasoning", "thinking")


def _block(part: TableRow) -> TableRow:
    if part.get("type") == "text":
        return {"type": "text", "text": as_text(part.get("content", part.get("text")))}
    return {"type": "text", "text": f"[{part.get('modality') or part.get('type')}]"}


def _messages(value: object) -> list[TableRow]:
    """Messages, which are JSON text in a span, or the value that it stands for. Text that is none is one message."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [{"role": "user", "parts": [{"type": "text", "content": value}]}]
    return as_objects(value)


def _key(message: TableRow) -> str:
    output = {"role": message.get("role"), "parts": message.get("parts"), "content": message.get("content")}
    return json.dumps(output, sort_keys=True, default=str)
