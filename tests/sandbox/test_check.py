"""`tiltmeter reward sandbox` says what holds here, and what to install where nothing does."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter.sandbox import Limits, SandboxUnavailable, open_sandbox, tiers
from tiltmeter.sandbox.probed_sandbox import Tier


def missing(limits: Limits) -> Tier:
    raise AttachError("it is not \x1b[31mhere")


def test_it_prints_the_tier_each_probe_and_the_speed() -> None:
    try:
        open_sandbox(tier="landlock").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no such sandbox here: {error}")
    done = CliRunner().invoke(app, ["reward", "sandbox", "--tier", "landlock"])
    assert done.exit_code == 0, done.output
    assert "✓ landlock, strict, " in done.output
    assert "ms a program (bare Python " in done.output
    assert done.output.count("  ✓ ") == 12
    assert done.output.endswith("Code runs in landlock, strict.\n")


def test_where_none_holds_it_says_what_to_install_and_leaves_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    for tier in ("Bubblewrap", "Pool", "Landlock"):
        monkeypatch.setattr(tiers, tier, missing)
    done = CliRunner().invoke(app, ["reward", "sandbox"])
    assert done.exit_code == 2
    assert "✗ bwrap, strict it is not \\u{1b}[31mhere" in done.output
    assert "apt-get install bubblewrap libseccomp2" in done.output
    done = CliRunner().invoke(app, ["reward", "sandbox", "--json", "--isolation", "pooled"])
    told = json.loads(done.output)
    assert (done.exit_code, told["tier"], len(told["attempts"]), len(told["install"])) == (2, None, 2, 5)
    assert told["attempts"][0]["isolation"] == "pooled"


def test_a_tier_that_does_not_exist_is_refused() -> None:
    done = CliRunner().invoke(app, ["reward", "sandbox", "--tier", "none"])
    assert isinstance(done.exception, AttachError)
