"""Connections that send no whole request: each has a deadline, and too many at once make room for others."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0  # from a connection's first moment, or a request's first byte, to the end of its headers
MOST_CONNECTIONS = 512  # half of the files that a process may usually have open


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for ever for the rest of a request.

    Whoever opens many connections and finishes no request loses the oldest of these, and nobody else is kept out.
    """

    most_connections = MOST_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            unfinished = [one for one in self.connections if isinstance(one, LimitedProtocol) and one._deadline]
            oldest = min(unfinished, key=lambda one: one._deadline.when() if one._deadline else 0.0, default=self)
            oldest._give_up()
            if oldest is self:
                return
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_deadline()
        elif data:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._cancel_deadline()
        self.transport.abort()
