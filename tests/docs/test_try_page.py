"""The page "Try it" shows what the kernels say, trains as it claims to, and works by keyboard in a real browser."""

from __future__ import annotations

import base64
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
import yaml
from tests.pages import DOCS, OPTIONS, ROOT, SETTINGS, render_page

from macros import try_world
from tiltmeter_workbench.stats.advantages import Form, advantages, dead_share
from tiltmeter_workbench.stats.tilting import best_of_n, kl, tilted

sys.path.insert(0, str(ROOT / "benchmarks"))  # the browser is started in one way, for tests and for published figures

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LACKING = importlib.util.find_spec("playwright") is None or not Path("/usr/bin/chromium").exists()
browsed = pytest.mark.skipif(LACKING, reason="needs Playwright and Chromium (apt-get install chromium fonts-dejavu)")
LIMIT = 150_000  # bytes that the page may add: its article with all figures, its script and its style

DATA = json.loads(re.sub(r"^<script[^>]*>|</script>$", "", try_world.data()))
SCORES = {
    (tail, size): np.array(DATA["gold"]) + DATA["sizes"][size] * np.array(DATA["errors"][tail])
    for tail, size in np.ndindex(len(DATA["tails"]), len(DATA["sizes"]))
}
REFERENCE, GOLD = np.array(DATA["reference"]), np.array(DATA["gold"])


def policy(tail: int, size: int, beta: float, time: float) -> Any:
    """By the kernel, from what the page is given."""
    eta = (1.0 - np.exp(-beta * time)) / beta if beta else time
    return tilted(REFERENCE, SCORES[tail, size], 1.0 / eta if eta else np.inf)


def told(chances: Any, tail: int, size: int) -> list[float]:
    """Score, gold, KL, entropy and the log-odds to pass."""
    score, given = SCORES[tail, size], chances > 0.0
    by_score = np.argsort(score)
    passes = by_score[np.cumsum(REFERENCE[by_score][::-1])[::-1] <= 0.25 + 1e-9]
    entropy = -float(chances[given] @ np.log(chances[given]))
    gains = [float(chances @ part - REFERENCE @ part) for part in (score, GOLD)]
    passed, failed = float(chances[passes].sum()), float(np.delete(chances, passes).sum())
    return [*gains, kl(chances, REFERENCE), entropy, float(np.log(passed / failed)) if failed else DATA["largest"]]


def read(name: str, *shape: int) -> Any:
    """What the page makes of its packed figures."""
    codes = np.frombuffer(base64.b64decode(DATA[name]), "<u2").reshape(shape).astype(float)
    most = np.arcsinh(DATA["largest"] / DATA["quantum"])
    return DATA["quantum"] * np.sinh((codes - 32767.0) / 32767.0 * most)


def close(found: Any, right: Any) -> bool:
    """To the quantisation: half a step of asinh(x / quantum)."""
    half = 0.5 * np.arcsinh(DATA["largest"] / DATA["quantum"]) / 32767.0
    return bool((np.abs(found - right) <= 1.01 * half * np.hypot(right, DATA["quantum"]) + 1e-12).all())


def test_the_figures_in_the_page_are_those_of_the_kernels() -> None:
    shape = (len(DATA["tails"]), len(DATA["sizes"]), 1 + len(DATA["betas"]), 5, len(DATA["times"]))
    grid, rng = read("grid", *shape), np.random.default_rng(5)
    for _ in range(300):
        tail, size, leash, time = (int(rng.integers(n)) for n in (*shape[:3], shape[4]))
        right = np.array(told(policy(tail, size, [0.0, *DATA["betas"]][leash], DATA["times"][time]), tail, size))
        assert close(grid[tail, size, leash, :, time], right), (tail, size, leash, time)
        assert not close(grid[tail, size, leash, :, time] * 1.001, right)  # the tolerance can fail
    picks = read("selection", *shape[:2], 5, len(DATA["groups"]))
    for tail, size, group in np.ndindex(*shape[:2], len(DATA["groups"])):
        chosen = best_of_n(REFERENCE, SCORES[tail, size], DATA["groups"][group])
        assert close(picks[tail, size, :, group], np.array(told(chosen, tail, size)))


