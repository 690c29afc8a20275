"""Tiltmeter: is the reward still telling the truth?

    tiltmeter.attach(trainer)  # a TRL trainer; then train as always

or, in a loop of your own:

    run = tiltmeter.open_run("runs/tonight")
    for step in range(steps):
        ...
        run.observe(step=step, group=group, reward=reward, completion=completion)
    run.close()

Then `tiltmeter show runs/tonight`, from any terminal, during or after.
"""

from typing import TYPE_CHECKING, Any

from tiltmeter.errors import AttachError, ContractError, StoreError, TiltmeterError
from tiltmeter.records import Ragged, RolloutBatch

if TYPE_CHECKING:
    from tiltmeter.adapters.capture import capture
    from tiltmeter.adapters.loop import Run, open_run
    from tiltmeter.adapters.trl import Callback, attach

__version__ = "0.1.0"
__all__ = [
    "AttachError",
    "Callback",
    "ContractError",
    "Ragged",
    "RolloutBatch",
    "Run",
    "StoreError",
    "TiltmeterError",
    "__version__",
    "attach",
    "capture",
    "open_run",
]


def __getattr__(name: str) -> Any:
    # The way in pulls in pyarrow; a process that only reads records does not pay for it.
    if name in ("open_run", "Run"):
        from tiltmeter.adapters import loop

        return getattr(loop, name)
    if name == "capture":
        from tiltmeter.adapters.capture import capture

        return capture
    if name in ("attach", "Callback"):
        try:
            from tiltmeter.adapters import trl
        except ImportError as error:
            raise AttachError(f"tiltmeter.{name} needs TRL ({error}): pip install 'tiltmeter[trl]'") from error
        return getattr(trl, name)
    raise AttributeError(f"module 'tiltmeter' has no attribute {name!r}")
