"""Work as Ray tasks, and the live monitor as a Ray actor, on an existing cluster. It never starts a cluster."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tiltmeter.audit.engine.engine import IN_FLIGHT_PER_WORKER, TRIES, Item, Result, Shared, failure_message
from tiltmeter.audit.engine.worker import MeasureSpec
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.rundir.store import RunDirectory

NAMESPACE = "tiltmeter"
log = logging.getLogger("tiltmeter")


def join_cluster() -> Any:
    """Ray, connected: to what this process uses already, else to the cluster that RAY_ADDRESS or the machine names."""
    try:
        import ray
    except ImportError as error:
        raise AttachError(f"--engine ray needs Ray ({error}): pip install 'tiltmeter[ray]'") from error
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS", "auto")
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise AttachError(
                f"no Ray cluster at {address!r} ({str(error)[:100]}): run `ray start --head`, or set RAY_ADDRESS "
                "(RAY_ADDRESS=local starts one for this command); on one machine --engine processes needs none"
            ) from error
    return ray


class RayEngine:
    """Ray tasks, two for each core in flight, so that neither the driver's memory nor the object store grows.

    A task whose worker or node dies is run again by Ray. Tasks are spread over nodes, because they read files and the
    disks are what runs out first; what they share is put into the object store once and fetched once by each node.
    """

    name = "ray"

    def __init__(self, workers: int | None = None) -> None:
        self._ray = join_cluster()
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def map(self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=TRIES, scheduling_strategy="SPREAD")(_work)
        shared_ref, source = ray.put(shared), iter(items)
        tasks: deque[tuple[Item, Any]] = deque()
        try:
            while True:
                fresh = islice(source, IN_FLIGHT_PER_WORKER * self.workers - len(tasks))
                tasks.extend((item, task.remote(work, shared_ref, item)) for item in fresh)
                if not tasks:
                    return
                try:
                    result = ray.get(tasks[0][1])
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, Exception) else error from None
                except ray.exceptions.RayError as error:  # a worker, its node or its memory
                    raise StoreError(f"{failure_message(tasks[0][0])} ({type(error).__name__})") from error
                tasks.popleft()
                yield result
        finally:
            for _, reference in tasks:
                ray.cancel(reference)


def _work(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
    return function(_cached_spec(shared), item)


_last: list[Any] = [None, None]  # in a worker: the last spec and its key


def _cached_spec(shared: Any) -> Any:
    """The same object from one task to the next, so that what an instrument computed of the baseline is kept."""
    if not isinstance(shared, MeasureSpec):
        return shared
    if _last[0] != shared.key:
        _last[:] = [shared.key, shared]
    return _last[1]


class MonitorActor:
    """The live monitor of one run as an actor. Its state is the journal, so being started again is reading that."""

    def __init__(self, directory: str, options: dict[str, Any]) -> None:
        self._run = RunDirectory(directory)
        self._config = Config.standard(options.pop("plugins", ()), **options)
        self._stop = threading.Event()
        self._error = ""
        self._thread = threading.Thread(target=self._follow, name="tiltmeter-monitor", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            run_monitor(self._run, self._config, give_up=self._stop.is_set)
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            log.exception("the monitor of %s ended", self._run.path)

    def state(self) -> dict[str, Any]:
        """Whether it still measures, in which process, and what ended it."""
        return {"measuring": self._thread.is_alive(), "pid": os.getpid(), "error": self._error}

    def finish(self) -> None:
        """Measure what is stored, then end, though the run may not be over."""
        self._stop.set()
        self._thread.join()


def watch_on_ray(
    directory: str | os.PathLike[str],
    *,
    plugins: Sequence[str] = (),
    gold: str | None = None,
    gold_share: float | None = None,
    gold_steps: int | None = None,
) -> Any:
    """The monitor of a run as a named, detached actor that Ray starts again whenever it or its node dies.

    For trainers that live on Ray: open the run with `monitor=False` and call this from the driver. The run directory
    must be on storage that the cluster shares. Called again, it gives the actor that is there. The actor outlives the
    driver; it ends with `ray.kill`, or when the cluster does.
    """
    path = Path(directory).resolve()
    RunDirectory(path).identity()
    ray = join_cluster()
    # Absolute paths: the actor works in a directory of its own.
    options: dict[str, Any] = {
        "plugins": tuple(map(_absolute_name, plugins)),
        "gold": None if gold is None else _absolute_name(gold),
    }
    options |= {"gold_share": gold_share, "gold_steps": gold_steps}
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(MonitorActor)
    monitor = actor.options(
        name=f"monitor-of-{RunDirectory(path).identity()['id']}", namespace=NAMESPACE, lifetime="detached",
        get_if_exists=True,
    ).remote(str(path), options)  # fmt: skip
    try:
        ray.get(monitor.state.remote())
    except ray.exceptions.RayError as error:
        raise AttachError(f"the monitor cannot be started on Ray: {str(error)[-500:]}") from error
    return monitor


def _absolute_name(name: str) -> str:
    file, colon, thing = name.rpartition(":") if ":" in name else (name, "", "")
    return f"{Path(file).resolve()}{colon}{thing}" if file.endswith((".py", ".toml")) else name
