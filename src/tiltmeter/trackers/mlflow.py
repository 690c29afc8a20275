"""Readings, alarms and the verdict as a run of MLflow, in a local database or on a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.trackers.sink import Alert, Named, NotNowError, Point, Standing, package

EXPERIMENT = "tiltmeter"
BATCH = 1000  # metrics that one request may hold
LONGEST = 250  # characters of a key
_FOREIGN = re.compile(r"[^\w\-. :/]", re.ASCII)


def open_sink(target: str, run: Named, memo: dict[str, str]) -> Mlflow:
    return Mlflow(target, run, memo)


class Mlflow:
    """A run in the experiment `tiltmeter`. MLflow has no alerts: alarms and the verdict are tags of the run.

    A reading that is told twice is kept once: key, step, value and time are the same.

    >>> Mlflow("https://me:word@example.org", Named("7cc90d", "tonight"), {})
    Traceback (most recent call last):
    tiltmeter.errors.AttachError: MLflow's address may hold no user and password: set MLFLOW_TRACKING_USERNAME and \
MLFLOW_TRACKING_PASSWORD (a database has means of its own, as PGPASSWORD)
    """

    pushes = False
    remembers = True

    def __init__(self, uri: str, run: Named, memo: dict[str, str]) -> None:
        if _tells_secret(uri):
            raise AttachError(
                "MLflow's address may hold no user and password: set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD (a database has means of its own, as PGPASSWORD)"
            )
        self._uri = uri
        package("mlflow", "mlflow")
        self._entities: Any = package("mlflow.entities")
        try:
            self._client: Any = package("mlflow.tracking").MlflowClient(tracking_uri=uri)
            self._id = memo.get("run_id") or self._begin(run)
            self._client.get_run(self._id)
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything
            why = without(uri, error)
            raise AttachError(f"MLflow does not start ({why}); a local store is sqlite:////PATH/mlflow.db") from None
        memo["run_id"] = self._id
        self._tags: dict[str, str] = {}

    def _begin(self, run: Named) -> str:
        known = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known is not None else self._client.create_experiment(EXPERIMENT)
        made = self._client.create_run(experiment, run_name=run.name, tags={"tiltmeter.run": run.id})
        return str(made.info.run_id)

    def point(self, point: Point) -> None:
        made = [
            self._entities.Metric(_FOREIGN.sub("_", name)[:LONGEST], value, round(1000 * point.time), point.step)
            for name, value in point.named().items()
        ]
        with self._discreet():
            for start in range(0, len(made), BATCH):
                self._client.log_batch(self._id, metrics=made[start : start + BATCH])

    def alert(self, alert: Alert) -> None:
        word = "alarm" if alert.level == "ERROR" else "warning"
        with self._discreet():
            self._client.set_tag(self._id, f"tiltmeter.{word}.{alert.step}.{alert.identity[:12]}", alert.text)

    def standing(self, standing: Standing) -> None:
        told = {"state": standing.state, "sentence": standing.sentence, "alarms_open": str(standing.alarms)}
        for name, value in told.items():
            if self._tags.get(name) != value:
                with self._discreet():
                    self._client.set_tag(self._id, f"tiltmeter.{name}", value)
                self._tags[name] = value

    def flush(self) -> None:
        """Every call is a request that was answered."""

    def close(self) -> None:
        with self._discreet():
            self._client.set_terminated(self._id)

    @contextmanager
    def _discreet(self) -> Iterator[None]:
        """What goes wrong is logged and kept in a file of the run directory, which others may be given."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything
            raise NotNowError(without(self._uri, error)) from None


def without(uri: str, error: Exception) -> str:
    """What went wrong, without the address.

    >>> without("http://example.org/s3cret/", OSError("http://example.org/s3cret/api: nobody at /s3cret/api"))
    'OSError: (address)/api: nobody at (address)/api'
    """
    text, parts = f"{type(error).__name__}: {error}", urlsplit(uri)
    for told in (uri.rstrip("/"), parts.path.rstrip("/"), parts.query):
        if len(told) > 1:
            text = text.replace(told, "(address)")
    return log_line(text, 300)


def _tells_secret(uri: str) -> bool:
    """A user of a web server, or a password of anything. One with a `/` or `#` in it is cut where no reader expects."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return True
    if not parts.netloc:
        return False
    named = parts.username is not None and parts.scheme in ("http", "https")
    return named or parts.password is not None or "@" in parts.path + parts.query + parts.fragment
