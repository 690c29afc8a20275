"""Reads exported OpenTelemetry spans of the GenAI conventions from JSON lines: a conversation is a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import list_folders, size_of
from tiltmeter.audit.readers.jsonl import as_store_errors, first_row, read_rows
from tiltmeter.audit.readers.metric_series import stem
from tiltmeter.audit.readers.trajectories.otel_spans import Span, spans_of
from tiltmeter.audit.readers.trajectories.otel_turns import turns_of
from tiltmeter.audit.readers.trajectories.scores import ONE_STEP, choose_scores, option_notes, score_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import as_number, batch_of
from tiltmeter.data.turns import prompt_text
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

SIZE = 1 << 30  # bytes of a file: its spans are sorted in memory
_NAME = re.compile(r"(?:span|trace|otel|otlp|telemetry).*\.(?:jsonl|ndjson|json)(?:\.gz)?$", re.IGNORECASE)
_PEEK = 2_000  # spans that are looked at, to recognise the file and to find the names of scores
_SANDBOX = re.compile(r"sandbox|docker|container|environment", re.IGNORECASE)
_TIMEOUT = re.compile(r"timeout|timed out|deadline", re.IGNORECASE)


class OtelReader:
    """Spans of agents: calls of models and tools, in lines of OTLP/JSON, of the console exporter or of Agent Lightning.

    Every call of a model repeats the history: each message counts once. Rewards are events `gen_ai.evaluation.result`.
    """

    name = "otel"
    title = "OpenTelemetry GenAI spans in JSON lines"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        files = [
            listing.folder / name
            for listing in list_folders(path)
            for name in listing.files
            if (path.is_file() or _NAME.search(name)) and _looks_like_spans(listing.folder / name)
        ]
        return collect_runs({str(file): partial(_run, file, options) for file in files})

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        file = Path(piece.files[0])
        with as_store_errors(file):
            spans = [span for row in read_rows(file, growing=True) for span in spans_of(row)]
            talks = _conversations(spans)
            batch = batch_of(0, [_row(key, talk, run.settings) for key, talk in talks.items()])
        if not len(batch):
            raise StoreError(f"{file}: no conversation in these spans; nothing to judge")
        yield batch


def _looks_like_spans(file: Path) -> bool:
    """Whether the first line holds spans. Of a file whose first line is long, only its beginning is looked at."""
    try:
        with file.open("rb") as stream:
            head = stream.read(1 << 16)
    except OSError:
        return False
    if file.name.endswith(".gz"):
        return any(spans_of(first_row(file)))
    marks = (b'"resourceSpans"', b'"resourceLogs"', b'"span_id"')
    return any(mark in head for mark in marks)


def _run(file: Path, options: ReadOptions) -> ExternalRun | None:
    if size_of(file) > SIZE:
        raise StoreError(
            f"{file}: {size_of(file) / 1e9:.1f} GB of spans are too many to sort in memory; split the file"
        )
    with as_store_errors(file):
        spans = list(islice((span for row in read_rows(file, growing=True) for span in spans_of(row)), _PEEK))
    if not any(name.startswith("gen_ai.") for span in spans for name in span.attributes):
        return None
    names = dict.fromkeys(name for span in spans for name in _scores([span]))
    chosen, notes = choose_scores(list(names), options, file)
    described = (
        f"OpenTelemetry spans: {ONE_STEP}; a row is a conversation, or a trace where none is named; groups by prompt",
        "a message that only stands in a history, and that no span wrote, does not count as the policy's",
        "left out: spans of other operations, usage, and what an exporter dropped or was told not to record",
    )
    piece = Piece((str(file.absolute()),), size_of(file), (0,))
    all_notes = (*described, *notes, *option_notes(options))
    return ExternalRun(log_line(stem(file), 100), OtelReader.name, (piece,), all_notes, chosen)


def _conversations(spans: Sequence[Span]) -> dict[str, list[Span]]:
    """The spans of each conversation, in time. A span without a name of its conversation has that of its trace."""
    named: dict[str, set[str]] = {}
    for span in spans:
        if span.conversation:
            named.setdefault(span.trace, set()).add(span.conversation)
    talks: dict[str, list[Span]] = {}
    for span in spans:
        shared = named.get(span.trace, set())
        key = span.conversation or (next(iter(shared)) if len(shared) == 1 else span.trace)
        talks.setdefault(key, []).append(span)
    sorted_talks = {key: sorted(talk, key=lambda span: span.start) for key, talk in talks.items()}
    return {key: talk for key, talk in sorted_talks.items() if any(span.operation or span.scores for span in talk)}


def _row(key: str, spans: Sequence[Span], settings: Mapping[str, Any]) -> dict[str, Any]:
    agent = next((str(name) for span in spans if (name := span.attributes.get("gen_ai.agent.name"))), None)
    models = dict.fromkeys(str(name) for span in spans if (name := span.attributes.get("gen_ai.request.model")))
    turns = turns_of(spans)
    return {
        "group": prompt_text(turns) or key,
        "turns": turns,
        "agent": agent,
        "task": key,
        "stop": _stop(spans),
        "facts": {"conversation": key, **({"models": list(models)} if models else {})},
        **score_columns(_scores(spans), settings),
    }


def _scores(spans: Sequence[Span]) -> dict[str, object]:
    scores: dict[str, object] = {}
    for span in spans:
        for attributes in span.scores:
            name = str(attributes.get("gen_ai.evaluation.name") or "evaluation")
            scores[name] = as_number(attributes.get("gen_ai.evaluation.score.value"))
    return scores


def _stop(spans: Sequence[Span]) -> str | None:
    """From the run of the agent, if it failed; else from the last call of the model."""
    for span in spans:
        if span.failed and span.operation in ("invoke_agent", "create_agent"):
            words = f"{span.attributes.get('error.type')} {span.message}"[:2_000]
            return "sandbox" if _SANDBOX.search(words) else "wall_clock" if _TIMEOUT.search(words) else "engine"
    calls = [span for span in spans if span.operation in ("chat", "text_completion", "generate_content")]
    if not calls:
        return None
    if calls[-1].failed:
        return "engine"
    reasons = calls[-1].attributes.get("gen_ai.response.finish_reasons")
    last = reasons[-1] if isinstance(reasons, list) and reasons else None
    return "length" if last in ("length", "max_tokens") else "done" if last in ("stop", "end_turn") else "unknown"
