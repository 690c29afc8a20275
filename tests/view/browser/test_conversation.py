"""An agent's conversation on the screen of a rollout: the call that removes the tests is a turn of its own."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

import tiltmeter
from page_browser import logged_in, runs_by_name, served, watched
from page_runs import measure
from tiltmeter.data.token_pieces import TokenPieces
from tiltmeter.data.turns import Turn
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
    words = ["It is", " " + HOSTILE, " 4", ".", "<end>"]
    pieces = TokenPieces([word.encode() for word in words], [False] * 4 + [True])
    own = Turn("assistant", f"It is {HOSTILE}", tokens=(0, 2))
    with tiltmeter.open_run(
        tmp_path / "runs" / "coloured", monitor=False, options=tiltmeter.Options(tokenizer=pieces)
    ) as run:
        talks = [[own, Turn("tool", HOSTILE), Turn("assistant", " 4.", tokens=(3, 5))], [own, Turn("assistant", "No.")]]
        run.observe(
            step=0, group=[0, 0], reward=[1.0, 0.0], turns=talks, tokens=[[0, 1, 4, 2, 3]] * 2,
            logprob=[[-9.0, 0.0, 0.0, -2.5, 0.0]] * 2,
        )  # fmt: skip
    measure(RunDirectory(tmp_path / "runs" / "coloured"))
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
        page.goto(f"{server.origin}/#/run/{runs_by_name(context, server)['coloured']}/rollouts?layout=group&by=logprob")
        column = page.locator(".column[data-rollout='0-0-0']")
        spans = column.locator("[data-coloured] span")
        expect(spans).to_have_text(["It is", f" {HOSTILE}", " 4", "."])
        assert [spans.nth(k).get_attribute("title") for k in (0, 2)] == [
            "log-probability -9 nats",
            "log-probability -2.5 nats",
        ]
        expect(spans.nth(0)).to_have_class("up-6")  # what the policy did not expect is red
        expect(spans.nth(1)).to_have_class("")
        expect(page.locator(".legend .flag")).to_contain_text("its turns do not say which of its tokens they are")
        expect(column.locator("img")).to_have_count(0)
        page.close()
        context.close()
        assert trouble.any == []
