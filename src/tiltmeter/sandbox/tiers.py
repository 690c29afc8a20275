"""Choose the sandbox tier: the first that passes its probes, or an error that says what to install."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tiltmeter.errors import AttachError
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.contract import Limits, SandboxUnavailable, Service
from tiltmeter.sandbox.landlock import Landlock
from tiltmeter.sandbox.pool import Pool
from tiltmeter.sandbox.probed_sandbox import Probe, ProbedSandbox, Tier
from tiltmeter.sandbox.probes import run_probes
from tiltmeter.sandbox.remote import Remote

INSTALL = (
    "Debian and Ubuntu: apt-get install bubblewrap libseccomp2 util-linux",
    "Fedora: dnf install bubblewrap libseccomp util-linux; Arch: pacman -S bubblewrap libseccomp",
    "Ubuntu 24.04 and later restrict user namespaces: load an AppArmor profile for bwrap, rather than lift the "
    "restriction for the whole machine",
    "Docker: its default profile forbids bwrap; the landlock tier works there on Linux 5.13 or newer, or give the "
    "container a seccomp profile that allows user namespaces (--privileged is neither needed nor advised)",
    "macOS, Windows, gVisor, older kernels: open_sandbox(remote=...), see docs/sandbox.md",
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of trying one tier: its probes, or why it could not be opened."""

    tier: str
    isolation: str
    probes: tuple[Probe, ...]
    refused: str = ""

    @property
    def holds(self) -> bool:
        return not self.refused and all(one.held is not False for one in self.probes)

    def __str__(self) -> str:
        missed = ", ".join(f"{one.name} ({one.seen})" for one in self.probes if one.held is False)
        return f"{self.tier}: {self.refused or missed or 'holds'}"


#: What was found in this process, by tier, isolation and account: a machine does not change under a running process.
_attempts: dict[tuple[str, str, int], Attempt] = {}


def tier_candidates(
    isolation: str, tier: str | None, remote: Service | None
) -> list[tuple[str, str, Callable[[Limits], Tier]]]:
    """The tiers to try, as (name, isolation, how to make it). If a remote service is given, it is the only one
    tried: a local tier shares the kernel that it is meant to avoid."""
    tiers: list[tuple[str, str, Callable[[Limits], Tier]]] = []
    if remote is not None:
        tiers.append(("remote", "strict", lambda limits: Remote(limits, remote)))
    else:
        tiers.append(("bwrap", "pooled", Pool) if isolation == "pooled" else ("bwrap", "strict", Bubblewrap))
        tiers.append(("landlock", "strict", Landlock))
    return [one for one in tiers if tier in (None, one[0])]


def open_first_working(
    isolation: str, limits: Limits, tier: str | None, remote: Service | None, fresh: bool
) -> ProbedSandbox:
    """The first tier that passes its probes, or an error that says what each lacked and what to install."""
    attempts = []
    for name, kind, make in tier_candidates(isolation, tier, remote):
        attempt, built = try_tier(name, kind, make, limits, fresh)
        if built is not None:
            return ProbedSandbox(built, kind, attempt.probes)
        attempts.append(attempt)
    if not attempts:
        raise SandboxUnavailable(
            f"there is no tier {tier!r} here; there are bwrap, landlock and, with a service, remote"
        )
    raise SandboxUnavailable(
        "no sandbox works here, so no code of a model is run. "
        + "; ".join(map(str, attempts))
        + ".\nTo have one:\n- "
        + "\n- ".join(INSTALL)
    )


def try_tier(
    name: str, isolation: str, make: Callable[[Limits], Tier], limits: Limits, fresh: bool = False
) -> tuple[Attempt, Tier | None]:
    """The result of trying a tier, and the tier itself if it holds."""
    try:
        built = make(limits)
    except AttachError as error:
        return Attempt(name, isolation, (), str(error)), None
    key = (name, isolation, os.geteuid())
    attempt = None if fresh or name == "remote" else _attempts.get(key)
    if attempt is None or not attempt.holds:
        attempt = _attempts[key] = Attempt(name, isolation, tuple(run_probes(built)))
        built.close()  # what probes ran in; it begins anew when it is used
    if attempt.holds:
        return attempt, built
    return attempt, None
