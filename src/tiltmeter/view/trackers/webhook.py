"""The webhook sink: alerts by POST, as JSON for programs, or as Slack and Discord take them.

The address comes from the operator's command line or environment, never from a run directory. It is a secret and is
in no file, log or message. Delivery is at least once: an alert counts as delivered after a 2xx status.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError
from tiltmeter.view.trackers.chat_rooms import Posting, discord_posting, parse_target, slack_posting
from tiltmeter.view.trackers.sink import Alert, MetricPoint, RefusedError, RetryLaterError, RunIdentity, RunStatus

PAGE_VARIABLE = "TILTMETER_PAGE_URL"  # an address that people have the page at: chat rooms link to it
TIMEOUT = 10.0  # seconds
RETRY_STATUSES = frozenset({408, 425, 429})  # statuses that are temporary


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> WebhookSink:
    return WebhookSink(target)


class WebhookSink:
    """Posts each alert to one address.

    >>> WebhookSink("file:///etc/passwd")
    Traceback (most recent call last):
    tiltmeter.errors.AttachError: a webhook's address begins with http:// or https:// and has a host
    """

    pushes = True
    remembers = True

    def __init__(self, target: str) -> None:
        url, self._room = parse_target(target)
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not url.isprintable() or " " in url:
            raise AttachError("a webhook's address begins with http:// or https:// and has a host")
        if parts.username is not None:
            raise AttachError("a webhook's address may hold no user and password: give the receiver a secret path")
        self._url, self._page = url, os.environ.get(PAGE_VARIABLE, "")
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send_alert(self, alert: Alert) -> None:
        posting = self._posting(alert)
        headers = {"Content-Type": posting.type, "Idempotency-Key": alert.identity, "User-Agent": "tiltmeter"}
        request = urllib.request.Request(self._url, data=posting.body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                status = int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                raise _error_for_status(error.code, error.headers.get("Retry-After", "")) from None
        except urllib.error.URLError as error:
            raise RetryLaterError(f"the receiver cannot be reached ({_reason_text(error.reason)})") from None
        except (OSError, http.client.HTTPException) as error:
            raise RetryLaterError(f"the receiver broke off ({_reason_text(error)})") from None
        if not 200 <= status < 300:
            raise _error_for_status(status, "")

    def _posting(self, alert: Alert) -> Posting:
        match self._room:
            case "slack":
                return slack_posting(alert, self._page)
            case "discord":
                return discord_posting(alert, self._page)
        return Posting(json.dumps(alert_json(alert)).encode("ascii"), "application/json")

    def log_point(self, point: MetricPoint) -> None:
        """Nothing to do: readings are not sent."""

    def set_status(self, status: RunStatus) -> None:
        """Nothing to do: the status is not sent."""

    def flush(self) -> None:
        """Nothing to do: an alert is delivered when the call returns."""

    def close(self) -> None:
        self._opener.close()


def alert_json(alert: Alert) -> dict[str, Any]:
    """The JSON that is posted: `text` for people, the rest for programs. No completion is in it."""
    fields = {name: value for name, value in asdict(alert).items() if name not in ("run", "png")}
    fields |= {"run": alert.run.name, "run_id": alert.run.id, "format": 1}
    return fields | {"title": escape_chat(alert.title), "text": escape_chat(alert.text)}


def escape_chat(text: str) -> str:
    """Text escaped for a chat room: no link and no mention, whatever the name of a reading.

    >>> escape_chat("<!channel> @here & <http://x|y>")
    '&lt;!channel&gt; (at)here &amp; &lt;http://x|y&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "(at)")


def _error_for_status(status: int, after: str) -> Exception:
    if status >= 500 or status in RETRY_STATUSES:
        seconds = float(after) if re.fullmatch(r"\s*\d{1,6}(\.\d{1,9})?\s*", after) else 0.0  # Discord's has a point
        return RetryLaterError(f"the receiver answered {status}", seconds)
    fix = "it redirects: give the address it redirects to" if 300 <= status < 400 else "is the address still right?"
    return RefusedError(f"the receiver answered {status}; {fix}")


def _reason_text(reason: object) -> str:
    """The reason without the address, which some error messages contain."""
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return type(reason).__name__


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are refused, because the operator did not choose their target."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
