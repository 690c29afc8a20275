"""An agent's conversation on the screen of a rollout: the call that removes the tests is a turn of its own."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

import tiltmeter
from page_browser import logged_in, runs_by_name, served, watched
from page_runs import measure
from tiltmeter.rundir.store import RunDirectory

ACT = {"name": "bash", "arguments": '{"cmd": "rm -r tests"}'}
HOSTILE = "removed <img src=x onerror=alert(1)>"


def test_a_call_that_removes_the_tests_is_a_turn_and_a_tools_words_do_not_act(browser: Browser, tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Mend the parser."},
        {"role": "assistant", "reasoning_content": "Nobody looks.", "tool_calls": [{"id": "1", "function": ACT}]},
        {"role": "tool", "tool_call_id": "1", "content": HOSTILE},
        {"role": "assistant", "content": "All tests pass."},
    ]  # fmt: skip
    with tiltmeter.open_run(tmp_path / "runs" / "agent", monitor=False) as run:
        run.observe(step=0, group=[0, 0], messages=[talk, talk[:1] + talk[3:]], reward=[1.0, 0.0], stop=["done"] * 2)
    measure(RunDirectory(tmp_path / "runs" / "agent"))
    with served(tmp_path / "runs", tmp_path / "state") as server:
        context = logged_in(browser, server.url)
        name = runs_by_name(context, server)["agent"]
        page = context.new_page()
        trouble = watched(page, server.origin)
        page.goto(f"{server.origin}/#/run/{name}/rollouts?id=0-0-0")
        turns = page.locator("[aria-label=Conversation] li")
        expect(turns).to_have_count(4)
        expect(turns.nth(1)).to_have_class("own")
        expect(turns.nth(1).locator(".call")).to_contain_text('bash({"cmd": "rm -r tests"})')
        expect(turns.nth(1).locator("details")).not_to_have_attribute("open", "")  # reasoning is folded
        expect(turns.nth(2)).to_contain_text("tool bash")
        expect(turns.nth(2)).to_contain_text(HOSTILE)
        expect(turns.nth(2).locator("img")).to_have_count(0)
        expect(turns.nth(3)).to_contain_text("All tests pass.")
        page.close()
        context.close()
        assert trouble.any == []
