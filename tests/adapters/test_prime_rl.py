"""prime-rl's monitor: episodes that verifiers 0.4.0 serialised, handed over as prime-rl's orchestrator does it.

prime-rl is on no package index. `Monitor`, `setup` and the order of calls are those of its source of autumn 2026
(`monitors/base.py`, `monitors/__init__.py`, `orchestrator.py`). Where verifiers is installed, the episodes are its own.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters import prime_rl
from tiltmeter.adapters.arguments import Act
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.data.turns import decode_turns
from tiltmeter.errors import AttachError
from tiltmeter.rundir.evaluations import Evaluation, read_evaluations
from tiltmeter.rundir.receipts import read_receipts
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory

FIXTURES = Path(__file__).parents[1] / "audit" / "readers" / "trajectories" / "fixtures" / "verifiers-0.4"
RECORDS = [json.loads(line) for line in (FIXTURES / "traces.jsonl").read_text().splitlines()]
TAMPERING, HONEST, FAILED, LATE = RECORDS

try:
    from verifiers.v1.episode import WireEpisode  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    WireEpisode = None


class RecordedTrace:
    """A trace of one: pydantic's `model_dump` is what verifiers' own class has it from."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id, self.ok, self._record = record["id"], record["ok"], record
        self.nodes = [SimpleNamespace(advantages=node.get("advantages")) for node in record["nodes"]]

    def model_dump(self, mode: str, include: Any) -> dict[str, Any]:
        nodes = [{name: node.get(name) for name in include["nodes"]["__all__"]} for node in self._record["nodes"]]
        return copy.deepcopy({"task": self._record.get("task"), "nodes": nodes})


class RecordedEpisode:
    """An episode where verifiers is not installed: what its own `to_record` gave, and the fields that are looked at."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id, self.ok, self._record = record["id"], record["ok"], record
        self.traces = [RecordedTrace(trace) for trace in record["traces"]]

    def to_record(self, float_decimals: int | None = 4) -> dict[str, Any]:
        return copy.deepcopy(self._record)


def episode(record: dict[str, Any], name: str = "", **changed: Any) -> Any:
    """An episode, its one trace renamed like itself."""
    made = {**copy.deepcopy(record), **changed}
    made["id"] = name = name or made["id"]
    for trace in made["traces"]:
        trace["id"] = name
    return RecordedEpisode(made) if WireEpisode is None else WireEpisode.model_validate(made)


class Monitor(ABC):
    """The base class, with the signatures of prime-rl's."""

    def __init__(self, config: Any) -> None:
        self.config = config

    async def init(self, **kwargs: Any) -> None:
        self.config = None

    async def log(self, data: Any, step: int | None, kind: str = "train", subset: str = "effective") -> None:
        if isinstance(data, dict):
            await self.log_metrics(data, step=step)
        else:
            assert step is not None
            await self.log_episodes(data if isinstance(data, list) else [data], step=step, kind=kind, subset=subset)

    @abstractmethod
    async def log_metrics(self, metrics: dict[str, Any], step: int | None) -> None: ...

    @abstractmethod
    async def log_episodes(self, episodes: list[Any], step: int, kind: str, subset: str) -> None: ...

    async def log_annotations(self, updates: list[dict[str, Any]]) -> None:
        return None

    async def finalize(self) -> None:
        return None


class TrainSink:
    """Where prime-rl asks its filters about a group that is complete, after its advantages: `apply_filters`."""

    def __init__(self, config: Any, *, pre_filters: list[Any], post_filters: list[Any]) -> None:
        self.pre_filters = pre_filters

    def process_group(self, rollouts: list[Any]) -> list[Any]:
        stay = []
        for rollout in rollouts:
            detected = next((one for one in self.pre_filters if one.check(rollout).detected), None)
            if detected is None or not detected.enforce:
                stay.append(rollout)
        return stay


