"""Every attack is stopped in the first tier by an account without rights, and would be seen to succeed without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tiltmeter.sandbox import SandboxUnavailable, open_sandbox

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ATTACKS = tomllib.loads((BENCHMARKS / "attacks.toml").read_text())["attack"]
#: In every tier; a few of each kind, so that a tier that lets any kind through is noticed.
SAMPLE = (
    *("fork bomb", "memory of eight children", "filling /tmp", "endless output", "daemon that outlives it"),
    *("file that everybody may read", "environments", "writing outside", "changing a file's mode and times"),
    *("one socket of a pair", "signals that a pipe sends", "no end with its parent"),
    *("TCP", "abstract socket", "killing the parent", "another's limits", "another's descriptors"),
    *("user namespace and mount", "rare system calls", "forging the exit code", "poisoning the next program"),
)


def siege(*options: str) -> dict[str, str]:
    """By attack: what it got, nothing if it was stopped. As nobody where we are root: it is the harder case."""
    command = [sys.executable, str(BENCHMARKS / "siege.py"), "--user", "nobody", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["user"] != 0
    found: dict[str, str] = told["attacks"]
    return found


def local(isolation: str, tier: str) -> None:
    try:
        open_sandbox("pooled" if isolation == "pooled" else "strict", tier=tier).close()
    except SandboxUnavailable as error:
        pytest.skip(f"no such sandbox here: {error}")


def test_there_are_enough_attacks_and_each_has_a_name_of_its_own() -> None:
    names = [attack["name"] for attack in ATTACKS]
    assert len(set(names)) == len(names) >= 40
    assert set(SAMPLE) <= set(names)


def test_no_attack_names_a_system_call_by_number() -> None:
    assert not [
        attack["name"] for attack in ATTACKS if "libc.syscall(" in attack["program"].replace("syscall(newer", "")
    ]


def test_every_attack_is_stopped_in_the_first_tier() -> None:
    local("strict", "bwrap")
    found = siege("--tier", "bwrap")
    assert len(found) == len(ATTACKS)
    assert {name: got for name, got in found.items() if got} == {}


@pytest.mark.parametrize(("tier", "isolation"), [("bwrap", "pooled"), ("landlock", "strict")])
def test_attacks_of_every_kind_are_stopped_in_the_other_tiers(tier: str, isolation: str) -> None:
    local(isolation, tier)
    found = siege("--tier", tier, "--isolation", isolation, *SAMPLE)
    assert {name: got for name, got in found.items() if got} == {}


def test_without_a_sandbox_every_harmless_attack_is_seen_to_succeed() -> None:
    """The suite's own control: criteria that call this stopped would call anything stopped."""
    found = siege("--tier", "none")
    assert set(found) == {attack["name"] for attack in ATTACKS if attack.get("harmless")}
    assert len(found) >= 10
    assert [name for name, got in found.items() if not got] == []
    assert not any("did not run" in got for got in found.values())


@pytest.mark.parametrize(("tier", "isolation"), [("bwrap", "strict"), ("bwrap", "pooled"), ("landlock", "strict")])
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_the_probes_pass_in_every_tier_for_either_account(tier: str, isolation: str, user: str) -> None:
    if user == "root" and os.geteuid() != 0:
        pytest.skip("not root here")
    local(isolation, tier)
    command = [sys.executable, str(BENCHMARKS / "siege.py"), "--probes", "--tier", tier, "--isolation", isolation]
    done = subprocess.run(
        [*command, *(["--user", "nobody"] if user == "nobody" else [])], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["tier"], told["isolation"], told["user"] == 0) == (tier, isolation, user == "root")
