"""Tiltmeter monitors RL post-training runs: does a rising reward still mean a better model?

    tiltmeter.attach(trainer)  # a TRL trainer; then train as always

or, in a loop of your own:

    run = tiltmeter.open_run("runs/tonight")
    for step in range(steps):
        ...
        run.observe(step=step, group=group, reward=reward, completion=completion)
    run.close()

Then `tiltmeter show runs/tonight`, from any terminal, during or after; `tiltmeter.read("runs/tonight")` gives tables.
"""

from typing import TYPE_CHECKING, Any

from tiltmeter import adapters
from tiltmeter.data.records import Ragged, RolloutBatch
from tiltmeter.errors import AttachError, ContractError, StoreError, TiltmeterError
from tiltmeter.version import __version__

if TYPE_CHECKING:
    from tiltmeter.adapters.arguments import Act, Anchors, Gold, Launch, Options, Traps
    from tiltmeter.adapters.capture.capture import capture
    from tiltmeter.adapters.custom_loop import Run, open_run
    from tiltmeter.adapters.trl.attach import Callback, attach
    from tiltmeter.gold.regrade.keep import keep_workspace
    from tiltmeter.gold.regrade.settings import Regrade
    from tiltmeter.view.run_tables import read

__all__ = [
    "Act",
    "Anchors",
    "AttachError",
    "Callback",
    "ContractError",
    "Gold",
    "Launch",
    "Options",
    "Ragged",
    "Regrade",
    "RolloutBatch",
    "Run",
    "StoreError",
    "TiltmeterError",
    "Traps",
    "__version__",
    "attach",
    "capture",
    "keep_workspace",
    "open_run",
    "read",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: these need pyarrow, and a process that only reads records should not load it.
    if name in ("open_run", "Run"):
        from tiltmeter.adapters import custom_loop

        return getattr(custom_loop, name)
    if name in ("Act", "Anchors", "Gold", "Launch", "Options", "Traps"):
        from tiltmeter.adapters import arguments

        return getattr(arguments, name)
    if name == "capture":
        from tiltmeter.adapters.capture.capture import capture

        return capture
    if name == "Regrade":
        from tiltmeter.gold.regrade.settings import Regrade

        return Regrade
    if name == "keep_workspace":
        from tiltmeter.gold.regrade.keep import keep_workspace

        return keep_workspace
    if name == "read":
        from tiltmeter.view.run_tables import read

        return read
    if name in ("attach", "Callback"):
        try:
            from tiltmeter.adapters.trl import attach
        except ImportError as error:
            raise AttachError(f"tiltmeter.{name} needs TRL ({error}): pip install 'tiltmeter[trl]'") from error
        return getattr(attach, name)
    raise AttributeError(f"module 'tiltmeter' has no attribute {name!r}")


def _open_view() -> Any:
    # Only a report or a notebook needs the page; importing it must not delay the start of training.
    from tiltmeter.view import run_views

    return run_views


adapters.open_view = _open_view
