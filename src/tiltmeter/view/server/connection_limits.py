"""Connections that send no whole request, or one whose length can be read in two ways.

Each has a deadline, too many at once make room for others, and an ambiguous request ends its connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0  # from a connection's first moment, or a request's first byte, to the end of its headers
MOST_CONNECTIONS = 512  # half of the files that a process may usually have open


class StrictConnection(h11.Connection):
    """h11, which refuses a request whose end a proxy before it could see elsewhere (request smuggling).

    By itself h11 ignores Content-Length beside Transfer-Encoding, and joins equal values and folded lines.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        head = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        if why := framing_refusal(head[: len(head) - len(self.trailing_data[0])], event.http_version):
            raise h11.RemoteProtocolError(why)
        return event


def framing_refusal(head: bytes, version: bytes = b"1.1") -> str:
    """Why the length of this request is ambiguous; empty if it is not.

    >>> framing_refusal(b"POST / HTTP/1.1\\r\\nContent-Length: 1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
    'Content-Length and Transfer-Encoding'
    """
    lines = head.split(b"\n")[1:]
    names = [line.partition(b":")[0].strip().lower() for line in lines]
    lengths, encodings = names.count(b"content-length"), names.count(b"transfer-encoding")
    if any(line[:1] in (b" ", b"\t") for line in lines):
        return "a folded header line"
    if lengths and encodings:
        return "Content-Length and Transfer-Encoding"
    if lengths > 1 or any(b"," in line for line, name in zip(lines, names, strict=True) if name == b"content-length"):
        return "Content-Length more than once"
    return "Transfer-Encoding in HTTP/1.0" if encodings and version < b"1.1" else ""


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for ever for the rest of a request.

    Whoever opens many connections and finishes no request loses the oldest of these, and nobody else is kept out.
    """

    most_connections = MOST_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self.conn = StrictConnection(h11.SERVER)

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