@pytest.fixture
def monitors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """prime-rl's module of that name; its `log` warns where a monitor raises, and here that fails the test."""
    package, module = ModuleType("prime_rl"), ModuleType("prime_rl.monitors")
    package.__path__ = []
    there: Any = module
    there.MONITORS, there.Monitor = [], Monitor

    async def setup(wandb: Any = None, *, output_dir: Path, producer: str | None = None, **kwargs: Any) -> None:
        assert not there.MONITORS

    async def log(data: Any, step: int | None, kind: str = "train", subset: str = "effective") -> None:
        for monitor in there.MONITORS:
            await monitor.log(data, step=step, kind=kind, subset=subset)

    there.setup, there.log = setup, log
    sinks: Any = ModuleType("prime_rl.orchestrator.train_sink")
    sinks.TrainSink = type("TrainSink", (TrainSink,), {"__init__": TrainSink.__init__})
    there.TrainSink = sinks.TrainSink
    for one in (package, module, ModuleType("prime_rl.orchestrator"), sinks):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    if WireEpisode is None:
        for name in ("verifiers", "verifiers.v1"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["verifiers.v1"].Episode = RecordedEpisode  # type: ignore[attr-defined]
    yield there
    for monitor in there.MONITORS:
        if isinstance(monitor, prime_rl.PrimeRLMonitor):
            monitor.close()


def orchestrate(monitors: Any, folder: Path, *calls: tuple[Any, ...], **settings: Any) -> RunDirectory:
    """Call the monitors as the orchestrator does, from set-up to end."""

    async def run() -> None:
        prime_rl.install(folder, monitor=False, **settings)
        await monitors.setup(output_dir=folder, producer="orch", run_config=SimpleNamespace(max_off_policy_steps=2))
        for call in calls:
            await monitors.log(*call)
        for monitor in monitors.MONITORS:
            await monitor.log_annotations([])
            await monitor.finalize()

    asyncio.run(run())
    return RunDirectory(folder)


def stored(run: RunDirectory) -> dict[int, RolloutBatch]:
    return {file.step: run.read(file)[0] for file in run.files(0)}


def test_a_step_has_what_is_trained_on_and_what_failed(monitors: Any, tmp_path: Path) -> None:
    arrived = [episode(one) for one in (TAMPERING, HONEST, FAILED, LATE)]
    never_began = episode(
        FAILED, "boot", traces=[], ok=False, errors=[{"type": "SandboxError", "message": "no such image"}]
    )
    run = orchestrate(
        monitors,
        tmp_path / "run",
        *(([one], 7, "train", "all") for one in [*arrived, never_began]),
        (arrived[:2], 7, "train", "effective"),
        ({"inference/agg": 1.0}, None),
        ({"time/step": 3.0, "off_policy/max": 1.0, "train/agg/all/solver/reward/mean": 0.5}, 7),
    )
    assert run.ended(0)
    (batch,) = stored(run).values()
    assert batch.step == 7 and len(batch) == 5 - (LATE["ok"] is True)
    assert batch.scalars["step_seconds"] == 3.0 and batch.scalars["off_policy/max"] == 1.0
    assert batch.trained is not None and batch.trained.sum() == 2
    assert batch.stop is not None and batch.turns is not None and batch.advantage is not None
    assert batch.env is not None and set(batch.env) == {"mend"} and batch.version_low is not None
    tampering = batch.turns.index(next(text for text in batch.turns if text and "rm -r tests" in text))
    turns = decode_turns(batch.turns[tampering])
    assert any(turn.call == "bash" and "rm -r tests" in str(turn.arguments) for turn in turns)
    assert batch.own is not None and batch.engine_logprob is not None and batch.tokens is not None
    assert batch.reward is not None and batch.reward[tampering] == 1.0 and np.isfinite(batch.advantage[tampering])
    assert (batch.version_low[tampering], batch.stop[tampering]) == (6.0, "done")
    infra = [FLAGS[code] == "infra" for code in batch.flags["reward"]]
    assert [stop == "sandbox" for stop in batch.stop] == infra and sum(infra) == 2
    assert np.isnan(batch.reward[infra]).all()


def test_a_rollout_is_stored_once_with_the_step_that_trains_on_it_or_as_dropped(monitors: Any, tmp_path: Path) -> None:
    early, slow, unused = (episode(HONEST, name) for name in ("early", "slow", "unused"))
    others = [episode(HONEST, f"other{step}") for step in range(1, 6)]
    calls: list[tuple[Any, ...]] = [([one], 1, "train", "all") for one in (early, slow, unused)]
    for step, other in enumerate(others, 1):
        calls.append(([other], step, "train", "all"))
        calls.append(([other, *([early] if step == 1 else [slow] if step == 3 else [])], step, "train", "effective"))
        if step != 2:  # whose metrics never come
            calls.append(({"time/step": 1.0}, step))
    rows = stored(orchestrate(monitors, tmp_path / "run", *calls))
    assert {step: len(batch) for step, batch in rows.items()} == {1: 2, 2: 1, 3: 2, 4: 2, 5: 1}
    trained = {step: batch.trained.tolist() for step, batch in rows.items() if batch.trained is not None}
    assert trained[3] == [True, True] and trained[4] == [True, False]  # `unused` has waited longer than it may
    assert "step_seconds" not in rows[2].scalars and rows[5].scalars["step_seconds"] == 1.0


def test_evaluations_are_those_of_their_environments(monitors: Any, tmp_path: Path) -> None:
    done = [episode(one) for one in (TAMPERING, HONEST)]
    run = orchestrate(
        monitors, tmp_path / "run", *(([one], 4, "eval", "all") for one in done), (done, 4, "eval", "effective")
    )
    assert read_evaluations(run, ()) == {0: [Evaluation(0, 4, "eval_mend", 0.5, 1)]}
    assert not run.files(0)


def test_numbers_are_not_rounded_and_nothing_waits(monitors: Any, tmp_path: Path) -> None:
    record = copy.deepcopy(HONEST)
    node = next(node for node in record["traces"][0]["nodes"] if node.get("sampled"))
    node["logprobs"][0] = -0.123456789
    slow = episode(record, "slow")
    if WireEpisode is None:
        whole = slow.to_record

        def sleepy(float_decimals: int | None) -> Any:
            time.sleep(0.5)
            return whole(float_decimals)

        slow.to_record = sleepy
    took = []

    async def run() -> None:
        prime_rl.install(tmp_path / "run", monitor=False)
        await monitors.setup(output_dir=tmp_path)
        begin = time.perf_counter()
        await monitors.log([slow], 1, "train", "all")
        await monitors.log([slow], 1, "train", "effective")
        await monitors.log({"time/step": 1.0}, 1)
        took.append(time.perf_counter() - begin)
        await monitors.MONITORS[0].finalize()

    asyncio.run(run())
    assert took[0] < 0.3
    (batch,) = stored(RunDirectory(tmp_path / "run")).values()
    assert batch.engine_logprob is not None and batch.engine_logprob.values[0] == np.float32(-0.123456789)


def test_whatever_it_is_given_nothing_is_raised_and_it_is_told(
    monitors: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        id, ok, traces, errors = "odd", True, (), ()

        def to_record(self, float_decimals: int | None) -> Any:
            raise ValueError("no record")

    good = episode(HONEST)
    run = orchestrate(
        monitors,
        tmp_path / "run",
        (["no episode"], 1, "train", "all"),
        ([good, Odd()], 1, "train", "effective"),
        ({"time/step": object()}, 1),
        ([Odd()], 1, "eval", "effective"),
        ([good], 1, "grade", "all"),
    )
    (batch,) = stored(run).values()
    assert len(batch) == 1
    assert list(run.path.rglob("*trouble*.json"))
    assert "1 rollouts of step 1 were not read: ValueError: no record" in caplog.text


def test_only_the_orchestrator_of_a_known_prime_rl_is_watched(
    monitors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    prime_rl.install(tmp_path / "run")
    monkeypatch.delenv("TILTMETER_DISABLED")
    asyncio.run(monitors.setup(output_dir=tmp_path))
    assert not monitors.MONITORS
    prime_rl.install(tmp_path / "run", monitor=False)
    asyncio.run(monitors.setup(output_dir=tmp_path, producer="trainer"))
    assert not monitors.MONITORS and not (tmp_path / "run").exists()
    with pytest.raises(AttachError, match="already"):
        prime_rl.install(tmp_path / "other")
    monitors.setup = lambda: None
    with pytest.raises(AttachError, match="not one known here"):
        prime_rl.install(tmp_path / "other")
    monkeypatch.setitem(sys.modules, "prime_rl.monitors", None)
    with pytest.raises(AttachError, match="install them"):
        prime_rl.install(tmp_path / "other")


def test_installed_late_it_watches_from_then_on_and_a_mistake_is_raised(monitors: Any, tmp_path: Path) -> None:
    class Files(Monitor):
        async def log_metrics(self, metrics: dict[str, Any], step: int | None) -> None: ...

        async def log_episodes(self, episodes: list[Any], step: int, kind: str, subset: str) -> None: ...

    monitors.MONITORS.append(Files(None))
    with pytest.raises(AttachError, match="there is no file"):
        prime_rl.install(tmp_path / "run", gold="nobody.py:solved")
    prime_rl.install(tmp_path / "run", monitor=False)
    assert len(monitors.MONITORS) == 2


def paid(record: dict[str, Any], name: str, advantage: float | None) -> Any:
    """An episode of which every token that the policy wrote has this advantage."""
    changed = copy.deepcopy(record)
    for node in changed["traces"][0]["nodes"]:
        if node.get("sampled"):
            node["advantages"] = None if advantage is None else [advantage] * sum(map(bool, node["mask"]))
    return episode(changed, name)


def screened_run(
    monitors: Any, folder: Path, groups: list[list[Any]], steps: int = 1, **settings: Any
) -> tuple[RunDirectory, list[list[str]], Any]:
    """Groups of episodes through prime-rl's filters, then a step with those that stay."""
    stay: list[list[str]] = []

    async def run() -> None:
        prime_rl.install(folder, monitor=False, **settings)
        await monitors.setup(output_dir=folder, producer="orch")
        sink = monitors.TrainSink(None, pre_filters=[], post_filters=[])
        for step in range(1, steps + 1):
            effective = []
            for group in groups:
                await monitors.log(group, step, "train", "all")
                left = {trace.id for trace in sink.process_group([one.traces[0] for one in group])}
                stay.append(sorted(left))
                effective += [one for one in group if one.id in left]
            await monitors.log(effective, step, "train", "effective")
            await monitors.log({"time/step": 1.0}, step)
        await monitors.MONITORS[0].finalize()

    setup, original = monitors.setup, monitors.TrainSink.__init__
    asyncio.run(run())
    assert monitors.TrainSink.__init__ is original
    monitors.setup, monitor = setup, monitors.MONITORS.pop()
    return RunDirectory(folder), stay, monitor


def test_a_flagged_rollout_that_would_gain_leaves_by_prime_rls_own_filter(monitors: Any, tmp_path: Path) -> None:
    group = [
        paid(TAMPERING, "hack", 0.5),
        paid(TAMPERING, "poor", -0.5),
        paid(HONEST, "fair", 0.4),
        paid(HONEST, "weak", -0.4),
    ]
    run, stay, monitor = screened_run(monitors, tmp_path / "run", [group], act=Act(screen="acts"))
    assert stay == [["fair", "poor", "weak"]]
    (batch,) = stored(run).values()
    assert batch.trained is not None and batch.advantage is not None and len(batch) == 4
    assert batch.advantage[~batch.trained].tolist() == [0.5]
    assert batch.scalars["screen.lost"] == 1.0 and batch.scalars["step_seconds"] == 1.0
    assert monitor.screen.value == 1.0 and not run.troubles(0)


def test_a_screen_that_is_off_looks_at_nothing(monitors: Any, tmp_path: Path) -> None:
    group = [paid(TAMPERING, "hack", 0.5), paid(HONEST, "fair", -0.5)]
    run, stay, monitor = screened_run(monitors, tmp_path / "run", [group], act=Act("advise", screen="acts"))
    assert stay == [["fair", "hack"]] and not monitor.screen.enforce
    (batch,) = stored(run).values()
    assert batch.trained is not None and batch.trained.all() and "screen.lost" not in batch.scalars


def test_a_function_of_your_own_screens_and_one_that_fails_leaves_nothing_out(monitors: Any, tmp_path: Path) -> None:
    checks = tmp_path / "checks.py"
    checks.write_text(
        "def flagged(prompts, completions):\n    assert 'Mend' in prompts[0]\n"
        "    return ['rm -r tests' in text for text in completions]\n"
        "def broken(prompts, completions):\n    return [True, True]\n"
    )
    group = [paid(TAMPERING, "hack", 0.5), paid(HONEST, "fair", 0.4)]
    _, stay, _ = screened_run(monitors, tmp_path / "run", [group], act=Act(screen=f"{checks}:flagged"))
    assert stay == [["fair"]]
    run, stay, _ = screened_run(monitors, tmp_path / "bad", [group], act=Act(screen=f"{checks}:broken"))
    assert stay == [["fair", "hack"]]
    assert any("answered 2 values for 1 rollout" in why for why in run.troubles(0).values())
    early = [paid(TAMPERING, "hack", None)]
    run, stay, _ = screened_run(monitors, tmp_path / "early", [early], act=Act(screen="acts"))
    assert stay == [["hack"]] and any("no advantage yet" in why for why in run.troubles(0).values())


def test_a_screen_that_takes_too_much_ends_itself_with_a_receipt(monitors: Any, tmp_path: Path) -> None:
    group = [paid(TAMPERING, f"hack{row}", 0.5) for row in range(8)]
    run, stay, monitor = screened_run(monitors, tmp_path / "run", [group] * 3, 2, act=Act(screen="acts"))
    assert [len(names) for names in stay] == [0, 0, 0, 1, 8, 8]  # at the 32nd rollout
    assert monitor.screen.value == 0.0 and "100 %" in monitor.screen.why
    receipts, _ = read_receipts(run, set(), read_token(run))
    assert [(one.knob, one.after, one.id.endswith(".ended")) for one in receipts] == [("screen", 0.0, True)]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"act": {"screen": "acts", "mode": "observe"}}, "mode=advise or act"),
        ({"act": {"screen": "checks.py:solved"}, "gold": "checks.py:solved"}, "is gold"),
        ({"act": {"screen": "acts", "most_lost": 1.0}}, "most_lost"),
        ({"act": {"screen": "nobody.py:flagged"}}, "nobody"),
    ],
)
def test_a_screen_that_cannot_be_is_refused_when_the_run_opens(
    monitors: Any, tmp_path: Path, settings: dict[str, Any], why: str
) -> None:
    original = monitors.TrainSink.__init__
    with pytest.raises((AttachError, OSError), match=why):
        screened_run(monitors, tmp_path / "run", [], **settings)
    assert monitors.TrainSink.__init__ is original and not monitors.MONITORS
    sys.modules["prime_rl.orchestrator.train_sink"].TrainSink = object  # type: ignore[attr-defined]
    with pytest.raises(AttachError, match="filters of rollouts"):
        prime_rl.PrimeRLMonitor(tmp_path / "run", act=Act(screen="acts"))
    assert not (tmp_path / "run").exists()


def test_filters_that_were_made_before_are_told(monitors: Any, tmp_path: Path) -> None:
    fair = paid(HONEST, "fair", 0.4)
    calls = (([fair], 1, "train", "all"), ([fair], 1, "train", "effective"), ({"time/step": 1.0}, 1))
    run = orchestrate(monitors, tmp_path / "run", *calls, act=Act(screen="acts"))
    assert any("looks at nothing" in why for why in run.troubles(0).values())
