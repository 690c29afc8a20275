"""The TRL quickstart as a newcomer runs it: the script as it stands, then `tiltmeter show`."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import tiltmeter

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "trl_quickstart.py"
PICTURE = ROOT / "docs" / "images" / "trl_default.svg"
RUN = "quickstart/tiltmeter"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the script was run, once the monitor has measured all of it."""
    pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
    folder = tmp_path_factory.mktemp("newcomer")
    done = run_script(folder)
    assert done.returncode == 0, done.stderr
    assert "Gold: the dataset's answers ('answer')" in done.stderr, "attach did not say what it judges by"
    # Its own monitor may still be at it.
    command(folder, "watch", RUN, "--plain", "--gold", "answers")
    return folder


def run_script(folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TILTMETER_")}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}
    script = [sys.executable, str(SCRIPT)]
    return subprocess.run(script, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of Tiltmeter in that folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in (("XDG_STATE_HOME", str(folder / "state")), ("COLUMNS", "200")):
            patch.setenv(name, value)
        return tiltmeter(*words)


@pytest.fixture(scope="module")
def shown(trained: Path) -> dict[str, Any]:
    done = command(trained, "show", RUN, "--json")
    assert done.returncode != 2, done.stderr  # not BLIND: the dataset has answers
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def lines(trained: Path) -> list[str]:
    return command(trained, "show", RUN, "--plain", "--more").stdout.splitlines()


def test_the_quickstart_is_judged_by_the_answers_of_its_dataset(shown: dict[str, Any]) -> None:
    assert shown["state"] in ("OK", "WATCH", "HOLLOW")
    assert shown["gold"]["name"] == "the dataset's answers"
    assert shown["readings"]["gold.mean"]["steps"] == 30  # a comparison takes no time: every rollout is labelled
    assert shown["steps"] == 30
    assert shown["completions"] == 30 * 64
    assert shown["batches"] == {"seen": 30, "lost": 0}
    assert not shown["faults"]
    assert not shown["alarms"]


@pytest.mark.parametrize(
    "name",
    [
        "reward.mean",
        "reward.dead_share",
        "reward.component.right",
        "reward.component.form",
        "reward.gain_share.right",
        "length.mean",
        "length.truncated_share",
        "policy.entropy",
        "diversity.distinct_2",
        "text.repetition",
    ],
)
def test_default_settings_show_what_needs_no_gold_at_every_step(shown: dict[str, Any], name: str) -> None:
    # Those that compare with the first steps begin after them.
    assert shown["readings"][name]["steps"] >= (20 if "gain" in name else 30)


def test_what_the_trainer_logs_arrives_too(shown: dict[str, Any]) -> None:
    assert {"training.loss", "training.grad_norm", "training.learning_rate", "training.checkpoint"} <= set(
        shown["readings"]
    )


def test_what_cannot_be_seen_is_listed_with_the_line_that_shows_it(shown: dict[str, Any], lines: list[str]) -> None:
    assert "ref_logprob" in shown["absent"]["policy.kl"]
    assert "engine_logprob" in shown["absent"]["engine.gap"]
    (line,) = (line for line in lines if line.startswith("Not seen: "))
    assert "ref_logprob" in line and "beta=1e-6" in line


def test_findings_and_actions_have_their_place_even_where_there_are_none(shown: dict[str, Any]) -> None:
    assert isinstance(shown["findings"], list)
    assert shown["actions"] == []
    assert shown["advice"]["word"] in ("continue", "stop", "cannot tell")


def test_the_screen_has_completions_of_the_newest_step(trained: Path) -> None:
    screen = command(trained, "show", RUN, "--more").stdout
    assert "step 30: paid most" in screen
    assert re.search("paid least: |oddest: ", screen)


def test_the_picture_in_the_documentation_is_of_this_screen(lines: list[str]) -> None:
    """Numbers and completions differ from machine to machine; what every run of the quickstart says does not."""
    picture = text_of(PICTURE.read_text())
    steady = [line for line in lines if line.startswith(("Gold is", "Not seen", "Compared"))]
    assert len(steady) == 3
    for line in steady:
        assert line in picture, "make the picture again: python docs/make_images.py --trl"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", PICTURE.read_text())


def text_of(picture: str) -> str:
    """The words of a screen, its lines joined again."""
    rows = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    plain = " ".join(html.unescape(row).replace("\N{NO-BREAK SPACE}", " ") for row in rows)
    return re.sub(r"\s+", " ", plain.replace("│", " "))


def test_the_page_shows_the_script_as_it_stands() -> None:
    page = (ROOT / "docs" / "trl.md").read_text()
    shown = re.search(r'^```python title="trl_quickstart.py"\n(.*?)^```$', page, re.M | re.S)
    assert shown is not None
    assert shown[1] == SCRIPT.read_text()


def test_one_line_is_all_that_is_not_trl() -> None:
    code = re.sub(r'""".*?"""', "", SCRIPT.read_text(), flags=re.S)
    ours = [line.strip() for line in code.splitlines() if "tiltmeter" in line]
    assert ours == ["import tiltmeter", "tiltmeter.attach(trainer)"]