@pytest.mark.parametrize("beta", [0.0, 0.4, 2.0])
def test_the_natural_policy_gradient_runs_along_the_tilts(beta: float) -> None:
    """Integrated with the objective's own gradient and Fisher matrix; nothing of the closed form is used."""
    rng = np.random.default_rng(3)
    reward, start = rng.normal(size=5), rng.normal(size=5)

    def chances(logits: Any) -> Any:
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    reference = chances(start)

    def objective(logits: Any) -> float:
        return float(chances(logits) @ reward) - beta * kl(chances(logits), reference)

    def natural(logits: Any) -> Any:
        step = 1e-5 * np.eye(5)
        gradient = [(objective(logits + one) - objective(logits - one)) / 2e-5 for one in step]
        now = chances(logits)
        return np.linalg.pinv(np.diag(now) - np.outer(now, now)) @ np.array(gradient)

    logits, length = start.copy(), 0.02
    for count in range(1, 76):
        first = natural(logits)
        second = natural(logits + 0.5 * length * first)
        third = natural(logits + 0.5 * length * second)
        logits = logits + length / 6.0 * (first + 2 * second + 2 * third + natural(logits + length * third))
        if count % 25 == 0:
            eta = try_world.pressure(beta, count * length)
            assert np.abs(chances(logits) - tilted(reference, reward, 1.0 / eta)).max() < 1e-6
    assert np.abs(chances(logits) - tilted(reference, reward, 0.9 / eta)).max() > 1e-3  # another pressure would not do


@pytest.mark.parametrize("size", [2, 3])
def test_the_group_size_leaves_the_expected_update_with_leave_one_out_advantages(size: int) -> None:
    """All groups of three answers enumerated. GRPO's centred form shrinks it by (G - 1) / G."""
    chances, reward = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, -1.0])
    scores = np.eye(3) - chances  # gradient of log π of each answer
    forms: tuple[Form, ...] = get_args(Form)
    expected: dict[Form, Any] = {form: np.zeros(3) for form in forms}
    for group in itertools.product(range(3), repeat=size):
        drawn = np.array(group)
        for form, total in expected.items():
            worth = advantages(reward[drawn], np.array([0, size]), form)
            total += chances[drawn].prod() * (worth[:, None] * scores[drawn]).mean(axis=0)
    gradient = chances * (reward - chances @ reward)
    assert np.allclose(expected["leave_one_out"], gradient)
    assert np.allclose(expected["centred"], (size - 1) / size * gradient)
    assert not np.allclose(expected["sample"], gradient, rtol=0.05)


def test_the_world_is_as_the_page_says() -> None:
    assert abs(REFERENCE.sum() - 1.0) < 1e-4
    assert abs(REFERENCE @ GOLD) < 1e-3
    assert abs(REFERENCE @ GOLD**2 - 1.0) < 1e-3
    rare = REFERENCE < 0.03
    assert rare.sum() == 8
    assert np.abs(GOLD[rare]).max() < 0.3
    for tail, errors in enumerate(np.array(DATA["errors"])):
        assert (np.argsort(errors[rare]) == np.arange(8)).all(), "the rarer, the more overpaid"
        centred = errors - REFERENCE @ errors
        assert abs(REFERENCE @ (GOLD * centred)) < 0.2 * np.sqrt(REFERENCE @ centred**2), DATA["tails"][tail]


def test_what_the_page_teaches_is_so_in_its_world() -> None:
    """Peaks and ends of gold without a leash, by tail and size; and that a leash saves light tails and no heavy one."""
    ends: dict[str, list[float]] = {}
    for tail, name in enumerate(DATA["tails"]):
        ends[name] = [told(policy(tail, size, 0.0, 30.0), tail, size)[1] for size in range(len(DATA["sizes"]))]
    assert ends["Gaussian"][1] > 1.8
    assert max(abs(end) for end in ends["Gaussian"][3:]) < 0.1
    assert max(abs(end) for end in ends["power law"] + ends["lognormal"]) < 0.1

    def best_leash(tail: int, size: int) -> float:
        return max(told(policy(tail, size, beta, 30.0), tail, size)[1] for beta in DATA["betas"])

    assert best_leash(0, 3) > 1.0
    assert best_leash(3, 3) < 0.05
    ranked = best_of_n(REFERENCE, SCORES[3, 2], 8)
    assert told(ranked, 3, 2)[1] > 1.0


