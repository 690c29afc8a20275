"""The turns of an Inspect sample: from its events in their order, and from its messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.data.messages import TurnBuilder, as_text, parse_call
from tiltmeter.data.rows import as_number, as_object, as_objects
from tiltmeter.data.turns import ASSISTANT, Turn

ATTACHED = 64 << 20  # characters that attachments may add to one sample
LOOKS = 5_000_000  # at messages of a sample's pool: every call of the model names its whole history
DEPTH = 32  # levels of a message in which attachments are looked for
_PROTOCOL = "attachment://"
_SCORERS = ("scorers", "scorer")


class _Attachments:
    """Long texts, which messages name by their hash. A text may be named again and again: the sum is bounded."""

    def __init__(self, texts: object) -> None:
        self._texts, self._left = as_object(texts), ATTACHED

    def resolve(self, value: Any, depth: int = DEPTH) -> Any:
        if isinstance(value, str):
            text = self._texts.get(value.removeprefix(_PROTOCOL)) if value.startswith(_PROTOCOL) else None
            if not isinstance(text, str) or len(text) > self._left:
                return value
            self._left -= len(text)
            return text
        if not depth:
            return value
        if isinstance(value, list):
            return [self.resolve(item, depth - 1) for item in value]
        if isinstance(value, dict):
            return {key: self.resolve(item, depth - 1) for key, item in value.items()}
        return value


class _SampleMessages:
    """The messages of a sample in their order, and between them those that only its events hold, each once."""

    def __init__(self, messages: list[TableRow], attachments: _Attachments) -> None:
        self.builder = TurnBuilder()
        self._attachments = attachments
        self._messages, self._next = messages, 0
        self._places = {key: at for at, message in enumerate(messages) for key in self._keys(message)}
        self._known: set[int] = set()  # objects of the events that were looked at: histories repeat them
        self._extra: set[str] = set()
        self._calls: set[str] = set()
        self._answers: set[str] = set()

    def add_from_event(self, message: TableRow, agent: str | None, seconds: float | None = None) -> None:
        if id(message) in self._known:
            return
        self._known.add(id(message))
        keys = self._keys(message)
        places = [self._places[key] for key in keys if key in self._places]
        if places:
            self.add_until(places[0] + 1, agent, seconds)
        elif keys[0] not in self._extra:
            self._extra.add(keys[0])
            self._add(message, agent, seconds)

    def add_until(self, end: int, agent: str | None = None, seconds: float | None = None) -> None:
        """Adds the sample's own messages up to a place; what is known of a call belongs to the last."""
        for at in range(self._next, end):
            last = at == end - 1
            self._add(self._messages[at], agent if last else None, seconds if last else None)
        self._next = max(self._next, end)

    def _keys(self, message: TableRow) -> list[str]:
        """A message's id, and what it says: the pool of a sample holds equal messages once, under one of their ids."""
        text = json.dumps({key: item for key, item in message.items() if key != "id"}, sort_keys=True, default=str)
        return [f"id {message['id']}", text] if message.get("id") else [text]

    def _add(self, message: TableRow, agent: str | None, seconds: float | None) -> None:
        whole = self._attachments.resolve(message)
        self._calls |= {parse_call(call).identity for call in as_objects(whole.get("tool_calls"))}
        self._answers.add(str(whole.get("tool_call_id") or ""))
        first = len(self.builder.turns)
        # What stood in the sample's input was not written by the policy, whatever its role.
        self.builder.add_message({**whole, "sampled": whole.get("source") != "input"})
        self._name(first, agent, seconds)

    def add_tool_event(self, event: TableRow, agent: str | None) -> None:
        """A call, where no message holds it, and its answer, where no message does."""
        identity = str(event.get("id") or "")
        if identity in self._calls and identity in self._answers:
            return
        whole = self._attachments.resolve(event)
        first = len(self.builder.turns)
        if identity not in self._calls:
            self._calls.add(identity)
            self.builder.add_words(ASSISTANT, None, None, [parse_call(whole)])
        if identity not in self._answers:
            self._answers.add(identity)
            failure = whole.get("error")
            error = as_text(as_object(failure).get("message", failure)) if failure else None
            name = whole.get("function")
            self.builder.add_answer(as_text(whole.get("result")) or None, identity, name=name, error=error)
        self._name(first, agent, as_number(whole.get("working_time")))

    def _name(self, first: int, agent: str | None, seconds: float | None) -> None:
        turns = self.builder.turns
        for at in range(first, len(turns)):
            fields: dict[str, Any] = {"agent": agent} if agent else {}
            if at == first and seconds is not None:
                fields["seconds"] = seconds
            if fields:
                turns[at] = msgspec.structs.replace(turns[at], **fields)


def turns_of(sample: TableRow) -> list[Turn]:
    """A sample's turns. Tool events come last: their calls and answers are in messages as a rule."""
    messages = as_objects(sample.get("messages"))
    talk = _SampleMessages(messages, _Attachments(sample.get("attachments")))
    pool = as_object(sample.get("events_data")).get("messages")
    pooled = pool if isinstance(pool, list) else []
    looks = LOOKS
    later: list[tuple[TableRow, str | None]] = []
    for event, agent in _events(as_objects(sample.get("events"))):
        if event.get("event") == "tool":
            later.append((event, agent))
            continue
        for message in [
            *as_objects(event.get("input")),
            *islice(_pooled(event.get("input_refs"), pooled), max(looks, 0)),
        ]:
            looks -= 1
            talk.add_from_event(message, agent)
        for choice in as_objects(as_object(event.get("output")).get("choices"))[:1]:
            if isinstance(choice.get("message"), dict):
                talk.add_from_event(choice["message"], agent, as_number(event.get("working_time")))
    talk.add_until(len(messages))
    for event, agent in later:
        talk.add_tool_event(event, agent)
    return talk.builder.turns


def _events(events: list[TableRow]) -> Iterator[tuple[TableRow, str | None]]:
    """Calls of the model and of tools outside of scorers, each with the agent in whose span it is."""
    spans: dict[str, tuple[bool, str | None]] = {}  # whether it is a scorer's, and the agent
    for event in events:
        kind = event.get("event")
        if kind == "span_begin":
            scorer, agent = spans.get(str(event.get("parent_id")), (False, None))
            if event.get("type") == "agent":
                agent = str(event.get("name"))
            spans[str(event.get("id"))] = (scorer or event.get("type") in _SCORERS, agent)
        elif kind in ("model", "tool"):
            scorer, agent = spans.get(str(event.get("span_id")), (False, None))
            if not scorer and event.get("role") != "grader":
                yield event, agent


def _pooled(references: object, messages: list[Any]) -> Iterator[TableRow]:
    """Messages that stand in the pool of a sample, by ranges of positions."""
    for pair in references if isinstance(references, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int) and end >= 0 for end in pair):
            yield from (message for message in messages[pair[0] : pair[1]] if isinstance(message, dict))
