"""The seccomp filter: which system calls are denied to programs, compiled by libseccomp.

Calls are named, never numbered, so that the same list holds on every processor. What is denied fails with EPERM, as
for any program without rights, so that an honest one meets an exception and not a dead process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache
from typing import Any

from tiltmeter.errors import AttachError

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NE, EQ, MASKED_EQ = 1, 4, 7
#: Calls above this number (the same on every processor) are newer than this list and are denied.
NEWEST_KNOWN = 450
CLONE_THREAD = 0x00010000
CLONE_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
TIOCSTI, TIOCLINUX, AF_UNIX = 0x5412, 0x541C, 1
#: Requests by which a file sends signals for whoever has it: to name a process (F_SETOWN, F_SETOWN_EX) or a signal
#: (F_SETSIG), and to have others' doings reported (F_SETLEASE, F_NOTIFY); of ioctl, FIOSETOWN and SIOCSPGRP.
FILE_SIGNALS, SOCKET_SIGNALS = (8, 15, 10, 1024, 1026), (0x8901, 0x8902)
#: PR_SET_PDEATHSIG, by which it could outlive us, and PR_SET_DUMPABLE, by which others could read its memory.
DENIED_PRCTL = (1, 4)

OTHER_PROCESSES = "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise process_mrelease"
SIGNALS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal"
MOUNTS = "mount umount umount2 pivot_root chroot move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr"
NAMESPACES = "unshare setns open_by_handle_at name_to_handle_at mknod mknodat personality"
KERNEL = (
    "bpf perf_event_open userfaultfd keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register "
    "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl quotactl_fd "
    "sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex stime iopl ioperm modify_ldt syslog "
    "fanotify_init lookup_dcookie nfsservctl vhangup uselib migrate_pages move_pages setpriority ioprio_set sync syncfs"
)
#: Memory that outlives its mapping, which a limit on address space does not count.
MEMORY = "memfd_create memfd_secret shmget shmat shmctl"
#: Queues and semaphores go by numbers and names that a whole machine shares where there is no namespace.
QUEUES = (
    "msgget msgsnd msgrcv msgctl semget semop semtimedop semctl "
    "mq_open mq_unlink mq_notify mq_timedsend mq_timedreceive mq_getsetattr"
)
#: Sockets of a pair are all there are, and they are connected; one for datagrams could write to any other.
SOCKETS = "socket connect bind listen accept accept4"
SOCKET_TYPE, SOCK_DGRAM, SOCK_RAW = 0xF, 2, 3
FORKS = "fork vfork"
#: What Landlock does not govern: changing a file's mode, owner, times or attributes, and watching directories.
UNGOVERNED = (
    "chmod fchmod fchmodat chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr fsetxattr "
    "removexattr lremovexattr fremovexattr inotify_init inotify_init1 inotify_add_watch truncate"
)
#: Landlock before its third version lets a file be emptied by whoever opens it, even only to read (O_TRUNC).
TRUNCATE, ACCESS = 0o1000, 0o3


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError as error:
        raise AttachError(
            f"no system-call filter: {error}. Install libseccomp2 (Debian, Ubuntu) or libseccomp"
        ) from error
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_release.restype = None
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    ]
    return library


def syscall_number(name: str) -> int | None:
    """A system call's number on this processor, or None where there is no such call.

    >>> syscall_number("no such call") is None
    True
    """
    resolved = int(_library().seccomp_syscall_resolve_name(name.encode()))
    return resolved if resolved >= 0 else None


@cache
def program_filter(*, forks: bool = False, governed: bool = True) -> bytes:
    """The filter as BPF. `forks` allows children and signals, for a pool's own server only; without `governed`
    directories the calls that Landlock does not cover are denied too."""
    library = _library()
    context = library.seccomp_init(ALLOW)
    if not context:
        raise AttachError("libseccomp could not begin a filter")
    try:
        _add_rules(context, forks, governed)
        file = os.memfd_create("filter")
        try:
            _check_returned("seccomp_export_bpf", library.seccomp_export_bpf(context, file))
            rules = os.pread(file, os.fstat(file).st_size, 0)
        finally:
            os.close(file)
    finally:
        library.seccomp_release(context)
    return _deny_newer_calls() + rules


def _add_rules(context: int, forks: bool, governed: bool) -> None:
    names = [
        *OTHER_PROCESSES.split(),
        *MOUNTS.split(),
        *NAMESPACES.split(),
        *KERNEL.split(),
        *SOCKETS.split(),
        *QUEUES.split(),
    ]
    if not forks:
        names += [*SIGNALS.split(), *FORKS.split(), *MEMORY.split()]
        _deny(context, "clone", [(0, MASKED_EQ, CLONE_THREAD, 0)])
        for option in DENIED_PRCTL:
            _deny(context, "prctl", [(0, MASKED_EQ, 0xFFFFFFFF, option)])
    if not governed:
        names += UNGOVERNED.split()
        for access in (os.O_RDONLY, ACCESS):
            _deny(context, "open", [(1, MASKED_EQ, TRUNCATE | ACCESS, TRUNCATE | access)])
            _deny(context, "openat", [(2, MASKED_EQ, TRUNCATE | ACCESS, TRUNCATE | access)])
        _deny(context, "openat2", why=errno.ENOSYS)  # its flags lie in memory too
    for name in names:
        _deny(context, name)
    _deny(context, "clone3", why=errno.ENOSYS)  # its flags lie in memory, which a filter cannot read; libc falls back
    for flag in CLONE_NEW:
        _deny(context, "clone", [(0, MASKED_EQ, flag, flag)])
    for request in (TIOCSTI, TIOCLINUX, *SOCKET_SIGNALS):
        _deny(context, "ioctl", [(1, MASKED_EQ, 0xFFFFFFFF, request)])
    for request in FILE_SIGNALS:
        _deny(context, "fcntl", [(1, MASKED_EQ, 0xFFFFFFFF, request)])
    _deny(context, "socketpair", [(0, NE, AF_UNIX, 0)])  # asyncio needs the harmless kind
    for kind in (SOCK_DGRAM, SOCK_RAW):  # of which the kernel makes the same
        _deny(context, "socketpair", [(1, MASKED_EQ, SOCKET_TYPE, kind)])
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        _deny(context, name, [(0, NE, 0, 0)])  # itself only


def _deny(context: int, name: str, when: list[tuple[int, int, int, int]] | None = None, why: int = errno.EPERM) -> None:
    call = syscall_number(name)
    if call is None:
        return
    tests = (_Comparison * len(when or ()))(*(_Comparison(*test) for test in when or ()))
    library = _library()
    _check_returned(name, library.seccomp_rule_add_array(context, ERRNO | why, call, len(tests), tests))


def _check_returned(what: str, returned: int) -> None:
    if returned != 0:
        raise AttachError(f"libseccomp refused {what}: {os.strerror(-returned)}")


def _deny_newer_calls() -> bytes:
    """Three instructions before all others: load the call's number, and answer ENOSYS if it is above what is known."""
    load, greater, answer = (0x20, 0, 0, 0), (0x25, 0, 1, NEWEST_KNOWN), (0x06, 0, 0, ERRNO | errno.ENOSYS)
    return b"".join(struct.pack("=HBBI", *line) for line in (load, greater, answer))
