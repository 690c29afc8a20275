"""What a run object shows of itself: the report that `run.report()` writes, and what a notebook displays."""

from __future__ import annotations

from pathlib import Path

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.report.html import render_html
from tiltmeter.view.screens import notebook
from tiltmeter.view.screens.run_reader import RunReader


def write_report(run: RunDirectory, path: str | Path, *, redact: bool = False) -> Path:
    target = Path(path)
    target.write_text(render_html(RunReader(run), redact=redact), "utf-8")
    return target


def mime_bundle(run: RunDirectory) -> dict[str, str]:
    return notebook.mime_bundle(RunReader(run))
