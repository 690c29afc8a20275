"""Tiltmeter: is the reward still telling the truth?

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
    from tiltmeter.adapters.loop import Run, open_run

__version__ = "0.1.0"
__all__ = [
    "AttachError",
    "ContractError",
    "Ragged",
    "RolloutBatch",
    "Run",
    "StoreError",
    "TiltmeterError",
    "__version__",
    "open_run",
]


def __getattr__(name: str) -> Any:
    # The way in pulls in pyarrow; a process that only reads records does not pay for it.
    if name in ("open_run", "Run"):
        from tiltmeter.adapters import loop

        return getattr(loop, name)
    raise AttributeError(f"module 'tiltmeter' has no attribute {name!r}")
