"""Alerts by POST, as JSON that chat rooms with a Slack-compatible webhook show and programs can read.

The address comes from the operator's command line or environment and never from a run directory. It is a secret: it
stands in no file, no log and no message. At least once: an alert counts as delivered after a 2xx and not before.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError
from tiltmeter.trackers.sink import Alert, Named, NotNowError, Point, RefusedError, Standing

TIMEOUT = 10.0  # seconds
AGAIN = frozenset({408, 425, 429})  # refusals that are about now and not about what was sent


def open_sink(target: str, run: Named, memo: dict[str, str]) -> Webhook:
    return Webhook(target)


class Webhook:
    """Who is to be woken when the reward stops telling the truth: an address that takes a POST.

    >>> Webhook("file:///etc/passwd")
    Traceback (most recent call last):
    tiltmeter.errors.AttachError: a webhook's address begins with http:// or https:// and has a host
    """

    pushes = True
    remembers = True

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not url.isprintable() or " " in url:
            raise AttachError("a webhook's address begins with http:// or https:// and has a host")
        if parts.username is not None:
            raise AttachError("a webhook's address may hold no user and password: give the receiver a secret path")
        self._url = url
        self._opener = urllib.request.build_opener(_NoRedirect)

    def alert(self, alert: Alert) -> None:
        body = json.dumps(payload(alert)).encode("ascii")
        headers = {"Content-Type": "application/json", "Idempotency-Key": alert.identity, "User-Agent": "tiltmeter"}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                status = int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                raise _answered(error.code, error.headers.get("Retry-After", "")) from None
        except urllib.error.URLError as error:
            raise NotNowError(f"the receiver cannot be reached ({_reason(error.reason)})") from None
        except (OSError, http.client.HTTPException) as error:
            raise NotNowError(f"the receiver broke off ({_reason(error)})") from None
        if not 200 <= status < 300:
            raise _answered(status, "")

    def point(self, point: Point) -> None:
        """Numbers are not sent."""

    def standing(self, standing: Standing) -> None:
        """Nor is a state that nobody has to act on."""

    def flush(self) -> None:
        """An alert is out when `alert` returns."""

    def close(self) -> None:
        self._opener.close()


def payload(alert: Alert) -> dict[str, Any]:
    """What is posted: `text` for people, the rest for programs. Words and numbers of the journal, no completion."""
    told = {name: value for name, value in asdict(alert).items() if name != "run"}
    told |= {"run": alert.run.name, "run_id": alert.run.id, "format": 1}
    return told | {"title": chat(alert.title), "text": chat(alert.text)}


def chat(text: str) -> str:
    """Text in which a chat room finds no link and nobody to notify, whoever named the readings.

    >>> chat("<!channel> @here & <http://x|y>")
    '&lt;!channel&gt; (at)here &amp; &lt;http://x|y&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "(at)")


def _answered(status: int, after: str) -> Exception:
    if status >= 500 or status in AGAIN:
        return NotNowError(f"the receiver answered {status}", float(after) if after.strip().isdecimal() else 0.0)
    fix = "it redirects: give the address it redirects to" if 300 <= status < 400 else "is the address still right?"
    return RefusedError(f"the receiver answered {status}; {fix}")


def _reason(reason: object) -> str:
    """Why, without the address: messages of some errors would repeat it."""
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return type(reason).__name__


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address that somebody else chose is not the operator's."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
