"""Watches a prime-rl run from its orchestrator, as one of its monitors: every rollout once, with the step that trains
on it, or by which it is known to be dropped.

prime-rl is on no package index. Written against its source of autumn 2026 (`prime_rl/monitors/base.py` at 907ec9b);
`docs/other-trainers.md` says what was run and what was only read. `install` raises `AttachError` for what cannot work;
afterwards nothing here raises or waits: rollouts are made rows on a thread of our own.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Queue
from typing import Any

from tiltmeter.adapters.arguments import Act, Launch, read_act, read_gold
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.adapters.knobs import KnobControl, LiveKnob, fixed_knob
from tiltmeter.adapters.metric_names import canonical_names, first_metrics
from tiltmeter.adapters.prime_rl_screen import ScreenFilter, place_filter
from tiltmeter.adapters.verifiers import episode_rows, to_record
from tiltmeter.data.rows import as_object
from tiltmeter.data.verifiers_rows import episode_columns, reward_of, traces
from tiltmeter.errors import AttachError, Boundary, describe_error, finish_first
from tiltmeter.rundir.evaluations import score_evaluation, slug
from tiltmeter.rundir.staging.staged_rows import finite_numbers
from tiltmeter.rundir.writer import CLOSING_SECONDS, call_if_alive

STEPS_WAITING = 8  # that a rollout may wait to be trained on: prime-rl's own default for `max_off_policy_steps`
EPISODES_WAITING = 4_096  # that may wait; of more, the oldest count as dropped, and of twice as many they are lost
PROBLEMS = 100  # that are reported, each once
STEPS_QUEUED = 16  # that wait to be made rows; one more is counted as lost
OTHER_PROCESS = "prime-rl has it in the trainer's process, which an orchestrator does not turn: restart with another"
ORCHESTRATOR = "orch"  # what the orchestrator calls itself where monitors are set up


def install(directory: str | os.PathLike[str], **settings: Any) -> None:
    """In the orchestrator's start script, or in any module that it imports: make Tiltmeter one of its monitors.

    Args:
        directory: Where the run is kept.
        settings: What `open_run` takes: `gold`, `options`, ...; and `act`, as for `tiltmeter.attach`, of which the one
            thing that prime-rl lets change is the screen (`acts`, or `checks.py:flagged`).

    The run is opened when prime-rl sets up its monitors, and then raises for what cannot work. In processes that are no
    orchestrator this changes nothing; `TILTMETER_DISABLED=1` does the same.
    """
    if os.environ.get("TILTMETER_DISABLED", "") not in ("", "0"):
        return
    monitors = _import_monitors()
    watched = any(isinstance(monitor, PrimeRLMonitor) for monitor in monitors.MONITORS)
    if watched or hasattr(monitors.setup, "tiltmeter"):
        raise AttachError("this prime-rl is watched already: install() once, with one directory")
    if monitors.MONITORS:  # they have been set up
        monitors.MONITORS.append(_make_monitor(monitors, directory, settings))
        return
    original = monitors.setup

    @functools.wraps(original)
    async def setup(*args: Any, **kwargs: Any) -> None:
        await original(*args, **kwargs)
        rank = os.environ.get("RANK", os.environ.get("DP_RANK", "0"))
        if int(rank) == 0 and kwargs.get("producer") in (None, ORCHESTRATOR):
            monitor = _make_monitor(monitors, directory, settings)
            most = getattr(kwargs.get("run_config"), "max_off_policy_steps", None)
            monitor.steps_waiting = most if isinstance(most, int) else STEPS_WAITING
            monitors.MONITORS.append(monitor)

    setup.tiltmeter = True  # type: ignore[attr-defined]
    monitors.setup = setup


def _import_monitors() -> Any:
    out = "; leave install() out to train without"
    try:
        monitors = importlib.import_module("prime_rl.monitors")
        episode = importlib.import_module("verifiers.v1").Episode
    except ImportError as error:
        raise AttachError(f"prime-rl and verifiers cannot be imported ({error}): install them here{out}") from error
    there = vars(monitors)
    has_list = isinstance(there.get("MONITORS"), list) and inspect.isclass(there.get("Monitor"))
    if not has_list or not inspect.iscoroutinefunction(there.get("setup")):
        raise AttachError(f"this prime-rl has no list of monitors with an asynchronous setup: not one known here{out}")
    if "float_decimals" not in inspect.signature(episode.to_record).parameters:
        raise AttachError(f"this verifiers' Episode.to_record rounds numbers: install verifiers 0.4 or later{out}")
    return monitors


def _make_monitor(monitors: Any, directory: str | os.PathLike[str], settings: Mapping[str, Any]) -> PrimeRLMonitor:
    # Their base class has an empty method for everything else that a monitor may be told, now or in a later version.
    kind = type("TiltmeterMonitor", (PrimeRLMonitor, monitors.Monitor), {})
    monitor: PrimeRLMonitor = kind(directory, **settings)
    return monitor


@dataclass
class WaitingEpisode:
    """An episode that has come back and of which some traces may still be trained on."""

    step: int  # at which it came
    episode: Any  # verifiers' `Episode`
    left: frozenset[str]  # those traces; the empty name stands for an episode that failed before any began

    def failed(self) -> frozenset[str]:
        """Traces that prime-rl will never train on."""
        if not self.episode.ok:
            return self.left
        return self.left & {trace.id for trace in self.episode.traces if not trace.ok}


@dataclass
class Shipped:
    """A step that was sent to the trainer, with what is known to be dropped by then."""

    step: int
    trained: Sequence[Any]  # episodes, without traces that are not trained on
    dropped: Sequence[tuple[Any, frozenset[str]]]  # an episode, and which of its traces
    scalars: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)  # how many rollouts a screen left out, if there is one


class PrimeRLMonitor:
    """The four methods of prime-rl's `Monitor`. Each is called in the orchestrator's event loop, and takes notes there;
    the work is done by a thread."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        act: Act | Mapping[str, Any] | str | None = None,
        **settings: Any,
    ) -> None:
        allowed, gold = read_act(act), read_gold(settings.get("gold"))
        self.screen = None if allowed.screen is None else self._make_screen(allowed, gold.source)
        self._take_out = place_filter(self.screen) if self.screen is not None else _do_nothing
        try:
            self.run = open_run(directory, **{**settings, "launch": Launch(0, 1)})
            self._knob_control = self._control(allowed)
        except BaseException:
            self._take_out()
            raise
        self.steps_waiting = STEPS_WAITING
        self._waiting: dict[str, WaitingEpisode] = {}  # by the episode's id
        self._shipped: Shipped | None = None  # until its metrics come
        self._last = -1  # the newest step that was shipped
        self._problems: set[str] = set()
        self._work: Queue[Callable[[], None] | None] = Queue(STEPS_QUEUED)
        self._thread = threading.Thread(target=self._loop, name="tiltmeter-prime-rl", daemon=True)
        self._thread.start()
        atexit.register(call_if_alive(self.close))  # if it crashes, prime-rl does not finalize

    async def init(self, **kwargs: Any) -> None:
        """Nothing is left to do: the run was opened with this object."""

    async def log_metrics(self, metrics: dict[str, Any], step: int | None) -> None:
        with Boundary(self._count_failure):
            if self._shipped is not None and step == self._shipped.step:
                self._shipped.scalars = scalars(metrics)
                self._hand_over()

    async def log_episodes(self, episodes: Sequence[Any], step: int, kind: str, subset: str) -> None:
        """`all`: episodes as they come. `effective`: those that are trained on at this step, or were evaluated."""
        with Boundary(self._count_failure):
            if kind == "train" and subset == "all":
                self._hold(step, episodes)
            elif kind == "train":
                self._hand_over()  # of a step whose metrics never came
                self._ship(step, episodes)
            elif kind == "eval" and subset == "effective":
                self._work.put_nowait(partial(self._evaluate, step, list(episodes)))

    async def finalize(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Record what is known, for at most some seconds, and close the run."""
        finish_first(lambda interrupts: self._end())

    def _end(self) -> None:
        """The end, which is begun again after an interrupt."""
        with Boundary(self._count_failure):
            if self.run.closed:
                return
            self._hand_over()
            self._shipped = Shipped(self._last + 1, (), self._take_dropped(WaitingEpisode.failed))
            self._hand_over()
            self._work.put(None, timeout=CLOSING_SECONDS)
            self._thread.join(CLOSING_SECONDS)
        self._take_out()
        self.run.close()

    # -- the screen ----------------------------------------------------------------------------------------------------

    def _make_screen(self, act: Act, gold: object) -> ScreenFilter:
        flag = str(act.screen)
        if act.mode == "observe":
            raise AttachError("screen= changes training: set mode=advise or act")
        if flag == gold:
            raise AttachError("screen= is gold: what is screened by gold is trained to look good to it")
        return ScreenFilter(flag, act.most_lost, on=act.mode == "act", failed=self._count_failure)

    def _control(self, act: Act) -> KnobControl | None:
        """The one knob of prime-rl, if it is there; all others are settings of other processes."""
        screen, store = self.screen, self.run.store
        if screen is None or store is None:
            return None
        knob = LiveKnob("screen", lambda: screen.value, screen.set, 0.0, 1.0)
        fixed = [fixed_knob(name, 0.0, OTHER_PROCESS) for name in ("stop", "beta", "rollback")]
        return KnobControl(store, self.run.attempt, [knob, *fixed], act.mode, act.limits)

    def _poll_screen(self, step: int) -> None:
        if self.screen is None or self._knob_control is None:
            return
        if why := self.screen.ended:
            self.screen.ended = ""
            self._knob_control.tell_ended("screen", 1.0, step, why)
            self._report(f"the screen of rollouts has ended itself: {why}")
        if not self.screen.is_placed:
            self._report("the screen of rollouts looks at nothing: prime-rl had made its filters before")
        self._knob_control.poll(step)

    # -- in the event loop -------------------------------------------------------------------------------------------

    def _hold(self, step: int, episodes: Sequence[Any]) -> None:
        for episode in episodes:
            names = frozenset(trace.id for trace in episode.traces)
            self._waiting[episode.id] = WaitingEpisode(step, episode, names or frozenset({""}))
        if len(self._waiting) > 2 * EPISODES_WAITING:  # nothing has been trained on for long
            del self._waiting[next(iter(self._waiting))]
            self._report(f"no step for {2 * EPISODES_WAITING:,} episodes: the oldest are not stored")

    def _ship(self, step: int, episodes: Sequence[Any]) -> None:
        for episode in episodes:
            if waiting := self._waiting.get(episode.id):
                waiting.left -= {trace.id for trace in episode.traces}
        newest = list(self._waiting)[-EPISODES_WAITING:]
        fresh = {name for name in newest if step - self._waiting[name].step <= self.steps_waiting}
        lost = self.screen.take_lost() if self.screen is not None else frozenset()

        def gone(waiting: WaitingEpisode) -> frozenset[str]:
            return waiting.failed() | (waiting.left & lost) if waiting.episode.id in fresh else waiting.left

        self._shipped, self._last = Shipped(step, list(episodes), self._take_dropped(gone)), step
        if self.screen is not None and (lost or self.screen.enforce):
            self._shipped.lost = {"screen.lost": float(len(lost))}

    def _take_dropped(self, choose: Callable[[WaitingEpisode], frozenset[str]]) -> list[tuple[Any, frozenset[str]]]:
        dropped = []
        for waiting in self._waiting.values():
            if gone := choose(waiting):
                dropped.append((waiting.episode, gone))
                waiting.left -= gone
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if waiting.left}
        return dropped

    def _hand_over(self) -> None:
        shipped, self._shipped = self._shipped, None
        if shipped is not None:
            self._work.put_nowait(partial(self._record, shipped))

    def _count_failure(self, error: BaseException) -> None:
        self.run.refuse(error)
        self._report(f"the prime-rl adapter failed and training goes on: {describe_error(error)}")

    def _report(self, why: str) -> None:
        if why not in self._problems and len(self._problems) < PROBLEMS:
            self._problems.add(why)
            self.run.record_problem(why)

    # -- on our thread -----------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            with Boundary(self._count_failure, own_thread=True):
                work()

    def _record(self, shipped: Shipped) -> None:
        errors: list[BaseException] = []  # of rollouts that cannot be read, and are left out
        rows = episode_rows(((episode, None) for episode in shipped.trained), True, errors, own_thread=True)
        rows += episode_rows(shipped.dropped, False, errors, own_thread=True)
        if errors:
            self._report(f"{len(errors)} rollouts of step {shipped.step} were not read: {describe_error(errors[0])}")
        if rows:
            columns = episode_columns(rows)
            self.run.observe(step=shipped.step, scalars=shipped.scalars | shipped.lost, give=True, **columns)
        self._poll_screen(shipped.step)

    def _evaluate(self, step: int, episodes: Sequence[Any]) -> None:
        by_env: dict[str, list[tuple[object, object]]] = {}
        for episode in episodes:
            record = to_record(episode)
            task = as_object(record.get("task"))
            name = as_object(record.get("env")).get("name") or "held out"
            item = task.get("key") or task.get("hash") or record.get("id")
            scores = [(item, reward_of(record, trace)[0]) for trace in traces(record)]
            by_env.setdefault(slug(f"eval {name}"), []).extend(scores)
        for name, scores in by_env.items():
            evaluation, why = score_evaluation(step, name, scores)
            if evaluation is None:
                self._report(f"{name} is no evaluation: {why}")
            else:
                self.run.evaluate(step, evaluation.value, evaluation.n, name)


def _do_nothing() -> None:
    """There is no screen to take out."""


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The orchestrator's metrics of a step, under canonical names where they have one.

    >>> scalars({"time/step": 2.0, "off_policy/max": 3.0, "train/agg/all/reward/mean": 0.5, "step": 7})
    {'step_seconds': 2.0, 'off_policy/max': 3.0, 'reward': 0.5}
    """
    metrics = first_metrics(metrics)
    names = {"time/step": "step_seconds", **canonical_names(metrics)}
    return finite_numbers({names.get(key, key): value for key, value in metrics.items() if key != "step"})
