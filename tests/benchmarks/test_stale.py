"""Figures whose code has changed since they were measured are named, and so are those of no known revision."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOT = BENCHMARKS.parent
sys.path.insert(0, str(BENCHMARKS))

import headline  # noqa: E402
import rooms  # noqa: E402
import stale  # noqa: E402


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of two commits: the second changes one of two rooms."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    for room in ("kept", "changed"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "one.py").write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    (tmp_path / "changed" / "one.py").write_text("2\n")
    (tmp_path / "kept" / "notes.md").write_text("no code\n")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    monkeypatch.setattr(stale, "ROOT", tmp_path)
    stale._git.cache_clear()
    stale._changed.cache_clear()
    yield tmp_path
    stale._git.cache_clear()
    stale._changed.cache_clear()


def age(folder: Path, **result: object) -> stale.Age:
    path = folder / "figure.json"
    path.write_text(json.dumps(result))
    return stale.age_of(path)


def test_a_figure_is_stale_once_code_of_its_rooms_has_changed(history: Path) -> None:
    first = stale._git("rev-parse", "--short", "HEAD~1")
    assert age(history, revision=first, rooms=["kept", "changed"]).changed == ("changed",)
    assert age(history, revision=first, rooms=["kept", "changed"]).commits == 1
    assert not age(history, revision=first, rooms=["kept"]).is_stale
    assert not age(history, revision=stale._git("rev-parse", "HEAD"), rooms=["changed"]).is_stale


def test_a_revision_that_is_not_in_the_history_is_said(history: Path) -> None:
    lost = age(history, revision="0123abc", rooms=["kept"])
    assert lost.is_stale and lost.commits is None
    assert "not in the history" in lost.text
    assert age(history, figure=1).is_stale


def test_a_figure_depends_on_what_its_benchmark_and_its_helpers_use() -> None:
    assert rooms.rooms_of(BENCHMARKS / "refusal.py") == ["src/tiltmeter/data", "src/tiltmeter/instruments"]
    watched = rooms.rooms_of(BENCHMARKS / "overhead_trl.py")
    assert {f"src/tiltmeter/{room}" for room in ("adapters", "rundir", "monitor", "instruments")} <= set(watched)
    for script in BENCHMARKS.glob("*.py"):
        assert all((ROOT / room).exists() for room in rooms.rooms_of(script)), script.name


def test_each_headline_figure_has_a_result_a_script_and_a_page_that_shows_it() -> None:
    for name, entry in headline.headline().items():
        result = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())
        assert all(figure in result for figure in entry["figures"]), name
        assert (ROOT / entry["command"].split()[0]).exists(), name
        assert entry["shown"] and all((ROOT / page).exists() for page in entry["shown"]), name


def test_a_target_that_is_missed_is_said() -> None:
    entry = {"target": {"ratio": "<= 1.01", "lost": "== 0"}}
    assert headline.missed(entry, {"ratio": 1.0, "lost": 0}) == []
    assert headline.missed(entry, {"ratio": 1.2, "lost": 0}) == ["ratio is 1.2, not <= 1.01"]
