"""A run shows itself in a notebook, and writes its own report."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest

import tiltmeter
from tiltmeter.errors import AttachError


def test_an_open_run_shows_state_and_readings_without_any_script(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "<b>tonight", monitor=False, options=tiltmeter.Options(on_full="wait")) as run:
        before = run._repr_mimebundle_()
        assert before["text/plain"].startswith("⊘ STALE  <b>tonight")
        assert "&lt;b&gt;tonight" in before["text/html"] and "<script" not in before["text/html"]
        assert "no step is measured yet" in picture(before["text/html"])
        rng = np.random.default_rng(0)
        for step in range(4):
            run.observe(step=step, group=np.repeat([0, 1], 4), reward=rng.random(8), completion=["a <i>text"] * 8)
    from tiltmeter.monitor.loop import MonitorLoop
    from tiltmeter.monitor.parts import Config

    assert run.store is not None
    watch = MonitorLoop(run.store, Config.standard())
    watch.poll()
    watch.close()
    after = run._repr_mimebundle_()
    assert "no gold: BLIND" in picture(after["text/html"]) and "reward 0." in picture(after["text/html"])


def picture(text: str) -> str:
    """The one image in it, which is the run's picture."""
    (data,) = re.findall(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,([^"]+)">', text)
    return base64.b64decode(data).decode()


def test_a_run_writes_its_report(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "tonight", monitor=False) as run:
        written = run.report(tmp_path / "report.html")
    text = written.read_text()
    assert text.startswith("<!doctype html>") and "tonight" in text
    assert not re.search(r"""(?:src|href)\s*=\s*["']?https?://""", text)


def test_a_disabled_run_says_that_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    run = tiltmeter.open_run(tmp_path / "tonight")
    assert "disabled" in run._repr_mimebundle_()["text/plain"]
    with pytest.raises(AttachError, match="disabled"):
        run.report(tmp_path / "report.html")
