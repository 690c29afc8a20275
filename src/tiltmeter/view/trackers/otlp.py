"""The OTLP sink: evaluation events and exemplar traces for an OpenTelemetry collector, by the GenAI conventions.

Each step's gold, evaluations and mean reward become events `gen_ai.evaluation.result`; so does the verdict whenever it
changes. Each rollout that shows an alarm becomes a trace of one span, with its reward and gold as evaluation events
below it. Completions are left out unless they are asked for. Ids come from the run, so what is sent twice is the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.run_facts import GOLD_READINGS, is_watched
from tiltmeter.view.trackers.sink import (
    NAME,
    Alert,
    Evidence,
    MetricPoint,
    RetryLaterError,
    RunIdentity,
    RunStatus,
    import_package,
)

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

TIMEOUT = 10.0  # seconds
TEXTS = "texts:"  # before the address: completions are sent too
EVENT = "gen_ai.evaluation.result"
READINGS = (*GOLD_READINGS, "reward.mean")
SPAN = "text_completion"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> OtlpSink:
    return OtlpSink(target, run)


class OtlpSink:
    """Sends to the collector at one address, over HTTP; what it has taken counts as delivered."""

    pushes = False
    remembers = True

    def __init__(self, target: str, run: RunIdentity) -> None:
        self._texts = target.startswith(TEXTS)
        address = target.removeprefix(TEXTS).rstrip("/")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise AttachError("--otlp takes the address of a collector, as http://localhost:4318, without a password")
        import_package("opentelemetry.sdk.trace", "otlp")
        import_package("opentelemetry.exporter.otlp.proto.http", "otlp")
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what fails is raised, and said once
        session = _direct_session() if parts.hostname in LOOPBACK else None
        self._spans_to = OTLPSpanExporter(f"{address}/v1/traces", timeout=TIMEOUT, session=session)
        self._events_to = OTLPLogExporter(f"{address}/v1/logs", timeout=TIMEOUT, session=session)
        self._resource = Resource(
            {"service.name": "tiltmeter", "tiltmeter.run.id": run.id, "tiltmeter.run.name": run.name}
        )
        self._scope = InstrumentationScope("tiltmeter")
        self._run = run
        self._events: list[Any] = []
        self._spans: list[Any] = []
        self._state = ""

    def log_point(self, point: MetricPoint) -> None:
        for name, value in point.values.items():
            if is_watched(name, READINGS):
                facts = {"tiltmeter.attempt": point.attempt, "tiltmeter.step": point.step}
                self._add_event(log_line(name, NAME), value, point.time, facts)

    def send_alert(self, alert: Alert) -> None:
        facts: dict[str, Any] = {
            "tiltmeter.attempt": alert.attempt,
            "tiltmeter.step": alert.step,
            "tiltmeter.onset": alert.onset,
            "tiltmeter.detector": alert.detector,
            "gen_ai.evaluation.score.label": "alarm" if alert.level == "ERROR" else "warning",
            "gen_ai.evaluation.explanation": alert.text,
        }
        self._add_event(alert.reading or alert.title, None, alert.time, facts, severe=alert.level)

    def set_status(self, status: RunStatus) -> None:
        if status.state == self._state:
            return
        label = {"gen_ai.evaluation.score.label": status.state, "gen_ai.evaluation.explanation": status.sentence}
        self._add_event("tiltmeter.verdict", None, time.time(), {**label, "tiltmeter.step": status.step})
        self._state = status.state

    def show_evidence(self, evidence: Evidence) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

        now = time.time()
        for rollout, reward, gold, completion in evidence.rows:
            mark = hashlib.sha256(f"{self._run.id}\n{rollout}".encode("utf-8", "surrogatepass")).digest()
            trace_id, span_id = int.from_bytes(mark[:16], "big"), int.from_bytes(mark[16:24], "big")
            attempt, step, _ = (int(part) for part in rollout.split("-"))
            facts: dict[str, Any] = {
                "gen_ai.operation.name": SPAN,
                "gen_ai.provider.name": "tiltmeter",  # the policy that is trained: no provider of the list
                "gen_ai.response.id": rollout,
                "tiltmeter.attempt": attempt,
                "tiltmeter.step": step,
            }
            if self._texts:
                parts = [{"type": "text", "content": completion}]
                message = {"role": "assistant", "parts": parts, "finish_reason": "unknown"}
                facts["gen_ai.output.messages"] = json.dumps([message])
            context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
            nanoseconds = int(now * 1e9)
            self._spans.append(
                ReadableSpan(
                    SPAN,
                    context,
                    resource=self._resource,
                    attributes=facts,
                    kind=SpanKind.CLIENT,
                    start_time=nanoseconds,
                    end_time=nanoseconds,
                    instrumentation_scope=self._scope,
                )
            )
            at = {"gen_ai.response.id": rollout, "tiltmeter.attempt": attempt, "tiltmeter.step": step}
            for name, value in (("reward", reward), ("gold", gold)):
                if value is not None and math.isfinite(value):
                    self._add_event(name, value, now, at, span=context)

    def flush(self) -> None:
        """Hand over what waits. Raises `RetryLaterError` if the collector did not take it: whoever called comes again
        with the same, of which it is built anew."""
        spans, self._spans, events, self._events = self._spans, [], self._events, []
        taken = not spans or self._spans_to.export(spans).name == "SUCCESS"
        if not (taken and (not events or self._events_to.export(events).name == "SUCCESS")):
            self._state = ""
            raise RetryLaterError("the collector did not take it")

    def close(self) -> None:
        for exporter in (self._spans_to, self._events_to):
            exporter.shutdown()  # type: ignore[no-untyped-call]

    def _add_event(
        self,
        name: str,
        value: float | None,
        at: float,
        facts: dict[str, Any],
        *,
        span: SpanContext | None = None,
        severe: str = "",
    ) -> None:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        score = {} if value is None else {"gen_ai.evaluation.score.value": float(value)}
        levels = {"ERROR": SeverityNumber.ERROR, "WARN": SeverityNumber.WARN, "": SeverityNumber.INFO}
        record = LogRecord(
            timestamp=int(at * 1e9),
            observed_timestamp=time.time_ns(),
            context=None if span is None else set_span_in_context(NonRecordingSpan(span)),
            severity_number=levels[severe],
            severity_text=severe or "INFO",
            attributes={"gen_ai.evaluation.name": name, **score, **facts},
            event_name=EVENT,
        )
        self._events.append(ReadableLogRecord(record, self._resource, self._scope))


def _direct_session() -> Any:
    """A collector on this machine is not asked through the environment's proxy."""
    import requests

    session = requests.Session()
    session.trust_env = False
    return session
