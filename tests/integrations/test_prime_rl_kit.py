"""The kit for prime-rl, which is on no index: its class on the interface of prime-rl's source of autumn 2026."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.adapters.test_prime_rl import HONEST, TAMPERING, Monitor, TrainSink, episode, paid, stored

from tiltmeter.errors import AttachError
from tiltmeter.rundir.store import RunDirectory

KIT = Path(__file__).parents[2] / "integrations" / "prime_rl"


class BaseConfig:
    """A configuration with defaults: the part of prime-rl's pydantic class that is used."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Any:
    base, config = ModuleType("prime_rl.monitors.base"), ModuleType("prime_rl.utils.config")
    base.Monitor, config.BaseConfig = Monitor, BaseConfig  # type: ignore[attr-defined]
    sinks = ModuleType("prime_rl.orchestrator.train_sink")
    sinks.TrainSink = type("TrainSink", (TrainSink,), {"__init__": TrainSink.__init__})  # type: ignore[attr-defined]
    parts = map(ModuleType, ("prime_rl", "prime_rl.monitors", "prime_rl.utils", "prime_rl.orchestrator"))
    for module in (*parts, base, config, sinks):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("tiltmeter_of_prime_rl", KIT / "tiltmeter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_a_configured_monitor_records_a_step(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTMETER_QUIET", "1")

    async def run() -> None:
        monitor = kit.TiltmeterMonitor(kit.TiltmeterMonitorConfig(directory=tmp_path / "run"))
        await monitor.init(output_dir=tmp_path, run_config=SimpleNamespace(max_off_policy_steps=3), producer="orch")
        assert monitor.steps_waiting == 3 and isinstance(monitor, Monitor)
        both = [episode(TAMPERING), episode(HONEST)]
        await monitor.log(both, 7, "train", "all")
        await monitor.log(both, 7, "train", "effective")
        await monitor.log({"time/step": 3.0}, 7)
        await monitor.log_annotations([])
        await monitor.finalize()

    asyncio.run(run())
    (batch,) = stored(RunDirectory(tmp_path / "run")).values()
    assert batch.step == 7 and len(batch) == 2 and batch.scalars["step_seconds"] == 3.0


def test_the_run_is_in_the_output_folder_and_what_cannot_work_is_raised(kit: Any, tmp_path: Path) -> None:
    monitor = kit.TiltmeterMonitor(kit.TiltmeterMonitorConfig(gold="missing.py:solved"))
    with pytest.raises(AttachError, match=r"missing\.py"):
        asyncio.run(monitor.init(output_dir=tmp_path))
    assert not (tmp_path / "tiltmeter").exists()


def test_a_configured_screen_is_the_last_of_prime_rls_filters(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTMETER_QUIET", "1")
    config = kit.TiltmeterMonitorConfig(directory=tmp_path / "run", act={"screen": "acts"})

    async def run() -> None:
        monitor = kit.TiltmeterMonitor(config)
        await monitor.init(output_dir=tmp_path, producer="orch")
        sink = sys.modules["prime_rl.orchestrator.train_sink"].TrainSink(None, pre_filters=[], post_filters=[])
        assert sink.pre_filters == [monitor.screen] and monitor.screen.enforce
        both = [paid(TAMPERING, "hack", 1.0), paid(HONEST, "fair", 1.0)]
        assert [one.id for one in sink.process_group([one.traces[0] for one in both])] == ["fair"]
        await monitor.finalize()

    asyncio.run(run())
