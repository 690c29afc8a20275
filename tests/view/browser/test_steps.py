"""Process rewards on the screen of a rollout: every step with its score, and where the answer first goes wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from page_browser import logged_in, runs_by_name, served, watched
from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import visible

SAID = ["2 + 2 is 4\n<img src=x onerror=alert(1)>\u202e is 5\nso 5", "fine"]


def test_the_first_bad_step_is_marked_and_its_text_does_not_act(browser: Browser, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "runs" / "stepwise")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    columns: dict[str, Any] = {"reward": [0.1, 0.9], "completion": SAID, "prompt": ["2 + 2?"] * 2}
    columns["step_reward"] = [[0.9, 0.2, 0.1], []]
    run.write(from_columns(0, [0, 0], **columns), 0, {"time": time.time()})
    run.close_rank(0, 0, {"seen": 1})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    with served(tmp_path / "runs", tmp_path / "state") as server:
        context = logged_in(browser, server.url)
        name = runs_by_name(context, server)["stepwise"]
        page = context.new_page()
        trouble = watched(page, server.origin)
        page.goto(f"{server.origin}/#/run/{name}/rollouts?id=0-0-0")
        steps = page.locator(".steps li")
        expect(steps).to_have_count(3)
        expect(page.locator(".steps")).to_contain_text("step 2 of 3 is the first below 0.5")
        expect(page.locator(".steps li.bad")).to_have_count(1)
        expect(steps.nth(1)).to_contain_text("first bad step")
        expect(steps.nth(1)).to_contain_text(visible(SAID[0].splitlines()[1]))
        page.goto(f"{server.origin}/#/run/{name}/rollouts?id=0-0-1")
        expect(page.locator("[data-rollout]")).to_have_attribute("data-rollout", "0-0-1")
        expect(page.locator(".steps")).to_have_count(0)
        page.close()
        context.close()
        assert trouble.any == []
