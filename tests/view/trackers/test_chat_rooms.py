"""Alerts as Slack and Discord document them, posted to a real HTTP server and taken apart by the email parser."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest
from tests.view.trackers.post_receiver import Post, PostReceiver

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.trackers import sink_thread
from tiltmeter.view.trackers.chat_rooms import discord_posting, slack_posting
from tiltmeter.view.trackers.follow import SinkSpec, follow
from tiltmeter.view.trackers.sink import Alert, RunIdentity

SECRET = "T0SECRET0B0SECRET"
HOSTILE = "<!channel> @everyone <@U1> [x](http://evil.example) **b** `c` http://evil.example # h"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]) -> Path:
    return copy_demo_run("hacked", tmp_path_factory.mktemp("runs") / "hacked").path


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(recorded, tmp_path / "hacked")))


@pytest.fixture
def room() -> Iterator[PostReceiver]:
    receiver = PostReceiver()
    yield receiver
    receiver.close()


def send(run: RunDirectory, target: str) -> None:
    assert follow(run, [SinkSpec("webhook", target)], once=True, patience=20.0) == {}


def parts_of(post: Post) -> dict[str, Any]:
    head = f"Content-Type: {post.headers['content-type']}\r\n\r\n".encode()
    message: Any = BytesParser().parsebytes(head + post.body)
    return {str(part.get_param("name", header="content-disposition")): part for part in message.get_payload()}


def alert(**changes: Any) -> Alert:
    facts: dict[str, Any] = {
        "identity": "i", "event": "e", "title": HOSTILE, "text": HOSTILE * 80, "level": "ERROR", "attempt": 0,
        "step": 3, "onset": 1, "onset_low": 1, "onset_high": 2, "detector": "d", "reading": HOSTILE, "time": 1.0,
        "run": RunIdentity("1", HOSTILE),
    }  # fmt: skip
    return Alert(**{**facts, **changes})


def test_slack_gets_blocks_of_plain_text_and_a_link(
    run: RunDirectory, room: PostReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTMETER_PAGE_URL", "https://lab.example/runs/")
    send(run, f"slack:{room.url}/services/{SECRET}")
    posts = [json.loads(post.body) for post in room.posts]
    assert posts and all(set(post) == {"text", "mrkdwn", "unfurl_links", "unfurl_media", "blocks"} for post in posts)
    kinds = [block["type"] for block in posts[0]["blocks"]]
    assert kinds == ["header", "section", "context", "actions"]
    assert posts[0]["blocks"][3]["elements"][0]["url"] == "https://lab.example/runs/"
    assert "hacked" in posts[0]["blocks"][0]["text"]["text"]


def test_discord_gets_the_picture_as_a_file(run: RunDirectory, room: PostReceiver) -> None:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    send(run, f"discord:{room.url}/api/webhooks/1/{SECRET}")
    alarms = [post for post in room.posts if post.headers["content-type"].startswith("multipart/form-data")]
    assert len(alarms) == 1  # a warning has no picture
    parts = parts_of(alarms[0])
    assert set(parts) == {"payload_json", "files[0]"} and parts["files[0]"].get_filename() == "picture.png"
    with image.open(io.BytesIO(parts["files[0]"].get_payload(decode=True))) as picture:
        assert picture.format == "PNG" and picture.width > 300
        assert len(picture.convert("RGB").getcolors(10**6)) > 5  # something is drawn
    message = json.loads(parts["payload_json"].get_payload(decode=True))
    assert message["allowed_mentions"] == {"parse": []}
    assert message["embeds"][0]["image"]["url"] == "attachment://picture.png"
    assert message["attachments"] == [{"id": 0, "filename": "picture.png"}]


@pytest.mark.parametrize("room_kind", ["slack", "discord"])
def test_the_secret_of_an_address_is_in_no_file_of_the_run(
    run: RunDirectory, room: PostReceiver, room_kind: str
) -> None:
    room.answers = [500, 404]
    send_path = f"{room_kind}:{room.url}/hook/{SECRET}"
    sink_thread.FIRST_RETRY, before = 0.05, sink_thread.FIRST_RETRY
    try:
        send(run, send_path)
    finally:
        sink_thread.FIRST_RETRY = before
    assert room.posts
    for path in run.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_nothing_in_a_name_is_a_link_a_mention_or_markup() -> None:
    slack = json.loads(slack_posting(alert()).body)
    assert "<" not in slack["text"] and slack["mrkdwn"] is False
    texts = [slack["blocks"][0]["text"], slack["blocks"][1]["text"], *slack["blocks"][2]["elements"]]
    assert all(text["type"] == "plain_text" and text["emoji"] is False for text in texts)
    assert len(texts[0]["text"]) <= 150 and len(texts[1]["text"]) <= 3000
    discord = json.loads(discord_posting(alert()).body)
    embed = discord["embeds"][0]
    for text in (embed["title"], embed["description"]):
        assert "http://" not in text and "\\@everyone" in text and "\\<\\@U1" in text and "\\*\\*b" in text
    assert len(embed["title"]) <= 256 and len(embed["description"]) <= 4096
