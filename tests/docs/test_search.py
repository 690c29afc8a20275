"""The book has a section for every failure and method under its own name, and the site's own search finds it."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.pages import BLOCK, DOCS, ROOT, block_states

from search_words import words_by_page
from tiltmeter.cli import app
from tiltmeter.diagnosis import FAILURES

sys.path.insert(0, str(ROOT / "benchmarks"))  # figures and tests ask the site in one way

SITE = os.environ.get("DOCS_SITE", "")
LACKING = importlib.util.find_spec("playwright") is None or not Path("/usr/bin/chromium").exists()
built = pytest.mark.skipif(LACKING or not SITE, reason="needs Chromium, and DOCS_SITE: the folder of the built site")

#: Of every section of a failure, in this order.
PARTS = ["Symptom", "What it looks like", "Instrument", "Command", "Cause", "Fix", "Figures", "Further reading"]
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
SHORT = [*(DOCS / "failures").glob("*.md"), *(DOCS / "methods").glob("*.md"), *(DOCS / "explanation").glob("*.md")]


def test_every_word_leads_to_one_page_that_exists() -> None:
    pages = words_by_page()
    assert all((DOCS / page).exists() for page in pages)
    often = Counter(word.lower() for words in pages.values() for word in words)
    assert not {word: count for word, count in often.items() if count > 1}


def test_every_page_of_a_failure_method_or_chapter_has_words() -> None:
    assert {page.relative_to(DOCS).as_posix() for page in SHORT} <= set(words_by_page())


def test_every_failure_that_a_finding_names_has_a_section_with_a_run() -> None:
    sections = [
        section
        for page in (DOCS / "failures").glob("*.md")
        for section in re.split(r"^## ", page.read_text(), flags=re.M)
    ]
    for failure in set(FAILURES) - {"unknown"}:
        (section,) = (section for section in sections if f'failure_run("{failure}")' in section)
        assert re.findall(r"^\*\*([^*]+)\.\*\*", section, re.M) == PARTS, failure


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_is_run_or_marked_as_not_run(page: Path) -> None:
    assert "unmarked" not in block_states(page)
    for mark, file, *_ in BLOCK.findall(page.read_text()):
        assert mark != "run by" or (ROOT / file).exists(), file


def test_a_block_without_a_mark_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n1\n```\n\n<!--# not run: needs a GPU #-->\n```python\n1\n```\n\n```json\n1\n```\n")
    assert block_states(page) == ["unmarked", "not run", "data"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_are_not_run_are_commands_all_the_same(page: Path) -> None:
    for text in SHELL.findall(page.read_text()):
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("tiltmeter "):
                assert unknown_part(shlex.split(line, comments=True)[1:]) == "", line


def unknown_part(words: list[str]) -> str:
    """The first word that the command line does not know as a verb or as an option; empty if it knows all."""
    verb: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(verb, "get_command"):
        if not rest or (inner := verb.get_command(None, rest[0])) is None:
            return rest[0] if rest else "a verb"
        verb = inner
        rest.pop(0)
    options = {name for one in verb.params for name in one.opts} | {"--help"}
    return next((word for word in rest if word.startswith("--") and word not in options), "")


def test_a_command_that_is_none_is_caught() -> None:
    assert unknown_part(["model", "plan", "--modell", "7B"]) == "--modell"
    assert unknown_part(["model", "plon"]) == "plon"


@pytest.fixture(scope="module")
def titles() -> list[str]:
    index = json.loads((Path(SITE) / "search" / "search_index.json").read_text())
    return [html.unescape(doc["title"]) for doc in index["docs"] if "#" not in doc["location"]]


@pytest.fixture(scope="module")
def answers(titles: list[str]) -> dict[str, list[str]]:
    """What the site finds for all that is asked here, at once: to build its index takes longer than to ask."""
    from site_search import find_pages, mapped_words

    return find_pages(Path(SITE), list(dict.fromkeys([*mapped_words(), *titles, "zyzzogeton", "alignment tax"])))


@built
def test_the_search_of_the_site_finds_every_word_among_the_first_three(answers: dict[str, list[str]]) -> None:
    from site_search import BEST, ranks

    assert not {word: rank for word, rank in ranks(answers).items() if not 1 <= rank <= BEST}


@built
def test_the_title_of_every_page_finds_something(answers: dict[str, list[str]], titles: list[str]) -> None:
    """One word that lunr's index confuses makes the search fail for all that begin like it, in silence."""
    assert len(titles) > 80
    assert [title for title in titles if not answers[title]] == []


@built
def test_no_link_of_the_site_is_dead() -> None:
    from site_search import dead_links

    assert dead_links(Path(SITE).resolve()) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    site_search = pytest.importorskip("site_search")
    (tmp_path / "a.html").write_text('<h2 id="one"></h2><a href="b.html#two">b</a><a href="#one">one</a>')
    (tmp_path / "b.html").write_text('<a href="https://elsewhere/c.html">c</a><img src="d.svg">')
    assert site_search.dead_links(tmp_path.resolve()) == ["a.html: b.html#two", "b.html: d.svg#"]


@built
def test_a_word_that_no_page_has_is_not_found(answers: dict[str, list[str]]) -> None:
    assert answers["zyzzogeton"] == [] and answers["alignment tax"][0] == "failures/learning.html"


def test_every_public_name_has_a_docstring_with_an_example() -> None:
    from macros.api import MODULES, has_example, public_names

    names = {f"{module}.{name}": value for module in MODULES for name, value in public_names(module)}
    assert len(names) > 45
    assert not [name for name, value in names.items() if not has_example(value)]
