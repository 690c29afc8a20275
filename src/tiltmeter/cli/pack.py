"""`tiltmeter pack`: merge the many small files of a run into few large ones."""

from __future__ import annotations

from rich.console import Console

from tiltmeter.cli.show import Run
from tiltmeter.rundir.maintenance import pack as pack_run
from tiltmeter.rundir.store import RunDirectory


def pack(run: Run) -> None:
    """Merge the small files of a run into large ones, which every command reads the same way.

    Example: tiltmeter pack runs/tonight

    Safe at any time, also while the run is written: the newest 64 steps of a live run are left alone, and originals go
    only after the packed copy was checked against each of them.
    """
    directory = RunDirectory(run)
    directory.identity()
    with Console(stderr=True).status("packing…") as status:
        merged = pack_run(directory, progress=lambda text: status.update(text))
    Console(highlight=False, markup=False).out(f"{merged} files merged" if merged else "nothing to merge")
