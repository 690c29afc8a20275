"""`tiltmeter reward sandbox`: whether code written by a model can be run here, in what, and what to install if not."""

from __future__ import annotations

import json as json_module
import statistics
import subprocess
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.cli.options import Json
from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import visible
from tiltmeter.sandbox import Limits
from tiltmeter.sandbox.interpreter import find_interpreter
from tiltmeter.sandbox.probed_sandbox import Tier
from tiltmeter.sandbox.tiers import INSTALL, Attempt, tier_candidates, try_tier

RUNS = 5
TIERS = ("bwrap", "landlock")
ISOLATIONS = ("strict", "pooled")

OneTier = Annotated[str | None, typer.Option("--tier", help="Only this tier: bwrap or landlock.", metavar="TIER")]
Isolation = Annotated[
    str, typer.Option("--isolation", help="strict: all fresh for each program; pooled: faster.", metavar="KIND")
]


def sandbox(tier: OneTier = None, isolation: Isolation = "strict", json: Json = False) -> None:
    """Try every sandbox that this machine may have: its twelve probes, its speed, and what to install where none holds.

    Example: tiltmeter reward sandbox --isolation pooled

    Exit code: 0 one holds, 2 none does.
    """
    if tier not in (None, *TIERS) or isolation not in ISOLATIONS:
        raise AttachError(f"there are the tiers {' and '.join(TIERS)}, and the isolations {' and '.join(ISOLATIONS)}")
    attempts: list[Attempt] = []
    speeds: list[dict[str, float]] = []
    for name, kind, make in tier_candidates(isolation, tier, None):
        attempt, built = try_tier(name, kind, make, Limits(), fresh=True)
        attempts.append(attempt)
        speeds.append(_speed(built) if built else {})
        if built:
            built.close()
    chosen = next((one for one in attempts if one.holds), None)
    if json:
        result = {
            "tier": chosen.tier if chosen else None,
            "isolation": chosen.isolation if chosen else None,
            "attempts": [_attempt_json(one, speed) for one, speed in zip(attempts, speeds, strict=True)],
            "install": [] if chosen else list(INSTALL),
        }
        Console(soft_wrap=True, highlight=False, markup=False).out(json_module.dumps(result, indent=1))
    else:
        _print(attempts, speeds, chosen)
    raise typer.Exit(0 if chosen else 2)


def _speed(tier: Tier) -> dict[str, float]:
    """Medians of a program that prints one line, in turns with the same without a sandbox, in milliseconds."""
    bare: list[float] = []
    inside: list[float] = []
    command = [find_interpreter().program, "-I", "-c", "print(1)"]
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        tier.once("print(1)", "")
        inside.append(time.perf_counter() - began)
    return {"ms": round(1000 * statistics.median(inside), 1), "bare_ms": round(1000 * statistics.median(bare), 1)}


def _attempt_json(attempt: Attempt, speed: dict[str, float]) -> dict[str, object]:
    probes = [{"name": one.name, "held": one.held, "seen": visible(one.seen)} for one in attempt.probes]
    head = {"tier": attempt.tier, "isolation": attempt.isolation, "holds": attempt.holds}
    return {**head, "refused": visible(attempt.refused), "probes": probes, **speed}


def _print(attempts: list[Attempt], speeds: list[dict[str, float]], chosen: Attempt | None) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for attempt, speed in zip(attempts, speeds, strict=True):
        mark = ("✓", "green") if attempt.holds else ("✗", "bold red")
        pace = f", {speed['ms']:g} ms a program (bare Python {speed['bare_ms']:g} ms)" if speed else ""
        console.print(
            Text.assemble(mark, f" {attempt.tier}, {attempt.isolation}{pace} {visible(attempt.refused)}".rstrip())
        )
        for one in attempt.probes:
            sign = ("✗", "bold red") if one.held is False else ("✓", "green") if one.held else ("–", "dim")
            console.print(Text.assemble("  ", sign, f" {one.name:<14} {visible(one.seen)}"))
    if chosen:
        console.print(Text(f"Code runs in {chosen.tier}, {chosen.isolation}."))
        return
    console.print(Text("No sandbox holds here, so no code of a model is run. To have one:"))
    for line in INSTALL:
        console.print(Text(f"- {line}"))
