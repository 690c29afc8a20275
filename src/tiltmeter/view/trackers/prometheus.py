"""The Prometheus sink: newest readings, open alarms, state and lag of a run at /metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.states import State
from tiltmeter.view.trackers.sink import NAME, Alert, MetricPoint, RunIdentity, RunStatus, import_package

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SECONDS = 10.0  # that a client may take


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> PrometheusSink:
    return PrometheusSink(target, run)


class PrometheusSink:
    """Gauges that Prometheus scrapes; nothing is stored between two processes.

    `PORT`, or `ADDRESS:PORT` for other machines: every client there can read the names and values of readings.
    """

    pushes = False
    remembers = False

    def __init__(self, target: str, run: RunIdentity) -> None:
        client = import_package("prometheus_client")
        families = import_package("prometheus_client.core")
        self._gauge: Any = families.GaugeMetricFamily
        host, _, port = target.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise AttachError("--prometheus takes a port, or ADDRESS:PORT")
        self._run = run.name
        self._newest: dict[str, tuple[int, int, float]] = {}
        self._status: RunStatus | None = None
        self._lock = threading.Lock()
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server = _MetricsServer((host, int(port)), lambda: client.generate_latest(registry))
        except OSError as error:
            why = f"port {port} of {host} cannot be listened on ({error.strerror})"
            raise AttachError(f"{why}: choose another, or 0 for any") from error
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="tiltmeter-metrics", daemon=True).start()

    def describe(self) -> list[Any]:
        """Called by the registry, which would otherwise collect at registration."""
        return []

    def collect(self) -> Iterator[Any]:
        with self._lock:
            newest, status = dict(self._newest), self._status
        readings = self._gauge("tiltmeter_reading", "Newest value of a reading.", labels=["run", "reading"])
        for name, (_, _, value) in newest.items():
            readings.add_metric([self._run, name], value)
        yield readings
        if status is None:
            return
        yield self._gauge_of("tiltmeter_step", "Newest step that is measured.", status.step)
        yield self._gauge_of("tiltmeter_alarms_open", "Alarms that hold now.", status.alarms)
        yield self._gauge_of("tiltmeter_warnings_open", "Warnings that hold now.", status.warnings)
        yield self._gauge_of("tiltmeter_steps_behind", "Steps that are stored and not measured.", status.behind)
        if status.newest is not None:
            lag = max(0.0, time.time() - status.newest)
            yield self._gauge_of("tiltmeter_lag_seconds", "Since the newest rollouts were written.", lag)
        if status.agreement is not None:
            words = "How often the reward prefers the better of two answers."
            yield self._gauge_of("tiltmeter_agreement", words, status.agreement)
        if status.level is not None:
            yield self._gauge_of("tiltmeter_level", "Gold now less gold at its best.", status.level)
        state = self._gauge("tiltmeter_state", "1 for the state the run is in.", labels=["run", "state"])
        for name in get_args(State):
            state.add_metric([self._run, name], float(name == status.state))
        yield state

    def _gauge_of(self, name: str, words: str, value: float) -> Any:
        gauge = self._gauge(name, words, labels=["run"])
        gauge.add_metric([self._run], float(value))
        return gauge

    def log_point(self, point: MetricPoint) -> None:
        with self._lock:
            for name, value in point.values.items():
                name_shown = log_line(name, NAME)
                previous = self._newest.get(name_shown)
                if previous is None or previous[:2] <= (point.attempt, point.step):
                    self._newest[name_shown] = (point.attempt, point.step, value)

    def send_alert(self, alert: Alert) -> None:
        """Nothing to do: Prometheus alerts on the number of open alarms."""

    def set_status(self, status: RunStatus) -> None:
        with self._lock:
            self._status = status

    def flush(self) -> None:
        """Nothing to do: values are read when scraped."""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: Any) -> None:
        self.page = page
        self.local = address[0] in LOOPBACK
        super().__init__(address, _MetricsHandler)


class _MetricsHandler(BaseHTTPRequestHandler):
    """Serves /metrics to GET. On a loopback address the Host header must be a loopback name, against DNS rebinding."""

    server: _MetricsServer
    timeout = SECONDS

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if self.server.local and host.strip("[]") not in LOOPBACK:
            self._send(403, b"this address is for this machine\n")
        elif self.path.split("?")[0] != "/metrics":
            self._send(404, b"see /metrics\n")
        else:
            self._send(200, self.server.page(), "text/plain; version=0.0.4; charset=utf-8")

    def _send(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""
