"""The newest readings, open alarms, state and lag of a run at /metrics, for Prometheus to fetch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args

from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.trackers.sink import NAME, Alert, Named, Point, Standing, package
from tiltmeter.verdict import State

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SECONDS = 10.0  # that a client may take


def open_sink(target: str, run: Named, memo: dict[str, str]) -> Prometheus:
    return Prometheus(target, run)


class Prometheus:
    """Gauges that are asked for, so nothing is kept between two processes.

    `PORT`, or `ADDRESS:PORT` for others to reach: numbers and names of readings are shown to whoever asks there.
    """

    pushes = False
    remembers = False

    def __init__(self, target: str, run: Named) -> None:
        client = package("prometheus_client")
        families = package("prometheus_client.core")
        self._gauge: Any = families.GaugeMetricFamily
        host, _, port = target.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise AttachError("--prometheus takes a port, or ADDRESS:PORT")
        self._run = run.name
        self._newest: dict[str, tuple[int, int, float]] = {}
        self._standing: Standing | None = None
        self._lock = threading.Lock()
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server = _Server((host, int(port)), lambda: client.generate_latest(registry))
        except OSError as error:
            why = f"port {port} of {host} cannot be listened on ({error.strerror})"
            raise AttachError(f"{why}: choose another, or 0 for any") from error
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="tiltmeter-metrics", daemon=True).start()

    def describe(self) -> list[Any]:
        """Asked by the registry, which would else collect before there is anything."""
        return []

    def collect(self) -> Iterator[Any]:
        with self._lock:
            newest, standing = dict(self._newest), self._standing
        readings = self._gauge("tiltmeter_reading", "Newest value of a reading.", labels=["run", "reading"])
        for name, (_, _, value) in newest.items():
            readings.add_metric([self._run, name], value)
        yield readings
        if standing is None:
            return
        yield self._one("tiltmeter_step", "Newest step that is measured.", standing.step)
        yield self._one("tiltmeter_alarms_open", "Alarms that hold now.", standing.alarms)
        yield self._one("tiltmeter_warnings_open", "Warnings that hold now.", standing.warnings)
        yield self._one("tiltmeter_steps_behind", "Steps that are stored and not measured.", standing.behind)
        if standing.newest is not None:
            lag = max(0.0, time.time() - standing.newest)
            yield self._one("tiltmeter_lag_seconds", "Since the newest rollouts were written.", lag)
        state = self._gauge("tiltmeter_state", "1 for the state the run is in.", labels=["run", "state"])
        for name in get_args(State):
            state.add_metric([self._run, name], float(name == standing.state))
        yield state

    def _one(self, name: str, words: str, value: float) -> Any:
        made = self._gauge(name, words, labels=["run"])
        made.add_metric([self._run], float(value))
        return made

    def point(self, point: Point) -> None:
        with self._lock:
            for name, value in point.values.items():
                shown = log_line(name, NAME)
                known = self._newest.get(shown)
                if known is None or known[:2] <= (point.attempt, point.step):
                    self._newest[shown] = (point.attempt, point.step, value)

    def alert(self, alert: Alert) -> None:
        """The number of open alarms says it; who is woken is Prometheus' business."""

    def standing(self, standing: Standing) -> None:
        with self._lock:
            self._standing = standing

    def flush(self) -> None:
        """It is there when it is asked for."""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: Any) -> None:
        self.page = page
        self.local = address[0] in LOOPBACK
        super().__init__(address, _Answer)


class _Answer(BaseHTTPRequestHandler):
    """One page, to GET. On a loopback address only for who calls it so: a web page that gave its own name to this
    machine must not read along."""

    server: _Server
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
        """A request is not worth a line."""
