"""A progress bar on standard error, which leaves standard output to tables and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function to call with what is being done, how much of it is done, and of how much."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield update
