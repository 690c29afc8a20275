"""Simulated file systems: what a process is told by calls that a local one answers otherwise.

`simulate(NAME, seed)` changes the calls of this process for good: a benchmark or a test calls it in a process of its
own. It shows what the store does with such answers; caches, delays and outages of a real server are not in it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections.abc import Callable
from typing import Any

from tiltmeter.rundir import atomic_write


def _refuse(number: int) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


def no_links(rng: random.Random) -> None:
    """As on many FUSE mounts and on SMB: a rename that does not replace takes the place of a link."""
    os.link = _refuse(errno.EPERM)


def no_links_plain_rename(rng: random.Random) -> None:
    """Older FUSE mounts: renames replace, whatever is asked."""
    os.link = _refuse(errno.ENOTSUP)
    atomic_write._rename_new = _refuse(errno.EINVAL)


def no_locks(rng: random.Random) -> None:
    """As on Lustre that is mounted without `flock`."""
    fcntl.flock = _refuse(errno.ENOSYS)


def no_rename(rng: random.Random) -> None:
    """A mount that renames by copying, and so refuses to, or does it in two steps: it must never be asked."""
    os.rename = os.replace = _refuse(errno.EXDEV)
    atomic_write._rename_new = _refuse(errno.EXDEV)


def neither(rng: random.Random) -> None:
    """Nothing that gives a finished file its name: such a run is refused when it is opened."""
    os.link = _refuse(errno.EPERM)
    no_rename(rng)


def lost_replies(rng: random.Random) -> None:
    """NFS: the server does it, its reply is lost, and the client that asks again is told that it cannot be done."""
    again = {"link": errno.EEXIST, "mkdir": errno.EEXIST, "unlink": errno.ENOENT, "rename": errno.ENOENT}
    for name, number in again.items():
        setattr(os, name, _losing(getattr(os, name), (number, errno.EIO), rng))
    real_open = os.open

    def open_once(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        handle = real_open(path, flags, *arguments, **options)
        if flags & os.O_EXCL and rng.random() < LOST:
            os.close(handle)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return handle

    os.open = open_once


LOST = 0.2  # share of replies


def _losing(real: Callable[..., Any], numbers: tuple[int, ...], rng: random.Random) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        if rng.random() < LOST:
            number = rng.choice(numbers)
            raise OSError(number, os.strerror(number))
        return result

    return call


#: Where a run is kept. `neither` is refused.
FILE_SYSTEMS: dict[str, Callable[[random.Random], None]] = {
    "no links": no_links,
    "no links, plain rename": no_links_plain_rename,
    "no locks": no_locks,
    "no rename": no_rename,
    "lost replies": lost_replies,
}


def simulate(name: str, seed: int) -> None:
    {**FILE_SYSTEMS, "neither": neither}[name](random.Random(f"{name}/{seed}"))
