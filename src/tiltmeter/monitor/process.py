"""The monitor process: runs the loop, one per run directory; it may be killed and restarted at any time."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold.corrected_judge import CorrectedJudge
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.lease import Lease, lease_held
from tiltmeter.monitor.list_entry_writer import ListEntryWriter
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.step_mark import StepMark
from tiltmeter.rundir.checkpoints.sampling import is_sampling
from tiltmeter.rundir.remote.upload_thread import keep_uploaded
from tiltmeter.rundir.run_path import make_folder, open_file
from tiltmeter.rundir.staging.assign_steps import StepAssembler
from tiltmeter.rundir.store import RunDirectory

IDLE_SECONDS = 0.2
RETRY_SECONDS = 2.0
WRITTEN_SECONDS = 900.0  # since the last file, after which a run is one that is stored
LOCK_TRIES = 3  # tries to take the lock before another monitor is assumed

log = logging.getLogger("tiltmeter")


def run_monitor(
    run: RunDirectory,
    config: Config,
    *,
    reward: FunctionSource | None = None,
    parent: int | None = None,
    give_up: Callable[[], bool] = lambda: False,
    on_poll: Callable[[int], None] | None = None,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Measure stored and new steps until every rank of the newest attempt has closed.

    `reward`: the user's reward function, for experiments. `parent`: the trainer's process; when it is gone, what is
    stored is measured and the monitor ends. `give_up`: called when idle; True ends the monitor. `on_progress`: called
    whenever the loop has moved on, by as little as one arrival. If the journal cannot be written, the loop is restarted
    from what is on disk.

    It waits for checkpoints that are being asked, and for requested labels, but beside a trainer not for those of
    people: they may take a day, and the job's node must be released. The next monitor of the run continues with the
    open steps.
    """
    patient = parent is None or not isinstance(config.gold, (PeopleSource, CorrectedJudge))

    def orphan() -> bool:
        return parent is not None and os.getppid() != parent

    def wait() -> bool:
        """Beside a trainer, wait for a monitor that already runs: it may end before training does."""
        on_progress()
        return parent is not None and not orphan()

    with monitor_lock(run, wait) as is_held, keep_uploaded(run, on_progress):
        loop: MonitorLoop | None = None
        mark, list_entry_writer = StepMark(run), ListEntryWriter(run)
        assembler = StepAssembler(run)
        warm = False
        try:
            while True:
                on_progress()
                if not is_held():
                    raise AttachError(f"another monitor has taken over {run.path}")
                orphaned = orphan()
                attempts = run.attempts()
                ended = bool(attempts) and run.ended(attempts[-1])
                sampling = is_sampling(run)  # beforehand: what it declares before it ends must be read
                try:
                    loop = loop or MonitorLoop(
                        run, config, reward=reward, on_progress=on_progress, mark=mark, snapshots=True
                    )
                    if loop.label_queue is not None:
                        over = ended or orphaned
                        loop.label_queue.in_hurry = not over and (parent is not None or _is_written(run, attempts))
                    started = time.monotonic()
                    rows_pending = assembler.assemble(over=ended or orphaned)
                    # The end of an attempt is recorded only after its last rows are assigned to steps.
                    measured = 0 if ended and rows_pending else loop.poll()
                except StoreError:
                    raise  # a link in place of the journal stays one
                except OSError as error:
                    log.warning("the journal cannot be written (%s); trying again", error)
                    if loop is not None:
                        loop.close()
                        loop = None
                    if orphaned:
                        return
                    time.sleep(RETRY_SECONDS)
                    continue
                list_entry_writer.update()
                if on_poll is not None:
                    on_poll(measured)
                if not measured:
                    over = (ended or orphaned) and not rows_pending and not sampling
                    if (over or give_up()) and not (loop.waiting and patient):
                        return
                    if not warm:
                        # Idle: compile kernels now, so that the first step is not delayed.
                        loop.panel.warm_up()
                        warm = True
                        if parent is not None:
                            # Of half a million objects that stay, the collector would not look for garbage among the
                            # others until there are as many as a quarter of them.
                            gc.freeze()
                        continue
                    # Listing a long run takes time: spend at most a twentieth of a core on polling.
                    time.sleep(max(IDLE_SECONDS, 20 * (time.monotonic() - started)))
        except (KeyboardInterrupt, SystemExit):
            mark.take_back()
            raise
        finally:
            mark.close()
            if loop is not None:
                loop.close()
            list_entry_writer.update(over=True)


def _is_written(run: RunDirectory, attempts: list[int]) -> bool:
    """Whether a trainer seems to be at work, and not only a stored run to be measured."""
    if not attempts:
        return True
    return time.time() - (run.path / "rollouts" / str(attempts[-1])).lstat().st_mtime < WRITTEN_SECONDS


@contextmanager
def monitor_lock(run: RunDirectory, wait: Callable[[], bool] = lambda: False) -> Iterator[Callable[[], bool]]:
    """Hold the run's monitor lock. A second monitor is refused, unless `wait` says to try again.

    On a file system without locks a lease in a file takes its place; what is yielded says whether it is still held.
    """
    folder = make_folder(run.path, "cache")
    handle = open_file(folder / "monitor.lock", os.O_RDWR | os.O_CREAT)
    lease = Lease(folder / "monitor.lease")
    locks = True
    tries = LOCK_TRIES
    try:
        while True:
            try:
                if locks:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
            except BlockingIOError:
                pass
            except OSError as error:
                log.warning("no locks on this file system (%s): a lease in cache/monitor.lease instead", error.strerror)
                locks = False
            if not locks and lease.take():
                break
            tries -= 1
            if tries > 0 and locks:  # it may have been held for a moment by `monitor_running`
                time.sleep(0.02)
                continue
            if not wait():
                raise AttachError(f"{run.path} already has a monitor; `tiltmeter show {run.path}` shows its results")
            time.sleep(RETRY_SECONDS)
        yield lambda: not lease.lost
    finally:
        os.close(handle)
        if not locks:
            lease.release()


def monitor_running(run: RunDirectory) -> bool | None:
    """Whether a monitor holds the run's lock; None if unknown. A monitor on another machine is seen only if the file
    system shares locks. The lock is taken and released at once, so a monitor that starts at this moment may have to
    retry."""
    try:
        handle = open_file(run.path / "cache" / "monitor.lock")
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks here
        try:
            return lease_held(run.path / "cache" / "monitor.lease")
        except OSError:
            return None
    else:
        return False
    finally:
        os.close(handle)
