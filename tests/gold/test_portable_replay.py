"""A run whose labels were bought is replayed to the same events on a processor that has less to compute with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gold.test_onset_labels import Counted, lean, score, stored

from tiltmeter.gold.label_files import read_request
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.rundir.store import RunDirectory

REPLAY = """
import sys
from tests.gold.test_onset_labels import lean
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.store import RunDirectory
again = replay(RunDirectory(sys.argv[1]), lean())
print("different" if again.difference else "as recorded", len(again.recorded))
"""
WITHOUT = ["", "X86_V4 AVX512_SKX AVX512_ICL AVX512_SPR", "X86_V4 AVX512_SKX AVX512_ICL AVX512_SPR X86_V3 AVX2 FMA3"]


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = stored(tmp_path_factory.mktemp("portable") / "run", 70)
    loop = MonitorLoop(run, lean().with_gold(Counted("checks.py:score", score), 0.3), strict=True)
    while loop.poll() or loop.waiting:
        pass
    loop.close()
    return run


@pytest.mark.parametrize("features", WITHOUT, ids=["all", "no AVX-512", "no AVX2"])
def test_a_replay_is_the_same_without_some_of_the_processors_features(bought: RunDirectory, features: str) -> None:
    assert read_request(bought, 0, 30) is not None
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": features, "PYTHONWARNINGS": "ignore"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(bought.path)],
        env=environment, cwd=root, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("as recorded"), done.stdout


def test_another_choice_is_not_taken_for_the_same(bought: RunDirectory) -> None:
    one, two = read_request(bought, 0, 30), read_request(bought, 0, 31)
    assert one is not None and two is not None
    assert one.is_nearly(one) and not one.is_nearly(two)
