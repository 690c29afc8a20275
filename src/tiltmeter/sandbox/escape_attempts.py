"""The escape attempts, as a program that runs inside a sandbox. This file is not imported: its text is passed to the
interpreter in the sandbox. Each trial reports that it begins, and then what it got."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

given: dict[str, Any] = {}


def environment() -> list[str]:
    """Every environment within reach: its own, that of process 1, and those of processes outside."""
    found = [f"{name}={value}" for name, value in os.environ.items()]
    for process in ("self", 1, os.getppid(), *given["processes"]):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                found += file.read().decode("latin-1").split("\0")
        except OSError:
            continue
    return found


def host_file() -> str:
    try:
        with open(given["file"]) as file:
            return file.read()
    except OSError:
        return ""


def loopback() -> str:
    try:
        with socket.create_connection(("127.0.0.1", given["port"]), timeout=1.0):
            return "connected"
    except OSError:
        return ""


def forks() -> int:
    made = 0
    for _ in range(given["forks"]):
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            time.sleep(0.3)
            os._exit(0)
        made += 1
    return made


def memory() -> int:
    """Megabytes beyond the limit that could be had and written to."""
    size = given["memory_mb"] << 20
    got = 0
    for take in (lambda: bytearray(size), lambda: mmap.mmap(-1, size)):
        try:
            room = take()
            room[size - 1] = 1
            got += size >> 20
            del room
        except (MemoryError, OSError, ValueError):
            continue
    return got


def writing() -> list[str]:
    """Places outside /tmp where a file could be left; in `folder`, which is ours, also under /tmp."""
    done = []
    for folder in (given["folder"], "/", "/etc", "/usr", "/home", "/root", "/var/tmp", "/run", "/dev"):
        try:
            with open(f"{folder}/{given['token']}", "w") as file:
                file.write("here")
            os.remove(file.name)  # noqa: PTH107  # pathlib is slow to import
            done.append(folder)
        except OSError:
            continue
    return done


def tracing() -> list[str]:
    """Calls that look into another process or take its descriptors, by name, that were not refused."""
    done = []
    libc = ctypes.CDLL(None, use_errno=True)

    def refused(name: str, *arguments: Any) -> bool:
        # A bad address or descriptor is an answer that only those get who were let in.
        returned = libc.syscall(given["calls"][name], *arguments)
        return returned < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS, errno.ESRCH)

    room = ctypes.create_string_buffer(16)
    piece = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8)
    for process in (1, os.getppid(), *given["processes"]):
        if not refused("process_vm_readv", process, piece, 1, piece, 1, 0):
            done.append("process_vm_readv")
        handle = libc.syscall(given["calls"]["pidfd_open"], process, 0)
        if handle >= 0 and not refused("pidfd_getfd", handle, 0, 0):
            done.append("pidfd_getfd")
    if not refused("ptrace", 0, 0, 0, 0):
        done.append("ptrace")
    return done


def signals() -> list[int]:
    """Processes outside that could be signalled; signal 0 asks whether one may, and does nothing."""
    done = []
    for process in (os.getppid(), *given["processes"]):
        try:
            os.kill(process, 0)
            done.append(process)
        except OSError:
            continue
    return done


def unshare() -> bool:
    return bool(ctypes.CDLL(None).unshare(0x10000000) == 0)


def survivors() -> int:
    """Leave processes behind that go by a name we know, and stay."""
    ctypes.CDLL(None).prctl(15, given["token"].encode()[:15], 0, 0, 0)
    made = 0
    for _ in range(2):
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
        made += 1
    say(trial="survivors", got=made)
    time.sleep(60)
    return made


def output() -> int:
    while True:
        sys.stdout.write("x" * 1000 + "\n")


TRIALS: tuple[Callable[[], Any], ...] = (
    *(environment, host_file, loopback, forks, memory, writing, tracing, signals, unshare, survivors, output),
)


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    given.update(json.load(sys.stdin))
    for trial in TRIALS:
        if trial.__name__ in given["trials"]:
            say(begins=trial.__name__)
            say(trial=trial.__name__, got=trial())


if __name__ == "__main__":
    main()
