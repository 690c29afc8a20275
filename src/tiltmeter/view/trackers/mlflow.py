"""The MLflow sinks: a run of its own, and the trainer's own run, in a local database or on a server."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.sink import (
    EVIDENCE_COLUMNS,
    Alert,
    Evidence,
    MetricPoint,
    RetryLaterError,
    RunIdentity,
    RunStatus,
    import_package,
)

EXPERIMENT = "tiltmeter"
BATCH = 1000  # metrics that one request may hold
LONGEST = 250  # characters of a key
_FOREIGN = re.compile(r"[^\w\-. :/]", re.ASCII)


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> MlflowSink:
    return MlflowSink(target, run, memo)


def join_run(target: str, run: RunIdentity, memo: dict[str, str]) -> TrainerMlflowSink:
    """`target`: the tracking URI and the id of the trainer's run, as JSON."""
    place = json.loads(target)
    memo["run_id"] = place["run"]
    return TrainerMlflowSink(place["uri"], run, memo)


class MlflowSink:
    """A run in the experiment `tiltmeter`. MLflow has no alerts: alarms and the verdict are tags of the run.

    A reading that is logged twice is stored once, because key, step, value and time are equal.

    >>> MlflowSink("https://me:word@example.org", RunIdentity("7cc90d", "tonight"), {})
    Traceback (most recent call last):
    tiltmeter.errors.AttachError: MLflow's address may hold no user and password: set MLFLOW_TRACKING_USERNAME and \
MLFLOW_TRACKING_PASSWORD (a database has means of its own, as PGPASSWORD)
    """

    pushes = False
    remembers = True

    def __init__(self, uri: str, run: RunIdentity, memo: dict[str, str]) -> None:
        if _has_credentials(uri):
            raise AttachError(
                "MLflow's address may hold no user and password: set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD (a database has means of its own, as PGPASSWORD)"
            )
        self._uri = uri
        import_package("mlflow", "mlflow")
        self._entities: Any = import_package("mlflow.entities")
        try:
            self._client: Any = import_package("mlflow.tracking").MlflowClient(tracking_uri=uri)
            self._id = memo.get("run_id") or self._create_run(run)
            self._client.get_run(self._id)
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything
            why = hide_address(uri, error)
            raise AttachError(f"MLflow does not start ({why}); a local store is sqlite:////PATH/mlflow.db") from None
        memo["run_id"] = self._id
        self._tags: dict[str, str] = {}

    def _create_run(self, run: RunIdentity) -> str:
        existing = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = existing.experiment_id if existing is not None else self._client.create_experiment(EXPERIMENT)
        created = self._client.create_run(experiment, run_name=run.name, tags={"tiltmeter.run": run.id})
        return str(created.info.run_id)

    def log_point(self, point: MetricPoint) -> None:
        metrics = [
            self._entities.Metric(_FOREIGN.sub("_", name)[:LONGEST], value, round(1000 * point.time), point.step)
            for name, value in point.prefixed_values().items()
        ]
        with self._hide_address():
            for start in range(0, len(metrics), BATCH):
                self._client.log_batch(self._id, metrics=metrics[start : start + BATCH])

    def send_alert(self, alert: Alert) -> None:
        word = "alarm" if alert.level == "ERROR" else "warning"
        with self._hide_address():
            self._client.set_tag(self._id, f"tiltmeter.{word}.{alert.step}.{alert.identity[:12]}", alert.text)

    def set_status(self, status: RunStatus) -> None:
        tags = {"state": status.state, "sentence": status.sentence, "alarms_open": str(status.alarms)}
        for name, value in tags.items():
            if self._tags.get(name) != value:
                with self._hide_address():
                    self._client.set_tag(self._id, f"tiltmeter.{name}", value)
                self._tags[name] = value

    def flush(self) -> None:
        """Nothing to do: every call is a completed request."""

    def close(self) -> None:
        with self._hide_address():
            self._client.set_terminated(self._id)

    @contextmanager
    def _hide_address(self) -> Iterator[None]:
        """Raise errors without the address, because they are stored in the run directory, which may be shared."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything
            raise RetryLaterError(hide_address(self._uri, error)) from None


class TrainerMlflowSink(MlflowSink):
    """The trainer's own run, by its id; it is ended by the trainer and takes more after that."""

    def show_evidence(self, evidence: Evidence) -> None:
        with self._hide_address():
            if evidence.rows:
                table = {"columns": list(EVIDENCE_COLUMNS), "data": [list(row) for row in evidence.rows]}
                self._client.log_dict(self._id, table, "tiltmeter/completions.json")
            if evidence.picture:
                image = import_package("PIL.Image").open(io.BytesIO(evidence.picture))
                self._client.log_image(self._id, image, "tiltmeter/proxy_and_gold.png")

    def close(self) -> None:
        """Nothing to do: the trainer ends its run."""


def hide_address(uri: str, error: Exception) -> str:
    """The error message without the address.

    >>> hide_address("http://example.org/s3cret/", OSError("http://example.org/s3cret/api: nobody at /s3cret/api"))
    'OSError: (address)/api: nobody at (address)/api'
    """
    text, parts = f"{type(error).__name__}: {error}", urlsplit(uri)
    for secret in (uri.rstrip("/"), parts.path.rstrip("/"), parts.query):
        if len(secret) > 1:
            text = text.replace(secret, "(address)")
    return log_line(text, 300)


def _has_credentials(uri: str) -> bool:
    """Whether the URI has a user name (http) or a password; one with `/` or `#` in it ends up in the path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return True
    if not parts.netloc:
        return False
    named = parts.username is not None and parts.scheme in ("http", "https")
    return named or parts.password is not None or "@" in parts.path + parts.query + parts.fragment
