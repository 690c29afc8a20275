"""Spans in the forms in which they are exported: OTLP as JSON, the console exporter's, and Agent Lightning's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltmeter.audit.readers.table_files import TableRow, number
from tiltmeter.data.rows import as_object, as_objects

DEPTH = 32  # of lists and maps in a value
EVALUATION = "gen_ai.evaluation.result"


@dataclass(frozen=True, slots=True)
class Span:
    """What is used of a span, or of a log record that scores one."""

    trace: str
    start: tuple[float, str]  # time, as a number or else as text; texts of one exporter sort as times do
    attributes: Mapping[str, Any]
    conversation: str = ""
    failed: bool = False
    message: str = ""  # of the failure
    seconds: float | None = None
    scores: tuple[Mapping[str, Any], ...] = field(default=())  # attributes of evaluations

    @property
    def operation(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name") or "")


def spans_of(row: TableRow) -> Iterator[Span]:
    """The spans in one line."""
    for kind, scope, items in (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords")):
        for resource in as_objects(row.get(kind)):
            for part in as_objects(resource.get(scope)):
                yield from (_otlp(item, items == "logRecords") for item in as_objects(part.get(items)))
    if isinstance(row.get("attributes"), dict) and ("span_id" in row or isinstance(row.get("context"), dict)):
        yield _plain(row)


def _otlp(item: TableRow, record: bool) -> Span:
    attributes = _attributes(item.get("attributes"))
    events = [(str(one.get("name")), _attributes(one.get("attributes"))) for one in as_objects(item.get("events"))]
    if record:
        events.append((str(item.get("eventName") or attributes.get("event.name")), attributes))
    status = as_object(item.get("status"))
    start, end = number(item.get("startTimeUnixNano")), number(item.get("endTimeUnixNano"))
    return Span(
        trace=str(item.get("traceId")),
        start=(start or 0.0, ""),
        attributes={} if record else attributes,
        conversation=str(attributes.get("gen_ai.conversation.id") or ""),
        failed=status.get("code") in (2, "STATUS_CODE_ERROR"),
        message=str(status.get("message") or ""),
        seconds=None if start is None or end is None or end < start else (end - start) / 1e9,
        scores=tuple(values for name, values in events if name == EVALUATION),
    )


def _plain(row: TableRow) -> Span:
    attributes = as_object(row.get("attributes"))
    context, status = as_object(row.get("context")), as_object(row.get("status"))
    start = row.get("start_time")
    rollout = row.get("rollout_id")
    events = as_objects(row.get("events"))
    return Span(
        trace=str(context.get("trace_id") or row.get("trace_id")),
        start=(number(start) or 0.0, start if isinstance(start, str) else ""),
        attributes=attributes,
        conversation=str(rollout or attributes.get("gen_ai.conversation.id") or ""),
        failed=str(status.get("status_code")).upper() == "ERROR",
        message=str(status.get("description") or ""),
        scores=tuple(as_object(one.get("attributes")) for one in events if one.get("name") == EVALUATION),
    )


def _attributes(items: object) -> dict[str, Any]:
    return {str(item.get("key")): _value(item.get("value"), DEPTH) for item in as_objects(items)}


def _value(value: object, depth: int) -> Any:
    """The value in OTLP's wrapping of it by its type."""
    wrapped = as_object(value)
    if not depth or not wrapped:
        return None
    kind, inner = next(iter(wrapped.items()))
    if kind == "intValue":
        return number(inner)
    if kind == "arrayValue":
        return [_value(one, depth - 1) for one in as_objects(as_object(inner).get("values"))]
    if kind == "kvlistValue":
        pairs = as_objects(as_object(inner).get("values"))
        return {str(pair.get("key")): _value(pair.get("value"), depth - 1) for pair in pairs}
    return inner
