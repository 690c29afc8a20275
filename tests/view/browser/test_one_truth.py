"""Page, report, notebook, terminal and exit code say the same of a run, whatever its state."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from page_browser import Served
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import visible
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.markdown_text import escape_line
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.notebook import mime_bundle
from tiltmeter.view.screens.run_reader import RunReader


@pytest.mark.parametrize("run", ["hacked", "healthy", "blind", "rewound", "empty"])
def test_state_and_sentence_are_the_same_everywhere(
    reader: BrowserContext, server: Served, ids: dict[str, str], shelf: Path, tmp_path: Path, run: str
) -> None:
    directory = RunDirectory(shelf / run)
    verdict, _, _ = judge_run(directory)
    page = reader.new_page()
    page.goto(f"{server.origin}/#/run/{ids[run]}")
    expect(page.locator("#verdict .state")).to_have_text(verdict.state)
    expect(page.locator("#verdict .sentence")).to_have_text(visible(verdict.sentence))
    page.close()

    book = RunReader(directory)
    file = tmp_path / "report.html"
    file.write_text(render_html(book), "utf-8")
    page = reader.new_page()
    page.goto(file.as_uri())
    expect(page.locator("#verdict .state")).to_have_text(verdict.state)
    expect(page.locator("#verdict .sentence")).to_have_text(visible(verdict.sentence))
    page.close()

    assert render_markdown(book).startswith(f"## {verdict.state}: {escape_line(verdict.sentence)}")
    assert visible(verdict.sentence) in mime_bundle(book)["text/plain"]
    command = [sys.executable, "-m", "tiltmeter", "show", str(shelf / run), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True)
    told = json.loads(shown.stdout)
    assert (told["state"], told["sentence"]) == (verdict.state, verdict.sentence)
    assert shown.returncode == verdict.exit_code
    report = subprocess.run(
        [sys.executable, "-m", "tiltmeter", "report", str(shelf / run), "--json"], capture_output=True, text=True
    )
    assert report.returncode == verdict.exit_code
    assert json.loads(report.stdout)["answers"]["/api/summary"]["state"] == verdict.state


def test_a_redacted_report_holds_no_text_of_prompts_or_completions(shelf: Path) -> None:
    book = RunReader(RunDirectory(shelf / "hacked"))
    plain, redacted = render_html(book), render_html(book, redact=True)
    directory = RunDirectory(shelf / "hacked")
    batch, _, _ = directory.read(directory.files(0)[-1])
    assert batch.completion is not None and batch.prompt is not None
    longest = sorted({text for text in (*batch.completion, *batch.prompt) if text and len(text) > 12}, key=len)[-10:]
    assert any(json.dumps(text)[1:-1] in plain for text in longest)
    assert not any(json.dumps(text)[1:-1] in redacted for text in longest)
    assert "characters," in redacted and "redacted" in redacted
    assert len(plain) < 1_000_000


def test_the_report_button_hands_over_the_file(reader: BrowserContext, server: Served, ids: dict[str, str]) -> None:
    page = reader.new_page()
    page.goto(f"{server.origin}/#/run/{ids['hacked']}")
    with page.expect_download() as handed:
        page.get_by_role("button", name="Report").click()
    text = handed.value.path().read_text("utf-8")
    assert text.startswith("<!doctype html>") and "ACT - tiltmeter" in text
    page.close()
