"""Acting from the page: only with the control token, and what arrives at the trainer is one signed, bounded request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from page_browser import logged_in, runs_by_name, served
from tiltmeter.data.records import Action
from tiltmeter.rundir import journal, requests
from tiltmeter.rundir.requests import Knob
from tiltmeter.rundir.signing import make_token, read_token
from tiltmeter.rundir.store import RunDirectory

WAITING = Action("0-120-beta", 0, 120, "length_hacking", "beta", 0.04, 0.08, "a stronger pull")


def proposed(path: Path) -> RunDirectory:
    """A run that is trained right now, with one proposal that waits."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    requests.publish_knobs(run, attempt, "advise", {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
    make_token(run)
    facts: dict[str, Any] = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": [], "gold": None}
    done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 0, "seen": 1, "lost": {}}
    book = journal.Journal(path / "events")
    book.commit([journal.Event("attempt", 0, -1, facts, "attempt|0|open")])
    book.commit([journal.event(WAITING, 0, 120, "c")])
    book.commit([journal.Event("step_done", 0, 120, done, "step_done|0|120")])
    book.close()
    return run


def asked_of(run: RunDirectory) -> list[requests.ControlRequest]:
    """What the trainer would follow at the end of its step."""
    good, refused = requests.read_requests(run, set(), read_token(run), attempt=0, step=121)
    assert refused == []
    return good


def test_a_proposal_is_approved_with_the_control_token_and_not_with_another(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = proposed(tmp_path / "runs" / "live")
    with served(tmp_path / "runs", tmp_path / "state", "--control") as server:
        context = logged_in(browser, server.url)
        page = context.new_page()
        page.goto(f"{server.origin}/#/run/{runs_by_name(context, server)['live']}/actions")
        page.get_by_role("button", name=re.compile("^Approve")).first.click()
        token = page.locator("dialog input[type=password]")
        token.fill("0" * 64)
        page.locator("dialog button[type=submit]").click()
        expect(page.locator("dialog .trouble")).to_be_visible()
        assert asked_of(run) == []
        token.fill(server.control)
        page.locator("dialog button[type=submit]").click()
        expect(page.locator("dialog[open]")).to_have_count(0)
        expect(page.locator("main")).to_contain_text(re.compile("pending|requested", re.I))
        [request] = asked_of(run)
        assert (request.action, request.kind, request.who, request.value) == ("0-120-beta", "approve", "operator", 0.08)
        assert page.evaluate("() => JSON.stringify(localStorage)").find(server.control) == -1  # held in memory alone
        context.close()


def test_without_control_at_the_start_the_page_says_how_to_allow_it(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = proposed(tmp_path / "runs" / "live")
    with served(tmp_path / "runs", tmp_path / "state") as server:
        context = logged_in(browser, server.url)
        page = context.new_page()
        page.goto(f"{server.origin}/#/run/{runs_by_name(context, server)['live']}/actions")
        page.get_by_role("button", name=re.compile("^Approve")).first.click()
        page.locator("dialog input[type=password]").fill("0" * 64)
        page.locator("dialog button[type=submit]").click()
        expect(page.locator("dialog .trouble")).to_contain_text("--control")
        assert asked_of(run) == []
        context.close()
