"""Several processes that train one model: which of them writes, and how the others wait for it."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import Any

#: Labels of a constitution may take days on the main process, while the others have nothing to do.
LONGEST = timedelta(days=14)


def main() -> bool:
    """Whether this process is the one that writes."""
    return os.environ.get("RANK", "0") == "0"


def several() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def wait() -> None:
    """Until every process has come here."""
    if not several():
        return
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier(group=_group())


@cache
def _group() -> Any:
    """A group of its own: the trainer's has a timeout that is meant for one step, and a backend that needs GPUs."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=LONGEST)
