"""What a collector gets, read back by OpenTelemetry's own protobuf classes behind a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs pip install 'tiltmeter[otlp]'")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions
from tests.view.trackers.post_receiver import PostReceiver

from tiltmeter.errors import AttachError
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.trackers import sink_thread
from tiltmeter.view.trackers.follow import SinkSpec, follow
from tiltmeter.view.trackers.otlp import EVENT, OtlpSink
from tiltmeter.view.trackers.sink import RunIdentity


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> RunDirectory:
    return copy_demo_run("hacked", tmp_path_factory.mktemp("runs") / "hacked")


@pytest.fixture
def collector() -> Iterator[PostReceiver]:
    receiver = PostReceiver()
    yield receiver
    receiver.close()


def send(run: RunDirectory, target: str, state: Path, patience: float = 20.0) -> dict[str, str]:
    return dict(follow(run, [SinkSpec("otlp", target)], once=True, state=state, patience=patience))


def facts(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def events_of(collector: PostReceiver) -> list[Any]:
    posts = [post for post in collector.posts if post.path == "/v1/logs"]
    requests = [ExportLogsServiceRequest.FromString(post.body) for post in posts]
    scopes = [scope for one in requests for resource in one.resource_logs for scope in resource.scope_logs]
    return [record for scope in scopes for record in scope.log_records]


def spans_of(collector: PostReceiver) -> list[Any]:
    posts = [post for post in collector.posts if post.path == "/v1/traces"]
    requests = [ExportTraceServiceRequest.FromString(post.body) for post in posts]
    scopes = [scope for one in requests for resource in one.resource_spans for scope in resource.scope_spans]
    return [span for scope in scopes for span in scope.spans]


def test_evaluations_and_exemplars_are_read_back_as_the_conventions_name_them(
    recorded: RunDirectory, collector: PostReceiver, tmp_path: Path
) -> None:
    assert send(recorded, collector.url, tmp_path) == {}
    events, spans = events_of(collector), spans_of(collector)
    assert {event.event_name for event in events} == {EVENT}
    rows = [facts(event.attributes) for event in events]
    names_of_conventions = {value for name, value in vars(conventions).items() if name.startswith("GEN_AI_")}
    named = {key for one in (*rows, *(facts(span.attributes) for span in spans)) for key in one}
    assert {key for key in named if key.startswith("gen_ai.")} <= names_of_conventions
    assert all(one[conventions.GEN_AI_EVALUATION_NAME] for one in rows)
    # Every step's mean reward, with the value of the journal.
    means = {
        (event.attempt, event.step): event.data["measured"]["reward.mean"][0]
        for event in read_events(recorded.path / "events")
        if "reward.mean" in event.data.get("measured", {})
    }
    sent = {
        (one["tiltmeter.attempt"], one["tiltmeter.step"]): one[conventions.GEN_AI_EVALUATION_SCORE_VALUE]
        for one in rows
        if one[conventions.GEN_AI_EVALUATION_NAME] == "reward.mean"
    }
    assert sent == means and len(means) == 84
    labels = {one.get(conventions.GEN_AI_EVALUATION_SCORE_LABEL) for one in rows}
    assert {"alarm", "ACT"} <= labels
    # Each exemplar is a trace of its own, and its reward and gold stand below its span.
    assert spans and len({span.trace_id for span in spans}) == len(spans)
    below = {event.span_id: facts(event.attributes) for event in events if event.span_id}
    for span in spans:
        assert span.name == facts(span.attributes)[conventions.GEN_AI_OPERATION_NAME] == "text_completion"
        assert (
            below[span.span_id][conventions.GEN_AI_RESPONSE_ID]
            == facts(span.attributes)[conventions.GEN_AI_RESPONSE_ID]
        )
    assert all(conventions.GEN_AI_OUTPUT_MESSAGES not in facts(span.attributes) for span in spans)


def test_completions_are_sent_only_when_asked_for_and_a_second_sending_has_the_same_ids(
    recorded: RunDirectory, collector: PostReceiver, tmp_path: Path
) -> None:
    assert send(recorded, f"texts:{collector.url}", tmp_path / "a") == {}
    first = {span.trace_id for span in spans_of(collector)}
    message = json.loads(facts(spans_of(collector)[0].attributes)[conventions.GEN_AI_OUTPUT_MESSAGES])
    assert message[0]["role"] == "assistant" and message[0]["parts"][0]["content"]
    collector.posts.clear()
    assert send(recorded, collector.url, tmp_path / "b") == {}
    assert {span.trace_id for span in spans_of(collector)} == first


def test_what_a_collector_refuses_for_a_while_comes_once_it_is_back(
    recorded: RunDirectory, collector: PostReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_thread, "FIRST_RETRY", 0.05)
    collector.answers = [400] * 6  # OpenTelemetry itself repeats what a 503 refuses
    assert send(recorded, collector.url, tmp_path) == {}
    names = [facts(event.attributes)["gen_ai.evaluation.name"] for event in events_of(collector)]
    assert names.count("reward.mean") == 84


def test_an_address_that_is_none_is_refused_without_being_repeated() -> None:
    for target in ("localhost:4318", "file:///etc/passwd", "http://user:s3cret@host:4318"):
        with pytest.raises(AttachError) as caught:
            OtlpSink(target, RunIdentity("1", "x"))
        assert "s3cret" not in str(caught.value)
