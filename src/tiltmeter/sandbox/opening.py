"""`open_sandbox`: the first tier that passes its probes on this machine."""

from __future__ import annotations

from typing import Literal

from tiltmeter.errors import AttachError
from tiltmeter.sandbox.contract import Limits, Sandbox, Service
from tiltmeter.sandbox.probed_sandbox import ProbedSandbox
from tiltmeter.sandbox.tiers import open_first_working
from tiltmeter.sandbox.unsandboxed import UnsandboxedTier

#: The consent that `unsandboxed=` must repeat; neither a setting nor an environment variable can give it.
ACCEPTED = "I accept unsandboxed code"


def open_sandbox(
    isolation: Literal["strict", "pooled"] = "strict",
    *,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    tier: str | None = None,
    remote: Service | None = None,
    fresh: bool = False,
    unsandboxed: str = "",
) -> Sandbox:
    """The first tier that passes its probes on this machine: `bwrap`, then `landlock`; or `remote`, a service of yours
    with `run(program, stdin, limits) -> Ended`, if you hand one over. Raises `SandboxUnavailable` if none does.

    `pooled` is many times faster than `strict` and shares one process image among programs; where only `landlock`
    holds, it is `strict` all the same, as the sandbox's `isolation` says. Probes run once per process and account;
    `fresh` runs them again. `unsandboxed` opens tier `none`, for whoever writes out that they accept it.

    >>> with open_sandbox(limits=Limits(wall_seconds=30)) as sandbox:  # doctest: +SKIP
    ...     sandbox.run("print(6 * 7)").stdout
    '42\\n'
    """

    if isolation not in ("strict", "pooled"):
        raise AttachError(f"there is no isolation {isolation!r}: it is 'strict' or 'pooled'")
    if unsandboxed:
        if unsandboxed != ACCEPTED:
            raise AttachError(f"to run a model's code without a sandbox, pass unsandboxed={ACCEPTED!r}, word for word")
        return ProbedSandbox(UnsandboxedTier(limits), "strict")
    return open_first_working(isolation, limits, tier, remote, fresh)
