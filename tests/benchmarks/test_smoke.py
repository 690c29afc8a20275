"""Every benchmark runs at its smallest size and ends in figures, and none is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOT = BENCHMARKS.parent
sys.path.insert(0, str(BENCHMARKS))

import smoke  # noqa: E402

PLAN = smoke.plan()


def done(*names: str) -> list[dict[str, object]]:
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / "smoke.py"), "--json", *names], capture_output=True, text=True
    )
    assert ran.stdout, (ran.returncode, ran.stderr)
    found: list[dict[str, object]] = json.loads(ran.stdout.splitlines()[-1])
    assert ran.returncode == int(any(one["error"] for one in found)), ran.stderr
    return found


def test_every_benchmark_runs_at_its_smallest_size() -> None:
    names = sorted(PLAN["run"])
    assert {one["name"]: one["error"] for one in done(*names)} == dict.fromkeys(names, "")


def test_no_benchmark_that_records_figures_is_left_out() -> None:
    listed = [name for table in PLAN.values() for name in table]
    assert len(listed) == len(set(listed))
    assert set(listed) == smoke.recording_scripts()
    for name, test in PLAN["tested"].items():
        file, _, function = test.partition("::")
        assert name in (ROOT / file).read_text(), test
        assert f"def {function}(" in (ROOT / file).read_text(), test


def test_a_benchmark_that_raises_or_records_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for name in ("record.py", "rooms.py"):
        (tmp_path / name).write_text((BENCHMARKS / name).read_text())
    (tmp_path / "broken.py").write_text("raise ValueError('a column is missing')")
    (tmp_path / "silent.py").write_text("import record")
    (tmp_path / "whole.py").write_text("from record import record\nrecord('whole', {'figure': 1}, seed=0)")
    (tmp_path / "absent.py").write_text("import record\nprint('not measured: the sets are not here')")
    (tmp_path / "smoke.toml").write_text('[run]\nbroken = ""\nsilent = ""\nabsent = ""\n[campaign]\nwhole = ""\n')
    program = """
import json, sys, smoke
smoke.HERE, smoke.WARM = smoke.Path(sys.argv[1]), ()
names = ["broken", "silent", "whole", "absent"]
ends = []
for smoke.PUBLIC_SETS in (smoke.HERE / "none", smoke.HERE):
    ends += [(one.error, one.is_measured) for one in smoke.run(names)]
print(json.dumps(ends))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    ends = json.loads(ran.stdout)
    for broken, silent, whole in (ends[:3], ends[4:7]):
        assert "a column is missing" in broken[0]
        assert "no figures were recorded" in silent[0]
        assert whole == ["", True]
    assert ends[3] == ["", False]
    assert "not measured" in ends[7][0]
    assert not (tmp_path / "results" / "whole.json").exists()
