"""P11, F24: damaged bytes are never read as data."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.errors import StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.rank_summary import expand_ranges
from tiltmeter.rundir.store import RunDirectory

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

Bench = Callable[..., dict[str, Any]]


def test_no_flipped_bit_cut_or_blank_is_read_as_data(bench: Bench) -> None:
    flips = size(240, 600)
    figures = bench("bitflips", "--flips", str(flips))
    assert figures["flips"] == flips and min(figures["flips_loose"], figures["flips_packed"]) > flips / 6
    assert figures["cuts"] > flips / 15 and figures["blanks"] > flips / 15
    assert figures["silent"] == figures["other_errors"] == 0
    assert figures["detected"] > flips / 1.5, "the damage hardly ever hit anything"
    assert figures["detected"] + figures["truth"] == figures["flips"] + figures["cuts"] + figures["blanks"]
    assert figures["verify_tried"] == figures["verify_reported"] > 10
    # The positive control: without the checks, the same damage reads as wrong values.
    assert figures["plain_silent"] > 10
    assert figures["journal_detected"] > 0
    assert figures["journal_silent"] == figures["journal_restart_failed"] == 0


@pytest.fixture
def bitflips(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("bitflips")


@pytest.mark.parametrize("what", ("a value", "the metadata", "another error"))
def test_a_reader_that_returns_something_else_is_caught(
    what: str, bitflips: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = bitflips.make_run(tmp_path / "run", 0, packed=False)
    truths = bitflips.read_all(run)
    assert bitflips.outcome(run.path, truths, set(truths)) == "truth"
    real = RunDirectory.read

    def careless(run: RunDirectory, file: Any, columns: Any = None) -> Any:
        batch, facts, digest = real(run, file, columns)
        if what == "another error":
            raise KeyError("by design")
        if what == "a value" and len(batch) and batch.reward is not None:
            return replace(batch, reward=np.nextafter(batch.reward, np.inf)), facts, digest
        return batch, {**facts, "counters": {}} if what == "the metadata" else facts, digest

    monkeypatch.setattr(RunDirectory, "read", careless)
    said = bitflips.outcome(run.path, truths, set(truths))
    assert said.split(" ")[0] == ("other_errors" if what == "another error" else "silent")


def test_a_step_that_vanishes_from_the_listing_is_caught(bitflips: Any, tmp_path: Path) -> None:
    run = bitflips.make_run(tmp_path / "run", 0, packed=False)
    truths = bitflips.read_all(run)
    run.files(0)[0].path.unlink()
    assert bitflips.outcome(run.path, truths, set(truths)).startswith("silent")


def test_every_bit_of_the_footer_and_the_seal_is_covered(bitflips: Any, tmp_path: Path) -> None:
    """All bits of the last bytes of a file without rows, where a short seal has few bits to disagree."""
    run = bitflips.make_run(tmp_path / "run", 0, packed=False)
    file = next(file for file in run.files(0) if file.step == 5)
    content = file.path.read_bytes()
    batch, facts, _ = run.read(file)
    truth = (bitflips.plain(batch), facts)
    for at in range(len(content) - 300, len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            file.path.write_bytes(changed)
            try:
                batch, facts, _ = run.read(file)
            except StoreError:
                continue
            assert (bitflips.plain(batch), facts) == truth, f"byte {at}, bit {bit}"


def test_a_damaged_file_is_set_aside_with_a_fault_and_the_run_goes_on(bitflips: Any, tmp_path: Path) -> None:
    run = bitflips.make_run(tmp_path / "run", 0, packed=False)
    victim = run.files(0)[2].path
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 16
    victim.write_bytes(content)
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    events = read_events(run.path / "events")
    done = {e.step: e.data for e in events if e.kind == "step_done"}
    assert sorted(done) == list(range(7))
    assert list(expand_ranges(done[2]["unreadable"])) == [0] and done[2]["rows"] == 0
    assert [e.step for e in events if e.kind == "fault" and e.data["part"] == "file"] == [2]
    assert [problem for problem in verify(run) if victim.name in problem]


def test_verify_names_a_damaged_packed_file_and_still_checks_the_others(bitflips: Any, tmp_path: Path) -> None:
    run = bitflips.make_run(tmp_path / "run", 0, packed=True)
    (packed,) = {file.path for file in run.files(0)}
    assert verify(run) == []
    content = packed.read_bytes()
    packed.write_bytes(content[:-9] + b"\xff" + content[-8:])
    fresh = RunDirectory(run.path)
    assert any(packed.name in problem for problem in verify(fresh))
    with pytest.raises(StoreError):
        fresh.files(0)
    noted: list[str] = []
    assert fresh.files(0, noted) == [] and len(noted) == 1
