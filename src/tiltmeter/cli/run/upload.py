"""`tiltmeter upload`: send what a run on object storage has left on this machine."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from tiltmeter.cli.options import Run, Trust, open_to_change
from tiltmeter.errors import AttachError
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.rundir.remote.address import parse_address, spool_path
from tiltmeter.rundir.remote.mirror import read_mirror
from tiltmeter.rundir.remote.upload_thread import UploadThread
from tiltmeter.safety.safe_text import terminal

Minutes = Annotated[float, typer.Option("--minutes", help="How long to wait and to try.", metavar="N", min=0)]


def upload(run: Run, minutes: Minutes = 10.0, trust: Trust = False) -> None:
    """Upload what is left of a run whose directory is an address: after an outage, or a node that was taken away.

    Example: tiltmeter upload s3://bucket/runs/tonight

    Works on the machine that trained, and waits for a monitor that is still at work there. Exit code: 0 all is there, 2
    not.
    """
    address = parse_address(run)
    path = run if address is None else spool_path(address)
    if not path.exists():
        raise AttachError(f"this machine has nothing of {run}: run this where it was trained")
    directory = open_to_change(path, trust)
    mirror = read_mirror(directory.path)
    if mirror is None:
        raise AttachError(f"{directory.path} has no mirror: it was opened by a path, not by an address")
    deadline = time.monotonic() + 60.0 * minutes
    with monitor_lock(directory, lambda: time.monotonic() < deadline):  # a monitor that ends uploads by itself
        thread = UploadThread(directory, mirror)
        thread.start()
        is_whole = thread.finish(max(0.0, deadline - time.monotonic()))
    state = thread.state
    line = "all is there" if is_whole else f"{state.waiting} files are not there yet: {state.error or 'time was up'}"
    lost = f"; {state.lost} files of rollouts were lost to a full spool" if state.lost else ""
    secret = (
        f"; {state.withheld} files hold a secret and stay here: tiltmeter show names them" if state.withheld else ""
    )
    Console(highlight=False, markup=False, soft_wrap=True).print(
        terminal(f"{mirror.address}: {line}{lost}{secret}", 500)
    )
    raise typer.Exit(0 if is_whole and not state.withheld else 2)
