"""The query line in a browser: what was covered is said, hits are marked, and what a model wrote does nothing."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, expect

from page_browser import Served, findings, watched
from page_runs import HOSTILE_NAME


def test_hits_are_marked_and_n_goes_to_the_next(reader: BrowserContext, server: Served, ids: dict[str, str]) -> None:
    page = reader.new_page()
    trouble = watched(page, server.origin)
    page.goto(f"{server.origin}/#/run/{ids['hacked']}/rollouts")
    page.wait_for_selector(".index-row")
    word = (page.locator("[data-text=now]").text_content() or "").split()[1]
    page.keyboard.press("/")
    page.keyboard.type(f'text:"{word.upper()}"i step:60..')
    page.keyboard.press("Enter")
    expect(page.locator(".totals")).to_contain_text("searched 3,072 of 3,072")
    expect(page.locator(".index-row mark.hit").first).to_be_visible()
    expect(page.locator(".opened mark.hit").first).to_be_visible()
    page.locator("h1").first.click()  # out of the field
    page.keyboard.press("n")
    expect(page.locator("mark.hit.here")).to_have_count(1)
    assert "find=" in page.url
    page.locator("#find").fill("text~/(/")
    page.keyboard.press("Enter")
    expect(page.locator(".rollouts [role=alert]").first).to_contain_text("no regular expression")
    trouble.errors = [one for one in trouble.errors if "400" not in one]  # the browser's own line about the refusal
    assert not trouble.any
    page.close()


def test_nothing_found_says_what_was_searched_and_hostile_hits_do_nothing(
    reader: BrowserContext, server: Served, ids: dict[str, str]
) -> None:
    page = reader.new_page()
    trouble = watched(page, server.origin)
    page.goto(f"{server.origin}/#/run/{ids['hacked']}/rollouts?find=%22no+such+words%22")
    expect(page.locator(".totals")).to_contain_text("searched 10,752 of 10,752")
    expect(page.locator(".listing .empty")).to_contain_text("No rollout matches")
    for query in ("%22%3Cscript%22", "text~%2F%5B%3C%3E%5D%2B%2F", "prompt%3A%22javascript%22i"):
        page.goto(f"{server.origin}/#/run/{ids[HOSTILE_NAME]}/rollouts?find={query}")
        expect(page.locator(".opened mark.hit").first).to_be_visible()
    page.wait_for_selector("[aria-busy=true]", state="detached")
    assert not findings(page) and not trouble.any
    page.close()
