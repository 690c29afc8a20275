"""An alert as Slack and Discord take it from incoming webhooks.

Slack's take no file: a picture must be an address that Slack can reach, so the alert links to the page instead.
Discord's take files, and show the picture. Nothing in a name can be a link, a mention or markup in either.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from tiltmeter.view.trackers.sink import Alert

ChatRoom = Literal["slack", "discord"]

SLACK_HEADER, SLACK_TEXT = 150, 3000  # characters that a block of the kind may have
DISCORD_TITLE, DISCORD_TEXT = 256, 4096  # of an embed
COLOURS = {"ERROR": 0xC0392B, "WARN": 0xD68910}
PICTURE = "picture.png"
_HOSTS: dict[str, ChatRoom] = {"hooks.slack.com": "slack", "discord.com": "discord", "discordapp.com": "discord"}
_MARKUP = re.compile(r"([\\*_~`|>#\[\]()<@-])")


class Posting(NamedTuple):
    """The body of a POST, and its type."""

    body: bytes
    type: str


def parse_target(target: str) -> tuple[str, ChatRoom | None]:
    """The address, and the chat room it belongs to: said before it, or by its host.

    >>> parse_target("https://hooks.slack.com/services/T0/B0/x")
    ('https://hooks.slack.com/services/T0/B0/x', 'slack')
    >>> parse_target("discord:https://relay.example/x"), parse_target("https://hooks.example.org/x")
    (('https://relay.example/x', 'discord'), ('https://hooks.example.org/x', None))
    """
    for room in ("slack", "discord"):
        if target.startswith(f"{room}:"):
            return target.removeprefix(f"{room}:"), room
    try:
        return target, _HOSTS.get(urlsplit(target).hostname or "")
    except ValueError:
        return target, None


def slack_posting(alert: Alert, page: str = "") -> Posting:
    """Blocks of plain text, in which Slack finds no link, mention or markup; `page`: the address to link to."""
    facts = f"{alert.run.name} · step {alert.step} · {alert.reading}"
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(alert.title, SLACK_HEADER)},
        {"type": "section", "text": _plain(alert.text, SLACK_TEXT)},
        {"type": "context", "elements": [_plain(facts, SLACK_TEXT)]},
    ]
    if page:
        button = {"type": "button", "text": _plain("Open the run", 75), "url": page}
        blocks.append({"type": "actions", "elements": [button]})
    words = alert.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    message = {"text": words, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False, "blocks": blocks}
    return Posting(json.dumps(message).encode("ascii"), "application/json")


def discord_posting(alert: Alert, page: str = "") -> Posting:
    """An embed, with the picture as a file if there is one."""
    embed: dict[str, Any] = {
        "title": escape_discord(alert.title)[:DISCORD_TITLE],
        "description": escape_discord(alert.text)[:DISCORD_TEXT],
        "color": COLOURS[alert.level],
        "footer": {"text": f"{alert.run.name}, step {alert.step}, {alert.reading}"[:2048]},
    }
    if page:
        embed["url"] = page
    message: dict[str, Any] = {"embeds": [embed], "allowed_mentions": {"parse": []}}
    if not alert.png:
        return Posting(json.dumps(message).encode("ascii"), "application/json")
    embed["image"] = {"url": f"attachment://{PICTURE}"}
    message["attachments"] = [{"id": 0, "filename": PICTURE}]
    return _multipart({"payload_json": ("application/json", "", json.dumps(message).encode("ascii")),
                       "files[0]": ("image/png", PICTURE, alert.png)})  # fmt: skip


def escape_discord(text: str) -> str:
    """Text without markup, mentions and links.

    >>> escape_discord("**x** @here <#1> [y](http://z) http://w")
    '\\\\*\\\\*x\\\\*\\\\* \\\\@here \\\\<\\\\#1\\\\> \\\\[y\\\\]\\\\(http: //z\\\\) http: //w'
    """
    return _MARKUP.sub(r"\\\1", text).replace("://", ": //")


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": text if len(text) <= most else f"{text[: most - 1]}…", "emoji": False}


def _multipart(parts: dict[str, tuple[str, str, bytes]]) -> Posting:
    """`multipart/form-data` of parts by name: type, file name, content."""
    boundary = secrets.token_hex(16)  # in no content, but by chance of 2^-128
    body = b""
    for name, (kind, file, content) in parts.items():
        shown = f'; filename="{file}"' if file else ""
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{shown}\r\nContent-Type: {kind}\r\n\r\n'
        body += head.encode("ascii") + content + b"\r\n"
    return Posting(body + f"--{boundary}--\r\n".encode("ascii"), f"multipart/form-data; boundary={boundary}")