def test_the_script_writes_text_and_no_markup() -> None:
    script = (DOCS / "try" / "try.js").read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|fetch\(|http(?!://www\.w3)", script
    )
    assert len(script.splitlines()) < 400
    page = render_page("try.md")
    assert not re.search(r"<[^>]+\son[a-z]+=|<style|style=|<script(?! (src|type=\"application/json\"))", page)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page alone, built with the site's own settings."""
    folder = tmp_path_factory.mktemp("try")
    source = folder / "docs"
    source.mkdir()
    shutil.copytree(DOCS / "try", source / "try")
    for name in ("try.md", "extra.css"):
        shutil.copy(DOCS / name, source)
    for name in ("gold.md", "alarms.md"):  # linked to
        (source / name).write_text(f"# {name}\n")
    settings = SETTINGS | {
        "docs_dir": str(source),
        "site_dir": str(folder / "site"),
        "plugins": ["search", {"macros": OPTIONS | {"module_name": str(DOCS / "macros")}}],
        "nav": ["try.md", "gold.md", "alarms.md"],
        "hooks": [],
    }
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-f", str(folder / "mkdocs.yml")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


def test_the_page_is_small(site: Path) -> None:
    article = re.search(r"<article.*</article>", (site / "try.html").read_text(), re.S)
    assert article is not None
    assert "try-data" in article[0]
    parts = [len(article[0].encode()), *(path.stat().st_size for path in (site / "try").iterdir())]
    assert sum(parts) < LIMIT, parts
    assert DATA["grid"][:40] not in (site / "search" / "search_index.json").read_text(), "figures are not search text"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from page_browser import chromium

    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[Page]:
    """The page in a window, in which nothing may go wrong until the test ends."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    found, trouble = context.new_page(), list[str]()
    found.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: trouble.append(str(error)))
    found.on("request", lambda one: trouble.append(one.url) if not one.url.startswith(("file://", "data:")) else None)
    found.goto((site / "try.html").as_uri())
    found.wait_for_selector("#try-bars-free .outline")
    yield found
    assert trouble == []
    context.close()


def moved(page: Page, **to: int) -> None:
    for name, index in to.items():
        if name == "tail":
            page.locator("input[name=tail]").nth(index).check()
        else:
            page.locator(f"#try-{name}").fill(str(index))


def numbers(page: Page) -> list[list[str]]:
    rows = page.locator(".try-numbers tbody tr")
    return [[text.replace("\u2212", "-") for text in row.locator("td").all_inner_texts()] for row in rows.all()]


def shows(text: str, right: float) -> bool:
    """Whether this is how the number is written, to its last digit and the quantisation."""
    if text.startswith("<"):
        return 0.0 <= right < 0.0051
    digits = len(text.partition(".")[2])
    return abs(float(text) - right) <= 0.51 * 10.0**-digits + 2e-4 * abs(right) + 1e-5


@browsed
def test_sliders_show_what_python_says(page: Page) -> None:
    rng = np.random.default_rng(11)
    for _ in range(25):
        names = {"tail": "tails", "size": "sizes", "beta": "betas", "group": "groups", "time": "times"}
        at = {name: int(rng.integers(len(DATA[many]))) for name, many in names.items()}
        moved(page, **at)
        tail, size, group = at["tail"], at["size"], DATA["groups"][at["group"]]
        beta, time = DATA["betas"][at["beta"]], DATA["times"][at["time"]]
        policies = [policy(tail, size, leash, now) for leash, now in ((0.0, 0.0), (beta, time), (0.0, time))]
        columns = [
            told(chances, tail, size) for chances in (*policies, best_of_n(REFERENCE, SCORES[tail, size], group))
        ]
        shown = numbers(page)
        for row, quantity in zip(shown[:4], range(4), strict=True):
            assert all(shows(text, column[quantity]) for text, column in zip(row, columns, strict=True)), (at, row)
        for text, column in zip(shown[4][:3], columns, strict=False):
            share = 100.0 * dead_share(1.0 / (1.0 + float(np.exp(-column[4]))), group)
            exact = {"< 1 %": share < 0.6, "> 99 %": share > 99.4}
            assert exact[text] if text in exact else abs(float(text.split()[0]) - share) < 0.6, (at, text, share)
        for where, chances in (("leash", policies[1]), ("free", policies[2])):
            bars = page.locator(f"#try-bars-{where} .bar").evaluate_all(
                "bars => bars.map(bar => [Number(bar.dataset.kind), Number(bar.dataset.share)])"
            )
            assert np.abs(np.array([chances[int(kind)] - share for kind, share in bars])).max() < 1e-9
            assert np.diff([GOLD[int(kind)] for kind, _ in bars]).min() >= 0.0


@browsed
def test_the_sentence_changes_with_the_setting(page: Page) -> None:
    said = {}
    for name in DATA["presets"]:
        button = page.get_by_role("button", name=name, exact=True)
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        said[name] = page.get_by_role("status").inner_text()
    assert "rose together" in said["Healthy"]
    assert "still climbs; gold has been falling since KL" in said["Hacked"]
    assert "No leash" in said["Heavy tail"]
    assert "too tight" in said["Leash too tight"]
    advised = re.search(r"β = ([\d.]+) would hold gold at \+(\d+\.\d+)\.", said["Hacked"])
    assert advised is not None
    ends = [told(policy(0, 3, beta, 30.0), 0, 3)[1] for beta in DATA["betas"]]
    assert float(advised[1]) == DATA["betas"][int(np.argmax(ends))]
    assert shows(advised[2], max(ends))
    moved(page, time=0)
    assert "Nothing is trained" in page.get_by_role("status").inner_text()


@browsed
def test_it_works_by_keyboard_and_everything_has_a_name(page: Page) -> None:
    for label in ("Training time", "Leash β", "Error of the score", "Group size"):
        assert page.get_by_role("slider", name=label).count() == 1
    assert page.get_by_role("group", name="Tail of the error").get_by_role("radio").count() == 4
    for plot in page.locator("#try svg").all():
        assert plot.get_attribute("role") == "img"
        assert len(plot.get_attribute("aria-label") or "") > 20
    page.get_by_role("button", name="Hacked", exact=True).focus()
    page.keyboard.press("Enter")
    slider, before = page.get_by_role("slider", name="Leash β"), numbers(page)
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == str(DATA["betas"][DATA["presets"]["Hacked"]["beta"] + 1])
    assert numbers(page) != before
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == str(DATA["betas"][0])
    assert slider.evaluate("input => getComputedStyle(input).outlineStyle") == "solid"
    page.get_by_role("radio", name="Gaussian").focus()
    page.keyboard.press("ArrowDown")
    assert page.get_by_role("radio", name="exponential").is_checked()


@browsed
def test_play_runs_time_to_its_end_and_reduced_motion_jumps_there(page: Page) -> None:
    time = page.get_by_role("slider", name="Training time")
    moved(page, time=25)
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Space")
    assert page.get_by_role("status").get_attribute("aria-live") == "off"
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("button", name="Play").wait_for()
    assert time.input_value() == str(len(DATA["times"]) - 1)
    assert page.get_by_role("status").get_attribute("aria-live") == "polite"
    page.emulate_media(reduced_motion="reduce")
    moved(page, time=3)
    page.get_by_role("button", name="Play").click()
    assert time.input_value() == str(len(DATA["times"]) - 1)


@browsed
@pytest.mark.parametrize("width", [1440, 1000, 390, 320])
def test_nothing_scrolls_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    for name in DATA["presets"]:
        page.get_by_role("button", name=name, exact=True).click()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        for plot in page.locator("#try svg").all():
            box = plot.bounding_box()
            assert box is not None
            assert box["width"] > 200
            assert box["x"] + box["width"] <= width


@browsed
def test_without_scripts_there_is_the_table(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "try.html").as_uri())
    assert not page.locator("#try").is_visible()
    rows = page.locator("table tbody tr")
    assert rows.count() == 2 * len(DATA["presets"])
    at = DATA["presets"]["Hacked"]
    hacked = policy(at["tail"], at["size"], DATA["betas"][at["beta"]], DATA["times"][at["time"]])
    cells = rows.filter(has_text="Hacked").locator("td").all_inner_texts()[1:]
    assert cells == [f"{x:{form}}" for x, form in zip(told(hacked, 0, 3), ("+.2f", "+.2f", ".2f", ".2f"), strict=False)]
    context.close()
