"""The documentation does what it says: its code runs, its output is real, its links lead somewhere."""

from __future__ import annotations

import doctest
import html
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from tests.pages import DOCS, LINK, ROOT, RUN_WHOLE, clicks, render, render_page, site_pages

from macros.code import docstring
from tiltmeter import instruments
from tiltmeter.cli import app
from tiltmeter.cli.verb_table import all_verbs
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import COLUMNS, FLAGS, Action
from tiltmeter.detectors.derived_readings import DERIVED
from tiltmeter.gold import CompletionToLabel
from tiltmeter.gold.find_gold import TrainingSetup, find_gold
from tiltmeter.gold.function import FunctionSource
from tiltmeter.instruments import BUILTIN
from tiltmeter.instruments.reward_mean import RewardMean
from tiltmeter.instruments.training import SCALARS
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config, load_gold, load_part
from tiltmeter.rundir import journal
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.journal import KINDS, Event
from tiltmeter.rundir.receipts import ReceiptLog
from tiltmeter.rundir.requests import Knob, Receipt, publish_knobs, request_for, write_request
from tiltmeter.rundir.signing import make_token, receipt_key
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.checks import CHECKS
from tiltmeter.verdict.states import STATES
from tiltmeter.verdict.verdict import judge_run
from tiltmeter_workbench.diversity.semantic import SemanticDiversity

INSTRUMENTS = ROOT / "src" / "tiltmeter" / "instruments"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
TITLE = re.compile(r'title="([^"]+)"')

#: Written before a page's own code: what a console block says is run, and what it shows is compared.
PRELUDE = (
    f"""
import subprocess, sys

sys.path.append({str(ROOT)!r})
"""
    + """
from tests.command_line import tiltmeter as run_command

def console(command, shown, code):
    # The lab's processes would run this file again.
    alone = [sys.executable, "-m", *command]
    inside = command[1] != "lab"
    done = run_command(*command[1:]) if inside else subprocess.run(alone, capture_output=True, text=True, timeout=300)
    said = f"{command} exits {done.returncode}, the page says {code}\\n{done.stdout}{done.stderr}"
    assert done.returncode == code, said
    rest = iter(done.stdout.splitlines())
    for line in shown:
        found = any(line == out.rstrip() for out in rest)
        assert found, f"{command} does not print, in this order: {line!r}\\n{done.stdout}"
"""
)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, options and text of every fenced block."""
    return [(match[1], match[2], match[3]) for match in FENCE.finditer(page.read_text())]


def commands(text: str) -> list[tuple[list[str], list[str], int]]:
    """The commands of a console block, the lines shown after each ("..." stands for any), and its exit code."""
    found: list[tuple[list[str], list[str], int]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line == "$ echo $?":
            command, shown, _ = found[-1]
            found[-1] = (command, shown, int(lines[number + 1]))
        elif line.startswith("$ "):
            assert line.startswith("$ tiltmeter "), f"only tiltmeter is run from pages: {line}"
            found.append((line.removeprefix("$ ").split(), [], 0))
        elif line.strip() not in ("", "...") and lines[number - 1] != "$ echo $?":
            found[-1][1].append(line)
    return found


def script(page: Path) -> str:
    """A page as one program: its Python in order, its files written, its commands run and compared in between."""
    parts = [PRELUDE]
    for language, options, text in blocks(page):
        if language == "python" and (title := TITLE.search(options)):
            parts.append(f"import pathlib; pathlib.Path({title[1]!r}).write_text({text!r})")
        elif language == "python" and ">>>" not in text:
            parts.append(text)
        elif language == "console":
            parts += [
                f"console({command!r}, {shown!r}, {code})"
                for command, shown, code in commands(text)
                if shown or command != ["tiltmeter", "demo"]  # tests/cli/test_demo.py, and the wheel's in .ci/run
            ]
    return "\n".join(parts)


def execute(source: str, folder: Path) -> str:
    (folder / "page.py").write_text(source)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TILTMETER_")}
    env |= {"PYTHONWARNINGS": "error", "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "page.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", RUN_WHOLE)
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    execute(script(DOCS / page), tmp_path)


def test_a_page_whose_output_or_exit_code_is_wrong_is_caught(tmp_path: Path) -> None:
    for wrong in ("$ tiltmeter --version\ntiltmeter 9.9\n", "$ tiltmeter --version\n$ echo $?\n1\n"):
        (tmp_path / "wrong.md").write_text(f"```console\n{wrong}```\n")
        with pytest.raises(AssertionError):
            execute(script(tmp_path / "wrong.md"), tmp_path)


def test_the_snippet_of_the_readme_runs(tmp_path: Path) -> None:
    attached, snippet, rewarded = (text for language, _, text in blocks(ROOT / "README.md") if language == "python")
    assert (
        "\ntiltmeter.attach(trainer, gold=" in attached
    )  # the same line on a real trainer: tests/adapters/trl/test_quickstart.py
    paid = "reward(completions=['It is \\\\boxed{4}'] * 2, answer=['4', '5'], completion_ids=[[1]] * 2)"
    execute(f"{rewarded}\nassert {paid} == [1.0, 0.0], {paid}\n", tmp_path)
    loop = """
