"""Offline logs of Weights & Biases, made with its own package, which talks to nobody in that mode."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.wandb import BLOCK, MAGIC, WandBReader, log_records, run_files
from tiltmeter.errors import AttachError, StoreError

pytest.importorskip("wandb", reason="pip install 'tiltmeter[trackers]'")

MAKE = """
import sys, wandb
quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
for folder, begin, id in ((sys.argv[1], 0, "first"), (sys.argv[1], 4, "first"), (sys.argv[1], 0, "second")):
    config = {"beta": 0.04, "model": {"name": "tiny"}, "note": "\\x1b[2J", "on": True}
    run = wandb.init(mode="offline", project="p", dir=folder, id=id, name=f"{id} run", config=config, settings=quiet)
    for step in range(begin, begin + 6):
        run.log({"train/global_step": step, "train/reward": begin + 0.1 * step, "train/kl": 0.01 * step,
                 "nested": {"a": step}, "text": "x" * 9000, "nan": float("nan"), "val/acc": 0.5})
    run.log({"train/epoch": 1})
    run.config.update({"late": 3})
    run.finish()
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logged")
    quiet = {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_CACHE_DIR": str(folder / "cache")}
    quiet |= {"WANDB_CONFIG_DIR": str(folder / "config"), "WANDB_DATA_DIR": str(folder / "data"), "HOME": str(folder)}
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], check=True, env={**os.environ, **quiet}, timeout=300)
    return folder


def found(path: Path, **asked: Any) -> dict[str, ExternalRun]:
    return {run.name: run for run in WandBReader().find(path, ReadOptions(**asked))}


def test_an_offline_run_is_read_with_its_configuration_and_its_restart(logged: Path) -> None:
    runs = found(logged, evals={"val/acc": 32})
    assert sorted(runs) == ["first run/0", "first run/1", "second run"]
    run = runs["second run"]
    assert (run.reader, sorted(run.scalars), run.pieces) == ("wandb", [0, 1, 2, 3, 4, 5], ())
    assert run.scalars[5]["reward"] == pytest.approx(0.5)
    assert run.scalars[5]["kl_ref"] == pytest.approx(0.05)
    assert run.scalars[5]["nested/a"] == 5.0
    assert run.scalars[5]["nan"] != run.scalars[5]["nan"]
    assert not {"_timestamp", "_runtime", "_step", "text"} & run.scalars[5].keys()
    assert [told.n for told in run.evaluations] == [32] * 6
    assert run.settings["config"] == {"beta": 0.04, "model/name": "tiny", "note": "\x1b[2J", "on": True, "late": 3}
    assert "configured: beta 0.04" in run.notes
    assert "1 rows without train/global_step were left out" in run.notes
    assert "1 columns that hold no numbers were left out" in run.notes
    assert "\x1b" not in " ".join(run.notes)
    assert sorted(runs["first run/1"].scalars) == [4, 5, 6, 7, 8, 9]
    assert runs["first run/1"].scalars[5]["reward"] == pytest.approx(4.5)


def test_a_run_is_found_from_its_file_its_folder_and_the_folder_of_runs(logged: Path) -> None:
    (file,) = logged.glob("wandb/*run-*/run-second.wandb")
    for path in (file, file.parent):
        assert list(found(path)) == ["second run"]
    assert len(run_files(logged)) == len(run_files(logged / "wandb")) == 3
    assert run_files(logged / "nowhere") == []
    assert WandBReader().find(Path(__file__).parent, ReadOptions()) == []


def test_another_column_may_be_the_step_and_a_missing_one_is_refused(logged: Path) -> None:
    (file,) = logged.glob("wandb/*run-*/run-second.wandb")
    assert sorted(found(file, columns={"step": "_step"})["second run"].scalars) == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(StoreError, match="no column 'mine' in its history"):
        found(file, columns={"step": "mine"})
    with pytest.raises(StoreError, match="leave --map run= out"):
        found(file, columns={"run": "train/epoch"})


def test_a_log_that_is_cut_short_or_damaged_is_read_up_to_there(logged: Path, tmp_path: Path) -> None:
    (file,) = logged.glob("wandb/*run-*/run-second.wandb")
    whole = file.read_bytes()
    assert len(whole) > BLOCK  # so that records are split over blocks
    copy = tmp_path / "run-second.wandb"
    copy.write_bytes(whole[: len(whole) // 2])
    run = found(copy)["second run"]
    assert 0 < len(run.scalars) < 6
    assert any("is damaged or cut short at byte" in told for told in run.notes)
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    copy.write_bytes(bytes(broken))
    assert 0 < len(found(copy)["second run"].scalars) < 6
    short: list[str] = []
    assert len(list(log_records(file, short))) > 6
    assert short == []


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 something else", MAGIC, MAGIC + b"\x00" * 100, MAGIC[:-1] + b"\x09"]
)
def test_what_is_no_log_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run-x.wandb").write_bytes(data)
    with pytest.raises(StoreError, match=r"run-x\.wandb"):
        WandBReader().find(tmp_path, ReadOptions())


def test_without_the_package_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run-x.wandb").write_bytes(MAGIC)
    spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else spec(name))
    with pytest.raises(AttachError, match=r"pip install 'tiltmeter\[trackers\]'"):
        WandBReader().find(tmp_path, ReadOptions())
