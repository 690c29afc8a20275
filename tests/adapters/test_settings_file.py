"""Arguments of the entry points from a file beside the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiltmeter.adapters.settings_file import find_settings, with_settings
from tiltmeter.errors import AttachError

SCRIPT = """
import json, sys, tiltmeter
with tiltmeter.open_run(sys.argv[1], monitor=False) as run:
    run.observe(step=0, group=[0, 0], reward=[1.0, 0.0], completion=["yes", "no"], facts=[{"source": "a"}] * 2)
    print(json.dumps({"gold": run.gold, "strict": run.strict}))
"""


def run_script(folder: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    words = [sys.executable, str(folder / "train.py"), str(cwd / "run")]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, env={**os.environ})


@pytest.mark.parametrize(
    ("name", "table"), [("tiltmeter.toml", ""), ("pyproject.toml", "[tool.other]\nx = 1\n[tool.tiltmeter]\n")]
)
def test_a_file_beside_the_script_gives_what_the_call_leaves_out(tmp_path: Path, name: str, table: str) -> None:
    folder, cwd = tmp_path / "code", tmp_path / "work"
    folder.mkdir()
    cwd.mkdir()
    (folder / name).write_text(f'{table}gold = "answers"\nslices = "source"\noptions = {{strict = true}}\n')
    done = run_script(folder, cwd)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"gold": "answers", "strict": True}


def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "tiltmeter.toml").write_text('slice = "source"\n')
    done = run_script(tmp_path, tmp_path)
    assert done.returncode == 1 and "'slice', which is no setting; did you mean slices?" in done.stderr
    (tmp_path / "tiltmeter.toml").write_text("options = {strikt = true}\n")
    assert "did you mean strict?" in run_script(tmp_path, tmp_path).stderr
    assert not (tmp_path / "run").exists(), "nothing is written before the settings are known to be right"


def test_what_the_call_says_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiltmeter.toml").write_text('gold = "people"\ntrackers = false\nact = {target_kl = 6.0}\n')
    asked = {"gold": "checks.py:score", "act": None, "trackers": True}
    settings, file = with_settings(asked, {"gold": "auto", "trackers": True})
    assert settings == {"gold": "checks.py:score", "act": {"target_kl": 6.0}, "trackers": False}
    assert file == tmp_path / "tiltmeter.toml"


def test_no_file_of_a_run_directory_or_of_somebody_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tiltmeter.toml"
    file.write_text('gold = "theirs.py:score"\n')
    assert find_settings() is not None
    (tmp_path / "run.json").write_text("{}")
    assert find_settings() is None, "a run directory may come from anybody"
    (tmp_path / "run.json").unlink()
    file.unlink()
    (tmp_path / "elsewhere.toml").write_text('gold = "theirs.py:score"\n')
    os.mkfifo(file)
    with pytest.raises(AttachError, match="cannot be used"):
        find_settings()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiltmeter.toml").write_text('gold = "theirs.py:score"\n')
    os.chown(tmp_path, 12345, 12345)
    os.chown(tmp_path / "tiltmeter.toml", 12345, 12345)
    with pytest.raises(AttachError, match="belongs to user 12345"):
        find_settings()
