"""One table of states: no screen, page, picture or document has words, colours or exit codes of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from tiltmeter.verdict.checks import HealthCheck
from tiltmeter.verdict.states import STATES, TONES, State
from tiltmeter.verdict.verdict import Verdict
from tiltmeter.view.shell import state_css
from tiltmeter.view.shell.shell import shell_style

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "src/tiltmeter/verdict/states.py"
CODE = (
    "src/tiltmeter",
    "packages/tiltmeter-workbench/src",
    "packages/tiltmeter-lab/src",
    "web/src",
    "docs",
    "examples",
)
SUFFIXES = {".py", ".css", ".ts", ".tsx", ".svg"}
#: Style sheets and pictures that cannot read the table have its colours again, and only these.
COPIES = {"web/src/icons", "docs/try/try.css", "docs/images"}


def second_tables(source: str) -> list[int]:
    """Lines at which Python code writes down something for more than half of the states."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Dict)
        and len({key.value for key in node.keys if isinstance(key, ast.Constant)} & set(STATES)) > len(STATES) / 2
    ]


def state_colours(text: str) -> set[str]:
    """Colours of states that stand in a text as such. The colour of `stale` is that of faint text too."""
    ours = {colour for one in TONES.values() for colour in (one.light, one.dark, one.light_ground, one.dark_ground)}
    return (ours - {TONES["stale"].light, TONES["stale"].dark}) & set(re.findall(r"#[0-9a-f]{6}\b", text.lower()))


def test_the_table_has_every_state_and_no_two_look_alike() -> None:
    assert tuple(STATES) == get_args(State)
    assert len({one.icon for one in STATES.values()}) == len(STATES)
    assert {one.tone for one in STATES.values()} == set(TONES)
    assert len({one.light for one in TONES.values()}) == len({one.dark for one in TONES.values()}) == len(TONES)


def test_no_second_table_and_no_second_colour() -> None:
    found = []
    for path in (path for folder in CODE for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES):
        name = path.relative_to(ROOT).as_posix()
        if path == TABLE or "/static/" in name or name == "src/tiltmeter/view/shell/states.css":
            continue
        text = path.read_text("utf-8")
        if path.suffix == ".py":
            found += [f"{name}:{line} has something for each state" for line in second_tables(text)]
        if not any(name.startswith(copy) for copy in COPIES):
            found += [f"{name} has {colour}" for colour in sorted(state_colours(text))]
    assert not found, "take it from verdict/states.py: " + "; ".join(found)


def test_the_search_finds_a_second_table_and_a_second_colour() -> None:
    assert second_tables('X = 1\nY = {"ACT": 1, "BLIND": 2, "OK": 3, "WATCH": 4}') == [2]
    assert state_colours(f".blind {{ color: {TONES['blind'].light} }} .other {{ color: #123456 }}") == {
        TONES["blind"].light
    }


def test_the_style_sheet_is_what_the_table_says() -> None:
    sheet = ROOT / "src/tiltmeter/view/shell/states.css"
    assert sheet.read_text("utf-8") == state_css.render(), "run make types, then make page"
    assert sheet.read_text("utf-8") in shell_style()
    for tone, one in TONES.items():
        declared = re.findall(rf"--{tone}: (#\w+)", shell_style())
        assert declared == [one.light, one.dark], tone


@pytest.mark.parametrize("state", get_args(State))
def test_the_icon_of_a_tab_has_the_colour_of_its_state(state: State) -> None:
    drawn = (ROOT / "web/src/icons" / f"{state.lower()}.svg").read_text()
    colours = set(re.findall(r"#[0-9a-f]{6}", drawn))
    assert STATES[state].colour.light in colours and colours <= {STATES[state].colour.light, "#ffffff"}


def test_the_glossary_has_the_meanings_and_the_readme_the_exit_codes() -> None:
    meanings = dict(re.findall(r"^\| \*\*([A-Z]+)\*\* \| (.+) \|$", (ROOT / "docs/glossary.md").read_text(), re.M))
    assert {state: meanings.get(state) for state in STATES} == {state: one.meaning for state, one in STATES.items()}
    rows = re.findall(r"^\| ([A-Z, ]+) \| (\d) \|", (ROOT / "README.md").read_text(), re.M)
    codes = {state: int(code) for names, code in rows for state in names.split(", ")}
    assert codes == {state: one.exit_code for state, one in STATES.items()}


@pytest.mark.parametrize("state", get_args(State))
def test_a_verdict_has_the_exit_code_of_its_state(state: State) -> None:
    assert Verdict(state, "", {"monitor": HealthCheck(True, "")}).exit_code == STATES[state].exit_code
