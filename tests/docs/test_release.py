"""What a release is made of says one thing: version, dependencies, commands, and a description without dead links."""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.pages import ROOT

import tiltmeter

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps_of(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_of_workflows_are_the_makefiles(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    commands = [step["run"] for step in steps_of(path) if "run" in step]
    assert commands and all(re.fullmatch(r"make [a-z-]+", command) for command in commands)
    assert {command.removeprefix("make ") for command in commands} <= targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_do_no_more_than_they_need(path: Path) -> None:
    flow = yaml.safe_load(path.read_text())
    assert flow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text()
    assert all("@" in step["uses"] for step in steps_of(path) if "uses" in step)


def test_every_target_of_the_makefile_says_what_it_does() -> None:
    lines = re.findall(r"^[a-z-]+:.*$", (ROOT / "Makefile").read_text(), re.M)
    assert lines and all("  ## " in line for line in lines)


def test_one_version_everywhere() -> None:
    version = tiltmeter.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'  version: "{version}"' in (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    assert re.search(
        rf"^## \[{re.escape(version)}\] - (unreleased|\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    text = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text().split("  run:\n")[1].split("\ntests:")[0]
    needed = set(re.findall(r"- (\S+) (>=\S+)", text))
    wheel = {tuple(re.fullmatch(r"([\w-]+)(>=[\d.]+)", one).groups()) for one in PROJECT["dependencies"]}  # type: ignore[union-attr]
    assert needed == wheel | {("python", PROJECT["requires-python"])}


def test_the_long_description_has_no_link_that_needs_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    # hatchling is installed where something is built, and there alone.
    monkeypatch.setitem(
        sys.modules, "hatchling.metadata.plugin.interface", SimpleNamespace(MetadataHookInterface=object)
    )
    without_relative_links = runpy.run_path(str(ROOT / "hatch_build.py"))["without_relative_links"]
    text = without_relative_links((ROOT / "README.md").read_text())
    assert "](docs/" not in text and "tiltmeter.attach(trainer" in text
    assert without_relative_links("![p](docs/a.svg)\n\nSee [a](docs/a.md), [b](https://b).") == "See a, [b](https://b)."


def test_sections_of_the_changelog_are_those_of_the_convention() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }


def test_types_are_shipped() -> None:
    assert (ROOT / "src" / "tiltmeter" / "py.typed").exists()
