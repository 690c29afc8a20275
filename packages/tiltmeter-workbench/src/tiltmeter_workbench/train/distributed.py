"""Distributed training: which process is the main one, and a barrier for the others."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import Any

#: Constitution labels may take days on the main process, while the others wait.
BARRIER_TIMEOUT = timedelta(days=14)


def is_main_process() -> bool:
    """Whether this is the main process, the only one that writes."""
    return os.environ.get("RANK", "0") == "0"


def is_distributed() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def wait_for_everyone() -> None:
    """Wait until every process has reached this call."""
    if not is_distributed():
        return
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier(group=_barrier_group())


@cache
def _barrier_group() -> Any:
    """A group of its own: the trainer's has a timeout that is meant for one step, and a backend that needs GPUs."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=BARRIER_TIMEOUT)
