"""Client of a server with OpenAI's chat API: a few requests at a time, with retries and time limits."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tiltmeter.errors import TiltmeterError
from tiltmeter.safety.secret_scan import name_secret

if TYPE_CHECKING:
    import httpx

THREADS = 4
BACKOFF_SECONDS = 1.0  # before the second try; doubled before each further one
LONGEST_WAIT_SECONDS = 20.0  # whatever a server asks for
LONGEST_TRY_SECONDS = 600.0
ANSWER_BYTES = 1 << 20
RETRY_STATUSES = (408, 429, 500, 502, 503, 504)  # HTTP statuses that may pass


class ChatError(TiltmeterError):
    """A model could not be asked, and why. Answers that came before it stay valid."""


class _BusyError(ChatError):
    """No answer now; perhaps at the next try."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass(frozen=True)
class Endpoint:
    """A model on a server. `key_env` names the environment variable that holds the key; the key itself is read at each
    call and kept nowhere.

    >>> server = Endpoint("http://localhost:8000/v1", "small")
    >>> server.host, server.endpoint
    ('localhost:8000', 'http://localhost:8000/v1/chat/completions')
    """

    url: str
    model: str
    key_env: str = ""
    timeout: float = 60.0  # seconds for one try
    retries: int = 3

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def endpoint(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/chat/completions") else f"{base}/chat/completions"

    def replies(
        self,
        bodies: Sequence[Mapping[str, Any]],
        *,
        within: float | None = None,
    ) -> Iterator[tuple[int, bytes | ChatError]]:
        """The number of a request with what the server sent back, as it comes; `within` seconds for all of them.

        A request that failed for good is given with its error. Closing the iterator stops the requests.
        """
        import httpx

        until = time.monotonic() + (within if within is not None else float("inf"))
        numbers, stop = count(), threading.Event()
        results: queue.SimpleQueue[tuple[int, bytes | ChatError]] = queue.SimpleQueue()

        def work() -> None:
            while (number := next(numbers)) < len(bodies) and not stop.is_set() and time.monotonic() < until:
                results.put((number, self._post_with_retries(client, bodies[number], until, stop)))

        # A server on this machine is asked directly: a proxy of the environment would get the key and every text.
        client = httpx.Client(timeout=self.timeout, trust_env=not is_loopback(self.url))
        for _ in range(min(THREADS, len(bodies))):
            threading.Thread(target=work, daemon=True).start()
        waiting = set(range(len(bodies)))
        try:
            while waiting:
                remaining = until - time.monotonic()
                try:  # what came in time counts, even if nobody looked until now
                    number, reply = (
                        results.get(timeout=min(remaining, LONGEST_TRY_SECONDS))
                        if remaining > 0.0
                        else results.get(False)
                    )
                except queue.Empty:
                    if remaining > 0.0:
                        continue
                    break
                waiting.remove(number)
                yield number, reply
        finally:
            stop.set()
            client.close()
        late = ChatError(f"no answer from {self.host} within {within or 0.0:g} s")
        yield from ((number, late) for number in sorted(waiting))

    def _post_with_retries(
        self, client: httpx.Client, body: Mapping[str, Any], until: float, stop: threading.Event
    ) -> bytes | ChatError:
        for tries in count(1):
            try:
                return self._post(client, body)
            except _BusyError as error:
                wait = BACKOFF_SECONDS * 2 ** (tries - 1) if error.wait is None else error.wait
                wait = min(wait, LONGEST_WAIT_SECONDS)
                if tries > self.retries or time.monotonic() + wait > until or stop.is_set():
                    return ChatError(f"{error}, after {tries} tries")
                time.sleep(wait)
            except ChatError as error:
                return error
            except Exception as error:  # noqa: BLE001  # its text may quote a header, and the key with it
                return ChatError(f"{self.host} could not be asked: {type(error).__name__}")
        raise AssertionError("unreachable")

    def _post(self, client: httpx.Client, body: Mapping[str, Any]) -> bytes:
        import httpx

        headers = {"Content-Type": "application/json", **self._auth_headers()}
        ends, payload = time.monotonic() + self.timeout, b""
        try:
            with client.stream("POST", self.endpoint, content=json.dumps(body), headers=headers) as response:
                if response.status_code in RETRY_STATUSES:
                    raise _BusyError(f"HTTP {response.status_code} from {self.host}", _retry_after(response.headers))
                if response.status_code != 200:
                    raise ChatError(f"HTTP {response.status_code} from {self.host}: {self._hint(response.status_code)}")
                for part in response.iter_bytes():
                    payload += part
                    if len(payload) > ANSWER_BYTES:
                        raise ChatError(f"{self.host} answered with more than {ANSWER_BYTES} bytes")
                    if time.monotonic() > ends:
                        raise _BusyError(f"no whole answer from {self.host} within {self.timeout:g} s")
        except httpx.TransportError as error:
            raise _BusyError(f"{type(error).__name__} at {self.host}") from None
        return payload

    def _auth_headers(self) -> dict[str, str]:
        if not self.key_env:
            return {}
        name_secret(self.key_env)
        key = os.environ.get(self.key_env, "")
        if not key or not key.isascii() or not key.isprintable():
            raise ChatError(f"the environment variable {self.key_env} holds no key")
        return {"Authorization": f"Bearer {key}"}

    def _hint(self, status: int) -> str:
        if status in (401, 403):
            return f"the key in {self.key_env} is not accepted" if self.key_env else "it wants a key: see key_env"
        return f"see whether url and model {self.model!r} are right, and whether the text is too long for it"


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own.

    >>> is_loopback("http://localhost:8000/v1"), is_loopback("http://[::1]:8000"), is_loopback("http://10.0.0.1/v1")
    (True, True, False)
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to wait, where it says so in seconds."""
    value = headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdecimal() else None
