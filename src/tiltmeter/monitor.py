"""The monitor: the loop in a process of its own, one per run directory, which may die and start again at any time."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiltmeter.config import Config
from tiltmeter.errors import AttachError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.people import PeopleSource
from tiltmeter.placing import Placing
from tiltmeter.store import RunDirectory
from tiltmeter.watch import Watch

IDLE_SECONDS = 0.2
RETRY_SECONDS = 2.0
LOOKS = 3  # at a lock that is held, before it is believed

log = logging.getLogger("tiltmeter")


def follow(
    run: RunDirectory,
    config: Config,
    *,
    reward: FunctionSource | None = None,
    parent: int | None = None,
    give_up: Callable[[], bool] = lambda: False,
    on_poll: Callable[[int], None] | None = None,
) -> None:
    """Measure what is stored and what comes, until every rank of the newest attempt has closed.

    `reward`: the user's reward function, for experiments. `parent`: the trainer's process; when it is gone, what is
    stored is measured and the monitor ends. `give_up`: asked when there is nothing to do. A disk that refuses a line is
    met by starting over from what it holds.

    Labels that were asked for are waited for, but beside a trainer not those of people: they may take a day, and a
    job's node must not be kept for them. Whoever follows the run next goes on with the steps that are open.
    """
    patient = parent is None or not isinstance(config.gold, PeopleSource)

    def orphan() -> bool:
        return parent is not None and os.getppid() != parent

    # Beside a trainer, wait for whoever measures now: they may leave before the run ends.
    with only_monitor(run, wait=lambda: parent is not None and not orphan()):
        watch: Watch | None = None
        placing = Placing(run)
        warm = False
        try:
            while True:
                orphaned = orphan()
                attempts = run.attempts()
                ended = bool(attempts) and run.ended(attempts[-1])
                try:
                    watch = watch or Watch(run, config, reward=reward)
                    started = time.monotonic()
                    unplaced = placing.place(over=ended or orphaned)
                    # The end of an attempt is not written down before its last rows have their step.
                    measured = 0 if ended and unplaced else watch.poll()
                except OSError as error:
                    log.warning("the journal cannot be written (%s); trying again", error)
                    if watch is not None:
                        watch.close()
                        watch = None
                    if orphaned:
                        return
                    time.sleep(RETRY_SECONDS)
                    continue
                if on_poll is not None:
                    on_poll(measured)
                if not measured:
                    if (((ended or orphaned) and not unplaced) or give_up()) and not (watch.waiting and patient):
                        return
                    if not warm:
                        # Nothing to do yet: the moment to have kernels compiled, so that the first step is not late.
                        watch.panel.warm()
                        warm = True
                        continue
                    # Listing a long run takes time: never spend more than a twentieth of a core on looking.
                    time.sleep(max(IDLE_SECONDS, 20 * (time.monotonic() - started)))
        finally:
            if watch is not None:
                watch.close()


@contextmanager
def only_monitor(run: RunDirectory, wait: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the run's monitor lock. A second monitor is refused, unless `wait` says to try again."""
    folder, looks = run.path / "cache", LOOKS
    folder.mkdir(exist_ok=True)
    handle = os.open(folder / "monitor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                looks -= 1
                if looks:  # it may have been somebody who only looked, in `at_work`
                    time.sleep(0.02)
                    continue
                if not wait():
                    message = f"{run.path} already has a monitor; `tiltmeter show {run.path}` reads along"
                    raise AttachError(message) from error
                looks = 1
                time.sleep(RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


def at_work(run: RunDirectory) -> bool | None:
    """Whether a monitor holds the run's lock; None where nobody can tell. Of another machine's monitor it knows only
    where the file system shares locks. The lock is asked for and given back at once: a monitor that starts in this very
    moment may have to start again."""
    try:
        handle = os.open(run.path / "cache" / "monitor.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(handle)
