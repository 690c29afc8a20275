"""The page as people meet it: real runs, the real server in a process of its own, and Debian's Chromium."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.made_once import made_once

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the harness is one, for tests and for published figures

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from page_browser import Served

LACKING = [
    *(["Playwright (pip install -e '.[dev]')"] if importlib.util.find_spec("playwright") is None else []),
    *(["Chromium (apt-get install chromium fonts-dejavu)"] if not Path("/usr/bin/chromium").exists() else []),
]
collect_ignore_glob = ["test_*.py"] if LACKING else []


def pytest_report_header() -> str:
    return (
        f"tests/page: left out, because there is no {' and no '.join(LACKING)}" if LACKING else "tests/page: Chromium"
    )


@pytest.fixture(scope="package")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run for each state, and one whose every text is hostile."""
    from page_runs import HOSTILE_NAME, hostile, make
    from payloads import payloads

    def fill(folder: Path) -> None:
        make(folder)
        hostile(folder / HOSTILE_NAME, payloads())

    return made_once(tmp_path_factory, "shelf", fill)


@pytest.fixture(scope="package")
def server(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from page_browser import served

    with served(shelf, tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture(scope="package")  # one for a worker; its loop ends there, as tests of other folders run their own
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect

    from page_browser import chromium

    expect.set_options(
        timeout=60_000
    )  # what must appear may be late on a busy machine; what must not is not waited for
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def login() -> dict[str, Any]:
    """What a browser keeps of a login; empty before the first one. The address that `view` prints works once."""
    return {}


@pytest.fixture(scope="module")
def reader(browser: Browser, server: Served, login: dict[str, Any]) -> Iterator[BrowserContext]:
    """Somebody who has opened the address that `tiltmeter view` printed."""
    from page_browser import WIDE, logged_in, window

    context = window(browser, login["kept"], WIDE) if login else logged_in(browser, server.url)
    login["kept"] = context.storage_state()
    yield context
    context.close()


@pytest.fixture(scope="module")
def ids(reader: BrowserContext, server: Served) -> dict[str, str]:
    """The page's ids of runs by name."""
    from page_browser import runs_by_name

    return runs_by_name(reader, server)


@pytest.fixture(scope="package")
def axe() -> Path:
    from page_browser import AXE

    if not AXE.exists():
        pytest.skip("needs axe-core: make page")
    return AXE


@pytest.fixture
def stranger(browser: Browser) -> Iterator[BrowserContext]:
    """A window of somebody who knows no token."""
    context = browser.new_context()
    yield context
    context.close()