from types import SimpleNamespace
def training_steps():
    for _ in range(5):
        yield SimpleNamespace(prompt_id=[0, 0, 1, 1], reward=[0, 1, 2, 3], gold=[0, 1, 0, 1], text=list("abcd"))
"""
    check = "\nassert run.counters['seen'] == 5 and run.counters['dropped'] == 0, run.counters\n"
    execute(loop + snippet + check, tmp_path)


def test_the_commands_of_the_readme_print_what_it_shows(tmp_path: Path) -> None:
    shown = [
        command
        for language, _, text in blocks(ROOT / "README.md")
        if language == "console"
        for command in commands(text)
    ]
    assert shown
    execute(
        "\n".join([PRELUDE, *(f"console({command!r}, {lines!r}, {code})" for command, lines, code in shown)]), tmp_path
    )


def test_the_pictures_show_what_the_demo_says(
    tmp_path: Path, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> None:
    for name in ("hacked", "honest"):
        verdict, _, _ = judge_run(copy_demo_run(name, tmp_path / name))
        picture = (DOCS / "images" / f"{name}.svg").read_text()
        text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", picture)).replace("\N{NO-BREAK SPACE}", " "))
        assert verdict.sentence in text.replace(" │ │ ", " "), "make the pictures again: python docs/make_images.py"
        assert set(re.findall(r"https?://[^\"]+", picture)) == {"http://www.w3.org/2000/svg"}


def failures(text: str, name: str, **names: object) -> int:
    """How many of the interactive examples in a text do not give what they show."""
    example = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    assert example.examples, f"{name} has no example"
    return doctest.DocTestRunner(verbose=False).run(example).failed


@pytest.mark.parametrize("page", [page for page in PAGES if "```pycon" in page.read_text()], ids=lambda page: page.name)
def test_interactive_examples_of_a_page_give_what_they_show(page: Path) -> None:
    text = "\n".join(text for language, _, text in blocks(page) if language == "pycon")
    assert failures(text, page.name) == 0


def test_an_interactive_example_that_lies_is_caught() -> None:
    assert failures(">>> 1 + 1\n3\n", "a lie") == 1


def test_the_instrument_of_the_page_is_under_60_lines_and_its_docstring_is_true(tmp_path: Path) -> None:
    (text,) = (text for _, options, text in blocks(DOCS / "add-an-instrument.md") if TITLE.search(options))
    assert len(text.splitlines()) < 60
    (tmp_path / "shared_opening.py").write_text(text)
    instrument = load_part(f"{tmp_path}/shared_opening.py:SharedOpening")
    assert failures(instrument.__doc__, "shared_opening.py", SharedOpening=instrument) == 0
    # As a built-in it would be asked for these.
    assert all(docstring(instrument()).get(key) for key in ("what", "why", "Formula", "Source"))


@cache
def anchors(page: Path) -> set[str]:
    """The fragment of every heading of the built page, as both mkdocs and code hosts make it."""
    if (site := os.environ.get("DOCS_SITE")) and page.is_relative_to(DOCS):  # some pages take seconds to render
        built = (Path(site) / page.relative_to(DOCS)).with_suffix(".html")
        return set(re.findall(r'<h\d[^>]* id="([^"]+)"', built.read_text()))
    text = FENCE.sub("", render(page.read_text()))
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_internal_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("https://", "http://")):
            continue
        path, _, fragment = target.partition("#")
        found = page if not path else (page.parent / path).resolve()
        assert found.exists(), f"{page.name} links to {target}"
        if fragment:
            assert fragment in anchors(found), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_machine(page: Path) -> None:
    text = page.read_text()
    for pattern in (r"/(?:home|root|work|tmp|Users|mnt|opt)/\w", r"[A-Z]:\\", r"pypi\.org", r"\b\d+\.\d+\.\d+\.\d+\b"):
        assert not re.search(pattern, text), f"{page.name} has {re.findall(pattern, text)}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(str(page.relative_to(DOCS)) in navigation for page in DOCS.rglob("*.md"))


def test_the_site_has_at_most_a_hundred_pages_each_within_two_clicks_of_the_front_page() -> None:
    pages, far = site_pages(), clicks()
    assert 80 < len(pages) <= 100
    assert {page: far.get(page) for page in pages if far.get(page, 3) > 2} == {}


def test_a_page_that_is_far_away_or_that_nothing_links_to_is_seen(tmp_path: Path) -> None:
    for page, text in {
        "index": "[a](a.md#one)",
        "a": "[b](in/b.md)",
        "in/b": "[c](../c.md)",
        "c": "",
        "alone": "",
    }.items():
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / f"{page}.md").write_text(text)
    assert clicks(tmp_path) == {"index.md": 0, "a.md": 1, "in/b.md": 2, "c.md": 3}


def words(page: str) -> set[str]:
    """Everything a page has set as code."""
    return set(re.findall(r"`([^`\n]+)`", FENCE.sub("", (DOCS / page).read_text())))


def test_the_pages_list_every_column_flag_kind_check_state_and_reading() -> None:
    assert set(COLUMNS) - {"rewards"} <= words("run-directory.md")
    assert set(FLAGS) <= words("run-directory.md")
    assert set(KINDS) <= words("run-directory.md")
    assert set(CHECKS) | set(STATES) <= words("verdict.md")
    assert {column for make in BUILTIN for column in make().needs} <= words("start.md")


def test_the_page_of_instruments_says_of_each_what_why_how_and_whence(tmp_path: Path) -> None:
    parts: list[Any] = [make() for make in (*BUILTIN, *DERIVED)]
    for part in parts:
        told = docstring(part)
        assert all(told.get(key) for key in ("what", "why", "Formula", "Source")), f"{part.name}: {told}"
    (tmp_path / "instruments.json").write_text(json.dumps({"us_per_token": {"reward.mean": 0.00125}}))
    page = render_page("instruments.md", tmp_path)
    assert page.count("ns per token") == page.count("1.25 ns per token") == 1
    assert all(f"### `{part.name}`\n" in page for part in [*parts, SemanticDiversity])
    heads = [re.sub(r"[^\w\s-]", "", head.lower()) for head in re.findall(r"^#+ (.+)$", page, re.M)]
    assert len(heads) == len(set(heads)), "two headings have one anchor"
    assert set(re.findall(r"\(#([\w-]+)\)", page)) <= set(heads)
    names = {name for line in re.findall("^Readings: .+$", page, re.M) for name in re.findall("`(.+?)`", line)}
    assert {f"training.{name}" for name in SCALARS} < names
    assert {"policy.kl.k3", "reward.component.NAME", "text.overused.count", "diversity.semantic.across"} < names
    assert "window 10 · smoothing 0.2" in page


def test_an_instrument_of_any_subject_is_filed_under_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Late(RewardMean):
        name = "text.late"

    class New(RewardMean):
        name = "novel.subject"

    monkeypatch.setattr(instruments, "BUILTIN", (*BUILTIN, Late, New))
    page = render_page("instruments.md", tmp_path)
    assert "### `text.late`" in page.split("\n## Text\n")[1].split("\n## ")[0]
    assert "### `novel.subject`" in page.split("\n## Novel\n")[1].split("\n## ")[0]


def test_no_instrument_is_a_long_file() -> None:
    files = [path for path in INSTRUMENTS.glob("*.py") if path.name != "__init__.py"]
    assert not {path.name: n for path in files if (n := len(path.read_text().splitlines())) > 120}


def test_the_command_line_page_has_every_verb_and_option() -> None:
    text = (DOCS / "cli.md").read_text()
    for name in all_verbs().verbs:
        verb: Any = typer.main.get_command(app)
        for word in name.split():
            verb = verb.get_command(None, word)
        assert f"## {name}\n" in text, name
        part = text.split(f"## {name}\n")[1].split("\n## ")[0]
        assert f"tiltmeter {name}" in part, name
        for option in verb.params:
            if not getattr(option, "hidden", False) and option.opts[0].startswith("--"):
                assert f"`{option.opts[0]}" in part, f"{name} {option.opts[0]}"


def shapes(events: Iterable[Event]) -> dict[tuple[str, str], tuple[list[str], int]]:
    """By kind and variant of event: the keys of its data, and the number of parts of its id."""
    found: dict[tuple[str, str], tuple[list[str], int]] = {}
    for event in events:
        variant = str(event.data.get("state") or event.data.get("note") or "requests" * ("requests" in event.data))
        found[event.kind, variant] = (sorted(event.data), event.id.count("|"))
    return found


def test_the_example_lines_of_the_run_directory_page_are_those_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(text for language, _, text in blocks(DOCS / "run-directory.md") if language == "json")
    lines = [line for line in text.splitlines() if '"seq"' in line]
    commits = [journal.parse(line.encode()) for line in lines]
    assert all(commits)
    shown = [event for commit in commits for event in commit]
    assert {event.kind for event in shown} == set(KINDS)
    found: list[Event] = []
    for config in (Config.standard(), Config.standard().with_gold(FunctionSource("checks.py:right", right))):
        found += events_of(tmp_path / str(len(found)), config)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found += counselled(tmp_path / "counselled")
    assert shapes(shown) == shapes(found)


def test_the_files_of_control_on_the_run_directory_page_are_those_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    counselled(tmp_path / "run")
    part = (DOCS / "run-directory.md").read_text().split("\n## Control\n")[1].split("\n## ")[0]
    shown = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", part, re.M | re.S)]
    folder = tmp_path / "run" / "control"
    written = [
        json.loads(path.read_text())
        for path in (folder / "knobs-0.json", *folder.glob("requests/*"), *folder.glob("receipts/*"))
    ]
    assert [key_tree(text) for text in shown] == [key_tree(text) for text in written]


def key_tree(value: Any) -> Any:
    """The keys of nested objects, without their values; of a list, those of its first element."""
    if isinstance(value, dict):
        return {key: key_tree(inner) for key, inner in value.items()}
    return key_tree(value[0]) if isinstance(value, list) and value else None


def right(prompt: str, completion: str) -> float:
    return 1.0


def long(completions: list[str]) -> list[float]:
    return [len(text) / 100 for text in completions]


def events_of(path: Path, config: Config) -> list[Event]:
    """A run in which everything happens that the page shows."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="a", ranks=1, resume_step=None)
    for step in range(20):
        reward, gold = [0.0, 1.0, None, 0.5] * 4, [1.0, 0.0, None, 0.5] * 4
        columns: dict[str, Any] = {"reward": reward, "gold": gold, "completion": ["a"] * 16}
        rows = from_columns(step, [0, 0, 1, 1] * 4, fingerprint=str(step // 10), **columns)
        run.write(rows, 0, {"counters": {"seen": step + 1, "dropped": 1}})
    run.close_rank(attempt, 0, {"seen": 20, "dropped": 1})
    write_evaluation(run, Evaluation(attempt, 19, "gsm8k", 0.7, 200))
    watch = MonitorLoop(run, config)
    watch.poll()
    watch.close()
    return journal.read_events(run.path / "events")


def counselled(path: Path) -> list[Event]:
    """A run that pays for length: found, answered with a change whose outcome is judged, and a proposal is rejected."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="a", ranks=1, resume_step=None)
    knobs = {"beta": Knob("beta", 0.04, 1e-6, 1.0), "stop": Knob("stop", 0.0, 0.0, 1.0)}
    publish_knobs(run, 0, "advise", knobs)
    watch = MonitorLoop(run, Config.standard(), reward=FunctionSource("rewards.py:long", long))
    rng = np.random.default_rng(0)

    def go_on(first: int, last: int) -> list[Event]:
        for step in range(first, last):
            words = rng.integers(5, 10 + step, 32)
            columns: dict[str, Any] = {"reward": words / 10, "gold": 1 / words, "length": words}
            columns |= {"prompt": [f"{k // 8}?" for k in range(32)], "completion": [" word" * k for k in words]}
            run.write(from_columns(step, np.arange(32) // 8, **columns), 0, {"counters": {"seen": step + 1}})
        watch.poll()
        return journal.read_events(run.path / "events")

    def proposed(events: list[Event]) -> Action:
        return Action(**[event.data for event in events if event.kind == "action"][-1])

    first = proposed(go_on(0, 36))
    done = Receipt(f"{first.id}.approve", 0, "applied", "beta", 0.04, 0.08, 36, "beta reads 0.08")
    ReceiptLog(run, receipt_key(make_token(run))).append(0, done)
    watch.poll()
    second = proposed(go_on(36, 66))
    write_request(run, request_for(second, "reject", "operator", expires_step=100), make_token(run))
    until = time.monotonic() + 30  # the experiment is made on a thread of its own
    while time.monotonic() < until and not any(e.data.get("note") == "experiment" for e in go_on(0, 0)):
        time.sleep(0.05)
    watch.close()
    return journal.read_events(run.path / "events")


def test_what_the_trl_page_says_that_attach_says_is_what_it_says() -> None:
    shown = [text for _, _, text in blocks(DOCS / "trl.md") if text.startswith("Gold: ")]
    rows = [{"prompt": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(8)]
    found = find_gold(TrainingSetup({"right": len, "form": len}, rows=rows))
    assert shown == ["\n".join(found.lines) + "\n"]


def test_the_check_on_the_trl_page_works_as_it_is_pasted(tmp_path: Path) -> None:
    (shown,) = (text for _, options, text in blocks(DOCS / "trl.md") if 'title="checks.py"' in options)
    (tmp_path / "checks.py").write_text(shown)
    source = load_gold(f"{tmp_path / 'checks.py'}:score")
    cases = {"I think 7, no: 1,012": "so it is #### 1012", "1012, or 3": 1012, "nothing": 1012, "1012": "a word"}
    asked = [CompletionToLabel("", 0, 0, 0, "", "p", text, {"answer": right}) for text, right in cases.items()]
    assert list(source.label(asked)) == [1.0, 0.0, 0.0, None]
