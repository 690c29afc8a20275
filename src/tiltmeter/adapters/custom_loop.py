"""The API for your own training loop: `open_run`, then `observe` once per optimiser step.

Opening raises: a directory that cannot be written, ranks that cannot find each other, a plug-in that does not load
raise `AttachError` with the fix. Then it is silent: `observe` never raises, never waits for a disk and never prints.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import pyarrow as pa

from tiltmeter import adapters
from tiltmeter.adapters.arguments import (
    Gold,
    Launch,
    Options,
    Source,
    read_gold,
    read_launch,
    read_options,
)
from tiltmeter.adapters.gold_file import absolute_name, regrade_of, write_gold
from tiltmeter.adapters.launch import MOVED_TO, int_from_environment, launch_id, run_path
from tiltmeter.adapters.monitor_process import MonitorProcess
from tiltmeter.adapters.reward_guards import add_canary_counts, record_guards
from tiltmeter.adapters.settings import capture_settings
from tiltmeter.adapters.settings_file import with_settings
from tiltmeter.adapters.tokenizer_pieces import tokenizer_pieces
from tiltmeter.adapters.trainer_lock import TrainerLock, claim_directory, join_directory, released_if_it_fails
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.reward_fingerprint import fingerprint as fingerprint_of
from tiltmeter.data.slices import environments_of, slice_name
from tiltmeter.errors import AttachError, Boundary, describe_error, finish_first, warn_user
from tiltmeter.gold.regrade.keep import WorkspaceKeeper, drop_keeper, use_keeper
from tiltmeter.gold.regrade.settings import Regrade
from tiltmeter.gold.regrade.source import RegradeSource, write_settings
from tiltmeter.gold.try_gold import try_gold
from tiltmeter.monitor.parts import REWARD_AS_GOLD, Config, names_people, reject_reward_as_gold
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.checkpoints.sampling import count_declared, is_sampling
from tiltmeter.rundir.column_copies import LostColumns, column_boundary, copy_columns
from tiltmeter.rundir.columns import PRECISIONS
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.pinned_prompts import EVALUATION, make_snapshot, write_snapshot
from tiltmeter.rundir.reading_room.pieces import write_pieces
from tiltmeter.rundir.remote.address import parse_address
from tiltmeter.rundir.run_path import run_path as trusted_path
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.rundir.writer import StepWriter, call_if_alive
from tiltmeter.safety.function_file import FunctionFile, write_function
from tiltmeter.safety.loading import load_function
from tiltmeter.safety.secret_scan import replace_secrets
from tiltmeter.verdict.verdict import RunWatcher, Verdict

log = logging.getLogger("tiltmeter")
log.addHandler(logging.NullHandler())


def open_run(
    directory: str | os.PathLike[str],
    *,
    gold: Gold | Source = None,
    slices: str | None = None,
    rewards: Sequence[Callable[..., Any]] | Mapping[Callable[..., Any], float] = (),
    reference: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    resume_step: int | None = None,
    launch: Launch | None = None,
    monitor: bool = True,
    options: Options | None = None,
) -> Run:
    """Start (or resume) a run in `directory`, and its monitor in a process of its own.

    Args:
        directory: A path, or an address on object storage, as `s3://bucket/runs/tonight` (also gs, az, file): the run
            is then written on this machine and mirrored there by the monitor.
        gold: Who says what an answer is worth: a function, `checks.py:score`, `judge.toml`, `people`, `tests`,
            `answers`, `auto`, a `Regrade`, `reward:NAME`; or a `Gold`, which also says how often.
            Training never sees an answer.
        slices: A key of `facts` by whose values the run is judged too, each by itself, as `language`.
        rewards: The reward functions, so that a change of them is noticed; with their weights as
            `{correct: 1.0, brief: 0.2}`.
        reference: Rollouts of the reference policy, as columns of `observe`, which every step is compared with.
            Default: the run's own first steps.
        settings: Of your trainer, as `{"learning_rate": 1e-6}`, by which runs are told apart, grouped and compared on
            the page; the commit of your code is added.
        resume_step: The first step this process runs, when it continues from a checkpoint. Default: the first observed.
        launch: Which of several writing processes this is, where torchrun's environment doesn't say it.
        monitor: Whether to start the monitor.
        options: Plug-ins, how log-probabilities are stored, whether to wait for storage, and more.

    `gold`, `slices` and `options` may stand in `tiltmeter.toml`, or under `[tool.tiltmeter]` in `pyproject.toml`.

    `TILTMETER_DISABLED=1` makes this and everything after it do nothing; `TILTMETER_DIR` moves the run elsewhere.

    >>> import tempfile
    >>> with open_run(f"{tempfile.mkdtemp()}/run", monitor=False) as run:
    ...     run.observe(step=0, group=[0, 0], reward=[1.0, 0.0], completion=["yes", "no"])
    >>> run.counters["seen"], run.counters["dropped"]
    (1, 0)
    """
    if os.environ.get("TILTMETER_DISABLED", "") not in ("", "0"):
        return Run(None)
    address = None if os.environ.get(MOVED_TO) else parse_address(directory)
    place: Path | str = run_path(directory) if address is None else address
    arguments, file = with_settings({"gold": gold, "slices": slices, "options": options}, {})
    slices = arguments["slices"]
    labels, start, more = read_gold(arguments["gold"]), read_launch(launch), read_options(arguments["options"])
    if file is not None:
        log.info("settings are taken from %s", file)
    if more.logprobs not in PRECISIONS:
        raise AttachError(f"logprobs={more.logprobs!r} is not one of {', '.join(PRECISIONS)}")
    if start.groups not in ("rank", "shared") or more.on_full not in ("thin", "wait"):
        raise AttachError('groups is "rank" or "shared"; on_full is "thin" or "wait"')
    source_name = labels.source if isinstance(labels.source, str) else ""
    reward_as_gold = source_name.removeprefix(REWARD_AS_GOLD) if source_name.startswith(REWARD_AS_GOLD) else ""
    rank = int_from_environment("RANK", 0) if start.rank is None else start.rank
    ranks = int_from_environment("WORLD_SIZE", 1) if start.ranks is None else start.ranks
    if not 0 <= rank < ranks:
        raise AttachError(f"rank {rank} of {ranks}: ranks count from 0")
    passed = None if reward_as_gold else write_function(labels.source) if callable(labels.source) else labels.source
    regrade = regrade_of(passed)
    gold_name = passed if isinstance(passed, str) else None
    with TemporaryDirectory(prefix="tiltmeter-") if isinstance(passed, FunctionFile) else nullcontext("") as folder:
        # Nothing is written into the run directory before everything that was asked for is known to work.
        checked = write_gold(trusted_path(folder), passed) if isinstance(passed, FunctionFile) else passed
        checked = None if isinstance(checked, Regrade) else checked
        source = _check_parts(more.plugins, checked, labels, rewards)
        if regrade is not None and rank == 0:
            RegradeSource(regrade).start()
        if rank == 0 and (lines := try_gold(source, labels.rows)):
            warn_user("\n".join(lines), 0)
    if more.experiment is not None:
        load_function(more.experiment)
    reference_batch = _reference_batch(reference)
    name = replace_secrets(start.name or launch_id(ranks))  # it is stored
    lock: TrainerLock | None = None
    if rank == 0:
        run, lock = claim_directory(place)
    else:
        run, attempt = join_directory(place, name, rank)
    with released_if_it_fails(lock):
        if rank == 0:
            attempt = _open_attempt(run, launch=name, ranks=ranks, resume_step=resume_step, settings=settings)
        weights = list(rewards.values()) if isinstance(rewards, Mapping) else None
        fingerprint = fingerprint_of(list(rewards), weights) if rewards else ""
        if rank == 0 and reference_batch is not None:
            # Before the monitor starts: it must never see a step without it. A resumed run keeps the one it began with.
            run.write_reference(replace(reference_batch, fingerprint=reference_batch.fingerprint or fingerprint))
        if rank == 0:
            record_guards(run, attempt, list(rewards))
            if more.tokenizer is not None:
                with Boundary(lambda error: log.warning("tokens cannot be coloured: %s", describe_error(error))):
                    write_pieces(run, attempt, tokenizer_pieces(more.tokenizer))
        if rank == 0 and isinstance(passed, FunctionFile):
            gold_name = write_gold(run.path, passed)
        if rank == 0 and regrade is not None:
            gold_name = write_settings(run.path, regrade)
        command = [sys.executable, "-m", "tiltmeter.monitor", str(run.path), "--attached", str(os.getpid())]
        for plugin in more.plugins:
            command += ["--plugin", absolute_name(plugin)]
        if gold_name is not None:
            command += ["--gold", absolute_name(gold_name)]
            command += ["--gold-share", repr(float(labels.share))] if labels.share is not None else []
            command += ["--gold-steps", str(int(labels.steps))] if labels.steps is not None else []
        command += ["--experiment", absolute_name(more.experiment)] if more.experiment is not None else []
        process = MonitorProcess(command, run.path / "monitor.log") if monitor and rank == 0 else None
        import_lazy_parts()
        writer = StepWriter(
            run,
            attempt,
            rank,
            {"groups": start.groups},
            precision=more.logprobs,
            wait=more.on_full == "wait",
            after_write=process.keep_alive if process else None,
        )
        return Run(
            run,
            attempt=attempt,
            rank=rank,
            writer=writer,
            fingerprint=fingerprint,
            monitor=process,
            strict=more.strict,
            rewards=tuple(rewards),
            slices=slices,
            reward_as_gold=reward_as_gold,
            gold=gold_name or "",
            lock=lock,
            regrade=regrade,
        )


def _open_attempt(
    run: RunDirectory, *, launch: str, ranks: int, resume_step: int | None, settings: Mapping[str, Any] | None
) -> int:
    try:
        for earlier in run.attempts():
            sweep(run.path / "rollouts" / str(earlier))
        attempt = run.open_attempt(
            launch=launch, ranks=ranks, resume_step=resume_step, settings=capture_settings(settings)
        )
        run.claim(attempt, 0)
    except OSError as error:
        raise AttachError(f"cannot open an attempt in {run.path}: {error}; free space or name another place") from error
    return attempt


class Run:
    """An open run. Close it, or use it as a context manager; an exit of the interpreter closes it too.

    Example:

        with tiltmeter.open_run("runs/tonight") as run:
            for step, batch in enumerate(training_steps()):
                run.observe(step=step, group=batch.prompt_id, reward=batch.reward, completion=batch.text)
                run.evaluate(step, value=0.62, n=500)  # of held-out items, if there are any
        print(run.verdict().sentence)
    """

    def __init__(
        self,
        run: RunDirectory | None,
        *,
        attempt: int = 0,
        rank: int = 0,
        writer: StepWriter | None = None,
        fingerprint: str = "",
        monitor: MonitorProcess | None = None,
        strict: bool = False,
        rewards: Sequence[Callable[..., Any]] = (),
        slices: str | None = None,
        reward_as_gold: str = "",
        gold: str = "",
        lock: TrainerLock | None = None,
        regrade: Regrade | None = None,
    ) -> None:
        self.attempt, self.rank, self.strict, self._slices = attempt, rank, strict, slices
        self._reward_as_gold = reward_as_gold
        self.gold = gold  # the name of the source, which for a function that was passed is that of its file
        self._rewards = tuple(rewards)
        self._run, self._writer, self._fingerprint, self._monitor = run, writer, fingerprint, monitor
        self._open, self._ended = writer is not None, False
        self._lock = lock
        self._pid = os.getpid()
        self._observing: set[int] = set()  # threads that are inside `observe`
        if writer is not None:  # once, because making one takes longer than passing it
            self._boundary = Boundary(writer.refuse, tally=writer, strict=strict)
        self.workspaces = None if run is None else WorkspaceKeeper(run.path, regrade)
        if self.workspaces is not None:
            use_keeper(self.workspaces)
            atexit.register(call_if_alive(self.close))

    @property
    def directory(self) -> Path | None:
        """Where the run is kept; None when disabled."""
        return None if self._run is None else self._run.path

    @property
    def store(self) -> RunDirectory | None:
        """The run directory; None when disabled."""
        return self._run

    @property
    def closed(self) -> bool:
        return not self._open

    @property
    def counters(self) -> dict[str, int]:
        """Batches seen, written, thinned and dropped so far by this rank."""
        return {} if self._writer is None else dict(self._writer.counters)

    def observe(self, batch: RolloutBatch | None = None, /, *, give: bool = False, **columns: Any) -> None:
        """Hand over one optimiser step: a `RolloutBatch`, or columns by name (`step`, `group`, `reward`, ...).

        Once per step and rank: a second batch under the same step is kept but not measured, and the run says so.
        Numeric columns are copied, because trainers reuse buffers; with `give=True` they are taken as they are and the
        caller must not write to them again.
        """
        writer = self._writer
        if writer is None:
            return
        writer.offered += 1  # no call was made yet, so no signal handler has run
        with self._boundary:
            # A forked child (a data loader's worker) inherits this object but not the thread: it must not write.
            if not self._open or os.getpid() != self._pid:
                return
            thread = threading.get_ident()
            if thread in self._observing and self._is_observed_within():
                raise RuntimeError("observe() was called by a column that it was reading")
            try:
                self._observing.add(thread)
                item: Any = batch
                lost: LostColumns | None = None if self.strict else {}
                if batch is None:
                    item = columns if give else copy_columns(columns, lost)
                    item.setdefault("fingerprint", self._fingerprint)
                    if self._slices is not None:
                        with column_boundary(lost, "env"):
                            item |= environments_of(self._slices, item.get("facts"))
                    if self._reward_as_gold:
                        item.setdefault("gold", (item.get("rewards") or {}).get(self._reward_as_gold))
                    if self.strict:
                        item = from_columns(**item)
                    elif "step" not in item or "group" not in item:
                        raise TypeError("observe() needs step= and group=")
                if self._rewards:
                    with column_boundary(lost, "canaries"):
                        item = add_canary_counts(item, self._rewards, self.rank)
                writer.offer(item, lost)
            finally:
                self._observing.discard(thread)

    def _is_observed_within(self) -> bool:
        """Whether `observe` has called what calls it now, and did not just fail to say that it ended."""
        frame = sys._getframe(2)
        while frame is not None and not (frame.f_code is Run.observe.__code__ and frame.f_locals.get("self") is self):
            frame = frame.f_back  # type: ignore[assignment]
        return frame is not None

    def refuse(self, error: BaseException) -> None:
        """Count a step that was lost because an adapter failed before it could be observed. Never raises."""
        if self._writer is not None and self._open and os.getpid() == self._pid:
            self._writer.offered += 1
            with Boundary(lambda error: None, tally=self._writer):
                self._writer.refuse(error)

    def record_problem(self, why: str) -> None:
        """Log a failure that lost no batch, and record it in the run. Never raises."""
        with Boundary(lambda error: None):  # the same disk, or no memory
            log.warning("%s", why)
            if self._run is not None and os.getpid() == self._pid:
                self._run.report_trouble(self.attempt, self.rank, why)

    def evaluate(self, step: int, value: float, n: int, name: str = "eval", env: str | None = None) -> None:
        """Declare an evaluation: the mean score, from 0 to 1, of `n` held-out items at a step.

        The monitor makes it the reading `eval.NAME`; with `env` it is about that environment alone, whose test is a
        slice's. One small file is written before this returns; like `observe`, it
        raises only if the run was opened with `strict=True`, and says in the run what it could not keep. Of two under
        one name and step the first stands.
        """
        if self._run is None or os.getpid() != self._pid:
            return
        with Boundary(lambda error: self._not_stored("an evaluation at step {} was", step, error), strict=self.strict):
            of_slice = "" if env is None else slice_name(env)
            write_evaluation(self._run, Evaluation(self.attempt, int(step), name, float(value), int(n), of_slice))

    def pinned(
        self,
        step: int,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        rewards: Sequence[Any] | None = None,
        gold: Sequence[Any] | None = None,
    ) -> None:
        """Keep what the policy says to a few held-out prompts at a step, to be shown beside what it said before.

        Pass the same prompts each time, from an evaluation you make anyway: at most 32, the first completion of each.
        They are shown and never measured. Rank 0 writes one small file before this returns, other ranks nothing; like
        `evaluate`, it raises only if the run was opened with `strict=True`. Of two at one step the first stands.
        """
        if self._run is None or self.rank != 0 or os.getpid() != self._pid:
            return
        with Boundary(
            lambda error: self._not_stored("pinned prompts at step {} were", step, error), strict=self.strict
        ):
            write_snapshot(
                self._run, make_snapshot(self.attempt, int(step), EVALUATION, prompts, completions, rewards, gold)
            )

    def _not_stored(self, what: str, step: object, error: BaseException) -> None:
        at = step if type(step) is int else "?"  # whatever else it is may raise when it is shown
        self.record_problem(f"{what.format(at)} not stored: {describe_error(error)}")

    def keep_alive(self) -> None:
        """Start the monitor again if it has died, for an adapter whose rows the writer does not see. Never raises."""
        if self._monitor is not None and self._open and os.getpid() == self._pid:
            with Boundary(lambda error: self.record_problem(f"the monitor was not started: {describe_error(error)}")):
                self._monitor.keep_alive()

    def close(self) -> None:
        """Write what is queued (for at most ten seconds) and the end marker. The monitor finishes by itself.

        Ctrl-C and what a signal handler raises come out of here when that is done; a second one shortens it to two
        seconds, and what is not written by then is counted as lost.
        """
        if self._writer is not None and not self._ended and os.getpid() == self._pid:
            finish_first(lambda interrupts: self._end())

    def _end(self) -> None:
        """Each part of the end once, whichever of them an interrupt came in."""
        assert self._writer is not None
        self._open = False
        self._writer.close()
        if self._monitor is not None:
            self._monitor.release()
        if self._lock is not None:
            self._lock.release()
        if self.workspaces is not None:
            drop_keeper(self.workspaces)
        self._ended = True

    def verdict(self, timeout: float = 60.0) -> Verdict:
        """What the monitor says, once it has measured everything written so far, or after `timeout` seconds. Labels
        that people have still to give are not waited for."""
        if self._run is None:
            raise AttachError("this run is disabled (TILTMETER_DISABLED is set): there is nothing to judge")
        watcher, deadline = RunWatcher(self._run), time.monotonic() + timeout
        while True:
            is_judging = not self._open and is_sampling(self._run)  # beforehand: what it declares must be read
            verdict = watcher.update(impatient=True)
            stored = max((file.step for file in self._run.files(self.attempt)), default=-1)
            slow = watcher.run_facts.gold is not None and names_people(watcher.run_facts.gold["name"])
            complete = (self._open or self.attempt in watcher.run_facts.ended) and (
                slow or not watcher.run_facts.unlabelled
            )
            declared = len(watcher.run_facts.checkpoints.points)
            complete = complete and not is_judging and count_declared(self._run) <= declared
            if (
                complete and watcher.run_facts.last_measured.get(self.attempt, -1) >= stored
            ) or time.monotonic() > deadline:
                return verdict
            time.sleep(0.1)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the verdict, findings, and a few readings as lines. No script."""
        if self._run is None:
            return {"text/plain": "Tiltmeter is disabled (TILTMETER_DISABLED is set)."}
        bundle: dict[str, str] = adapters.open_view().mime_bundle(self._run)
        return bundle

    def report(self, path: str | Path, *, redact: bool = False) -> Path:
        """Write the run as one HTML file that needs no network, and say where."""
        if self._run is None:
            raise AttachError("this run is disabled (TILTMETER_DISABLED is set): there is nothing to report")
        target: Path = adapters.open_view().write_report(self._run, path, redact=redact)
        return target

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def import_lazy_parts() -> None:
    """Make pyarrow import pandas now, if it is installed. Otherwise it does so with the first array, on our thread: a
    trainer that forks in that moment has a child that waits for the import lock for ever, and one that exits loses the
    rows."""
    pa.array([""])


def _check_parts(plugins: Sequence[str], gold: str | None, labels: Gold, rewards: Iterable[Callable[..., Any]]) -> Any:
    """Load plug-ins and gold once, so that errors are raised here and not in the monitor's log. Returns the source."""
    try:
        if plugins or gold is not None:
            config = Config.standard(plugins, gold=gold, gold_share=labels.share, gold_steps=labels.steps)
            _ = config.digest
            reject_reward_as_gold(config.gold, tuple(rewards))
            return config.gold
        return None
    except AttachError:
        raise
    except Exception as error:
        what = "a plug-in" if gold is None else "a plug-in or the gold function"
        raise AttachError(f"{what} cannot be used: {type(error).__name__}: {error}") from error


def _reference_batch(columns: Mapping[str, Any] | None) -> RolloutBatch | None:
    try:
        return None if columns is None else from_columns(**{"step": 0, **columns})
    except (TypeError, ValueError) as error:
        raise AttachError(f"reference= needs the columns of observe(), group= among them: {error}") from error
