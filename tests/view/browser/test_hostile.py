"""What a policy may write is shown as it was written, and never acts: on every screen, in the report, the notebook and
the terminal."""

from __future__ import annotations

import base64
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import BrowserContext, expect
from tests.sizes import size

from page_browser import Served, watched
from page_runs import HOSTILE_NAME
from payloads import payloads
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import visible
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.notebook import mime_bundle
from tiltmeter.view.screens.run_reader import RunReader

SCREENS = ("", "/rollouts", "/phrases", "/pinned", "/alarms", "/actions", "/verifier", "/readings", "/health")
OURS = re.compile(r"\x1b\[[0-9;]*m")  # colours, which are ours


def test_nothing_acts_on_any_screen_and_names_are_shown_literally(
    reader: BrowserContext, server: Served, ids: dict[str, str]
) -> None:
    page = reader.new_page()
    trouble = watched(page, server.origin)
    run = ids[HOSTILE_NAME]
    page.goto(f"{server.origin}/#/")
    expect(page.locator("main")).to_contain_text(visible(HOSTILE_NAME))
    for screen in SCREENS:
        page.goto(f"{server.origin}/#/run/{run}{screen}")
        expect(page.locator("#verdict .name")).to_have_text(visible(HOSTILE_NAME))
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        page.wait_for_timeout(200)
        assert page.title().endswith("tiltmeter"), screen
    page.goto(f"{server.origin}/#/compare?run={run}&run={ids['hacked']}")
    expect(page.locator("main")).to_contain_text(visible(HOSTILE_NAME))
    page.close()
    assert trouble.any == []


def test_every_payload_is_readable_letter_for_letter_as_prompt_and_completion(
    reader: BrowserContext, server: Served, ids: dict[str, str]
) -> None:
    page = reader.new_page()
    trouble = watched(page, server.origin)
    texts = payloads()
    wrong: list[str] = []
    run = ids[HOSTILE_NAME]
    page.goto(f"{server.origin}/#/run/{run}/rollouts")
    page.wait_for_selector("#verdict")
    for number, text in list(enumerate(texts))[:: size(15, 1)]:
        step, row = divmod(number, 64)
        page.goto(f"{server.origin}/#/run/{run}/rollouts?id=0-{step}-{row}")
        now = page.locator("[data-rollout]")
        expect(now).to_have_attribute("data-rollout", f"0-{step}-{row}")
        found = now.locator("[data-text=now]").text_content() or ""
        if found != visible(text):
            wrong.append(f"{text[:60]!r} is shown as {found[:80]!r}")
    assert wrong == []
    assert page.title().endswith("tiltmeter")
    page.close()
    assert trouble.any == []


def test_the_report_is_inert_and_asks_nobody(stranger: BrowserContext, shelf: Path, tmp_path: Path) -> None:
    run = RunDirectory(shelf / HOSTILE_NAME)
    file = tmp_path / "report.html"
    file.write_text(render_html(RunReader(run), rollouts=100), "utf-8")
    page = stranger.new_page()
    trouble = watched(page, "file://")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator("#verdict .name")).to_have_text(visible(HOSTILE_NAME))
    page.wait_for_timeout(500)
    assert page.title().endswith("tiltmeter")
    assert asked == [file.as_uri()]
    page.close()
    assert trouble.any == []


def test_the_notebook_holds_no_script_and_no_markup_of_others(shelf: Path) -> None:
    made = mime_bundle(RunReader(RunDirectory(shelf / HOSTILE_NAME)))
    assert set(re.findall(r"<\s*/?([a-zA-Z]+)", made["text/html"])) <= {
        "div",
        "b",
        "table",
        "tr",
        "td",
        "svg",
        "polyline",
        "img",
    }
    (data,) = re.findall(r'<img alt="[^"<>]*" src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)">', made["text/html"])
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(base64.b64decode(data)).iter()}
    assert tags == {"svg", "title", "style", "path", "text"}
    assert "\u202e" not in made["text/plain"] + made["text/html"]
    assert visible(HOSTILE_NAME) in made["text/plain"]


def test_markdown_of_a_hostile_run_has_no_link_picture_or_html(shelf: Path) -> None:
    text = render_markdown(RunReader(RunDirectory(shelf / HOSTILE_NAME)))
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(|(?<!\\)!\[", outside), outside


@pytest.mark.parametrize(
    "verb", ["show", "show --picture", "rollouts", "rollouts --phrases", "approve", "watch", "report"]
)
def test_a_terminal_obeys_nothing_that_a_run_holds(shelf: Path, verb: str) -> None:
    command = [sys.executable, "-m", "tiltmeter", *verb.split(), str(shelf / HOSTILE_NAME)]
    command += {"watch": ["--once"], "report": ["--md", "-"]}.get(verb, [])
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command, stdout=follower, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm-256color"}
    )
    os.close(follower)
    heard = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end has closed
            break
        if not piece:
            break
        heard += piece
    process.wait()
    os.close(leader)
    shown = OURS.sub("", heard.decode("utf-8", "replace")).replace("\r\n", "\n")
    acts = sorted(
        {hex(ord(char)) for char in shown if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160}
    )
    assert acts == []
    assert not set(shown) & {"\u202e", "\u2066", "\u200b", "\u2028"}
