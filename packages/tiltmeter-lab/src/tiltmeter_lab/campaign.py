"""Run a campaign: many simulated runs of many families, by seed, in parallel and resumable.

A campaign is a folder. Each time it is worked on it gains one shard, a file with one finished run per line, so a power
cut costs at most the runs in flight. Which runs there are depends on the seed, the family and the index alone.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import tiltmeter
from tiltmeter.errors import AttachError, StoreError
from tiltmeter_lab.evaluate_run import evaluate_run
from tiltmeter_lab.simulate import simulate
from tiltmeter_lab.worlds.families import FAMILIES, NETWORK_FAMILIES, generator
from tiltmeter_lab.worlds.families import split as families_of
from tiltmeter_lab.worlds.world import World, load_worlds

Line = dict[str, Any]
EvaluateRun = Callable[[World, int], Line]
Progress = Callable[[int, int, str], None]

FACTS = "campaign.json"
#: Files of this folder that only score or plot results, and so cannot change them.
_NOT_HASHED = {
    "campaign.py",
    "campaign_records.py",
    "score.py",
    "score_network.py",
    "plots.py",
    "report.py",
    "__init__.py",
}
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class CampaignRun:
    """One run of a campaign: all that is needed to reproduce it."""

    family: str
    update: str  # "" = as the world says
    index: int
    seed: int
    worlds: str = ""  # `file.py:NAME`, for families defined outside the package

    def make_world(self) -> tuple[World, int]:
        """The world and the seed of its run. Neither depends on which other runs the campaign has.

        A family's severity and the run's samples have separate random streams, so a family may draw more numbers
        without changing the samples.
        """
        (dice,) = np.random.SeedSequence([self.seed, zlib.crc32(self.family.encode()), self.index]).spawn(1)
        return self._world_maker()(generator(self.family, self.seed, self.index)), int(dice.generate_state(1)[0])

    def _world_maker(self) -> Callable[[np.random.Generator], World]:
        if self.worlds:
            return _load_worlds(self.worlds, _hash(self.worlds))[self.family]
        families = FAMILIES | NETWORK_FAMILIES
        if self.family not in families:
            raise AttachError(f"no family is called {self.family!r}; there are: {', '.join(sorted(families))}")
        family = families[self.family]
        return lambda rng: family.make(rng, self.update)


def members(split: str) -> tuple[list[str], list[str]]:
    """The families and the update rules of a split of the package."""
    families, updates = families_of(split)
    return [family.name for family in families], list(updates)


def plan(families: Sequence[str], updates: Sequence[str], runs: int, seed: int, worlds: str = "") -> list[CampaignRun]:
    """The tasks of a campaign, in turn over families; a family's runs take the update rules in turn.

    >>> [(task.family, task.update, task.index) for task in plan(["a", "b"], ["tilt", "grpo"], runs=2, seed=1)]
    [('a', 'tilt', 0), ('b', 'tilt', 0), ('a', 'grpo', 1), ('b', 'grpo', 1)]
    """
    if runs < 1:
        raise AttachError("a campaign needs at least one run per family")
    rules = list(updates) or [""]
    return [
        CampaignRun(family, rules[index % len(rules)], index, seed, worlds)
        for index in range(runs)
        for family in families
    ]


def run(
    families: Sequence[str],
    updates: Sequence[str],
    runs: int,
    seed: int,
    folder: Path,
    workers: int = 1,
    on_progress: Progress | None = None,
    *,
    worlds: str = "",
    evaluate: EvaluateRun | None = None,
    facts: Mapping[str, Any] | None = None,
) -> list[Line]:
    """Make the runs that the folder does not have yet, and return those asked for, sorted by family and index.

    The folder may hold more families and more runs than are asked for; it may not hold runs of another seed, of other
    update rules or of other code, because figures made of both would describe neither. With more than one worker,
    `evaluate` must be importable by name.
    """
    tasks = plan(families, updates, runs, seed, worlds)
    open_folder(folder, {"seed": seed, "updates": list(updates), **_origin(worlds), **(facts or {})})
    done = read_runs(folder)
    rest = [task for task in tasks if (task.family, task.index) not in done]
    count = len(tasks) - len(rest)
    if on_progress:
        on_progress(count, len(tasks), "")
    if rest:
        with _shard(folder) as write:
            for line in _run_tasks(rest, workers, evaluate):
                write(line)
                done[line["family"], line["index"]] = line
                count += 1
                if on_progress:
                    on_progress(count, len(tasks), line["family"])
    return [done[key] for key in sorted((task.family, task.index) for task in tasks)]


def run_task(task: CampaignRun, evaluate: EvaluateRun | None = None) -> Line:
    """One run's result line, as JSON would give it back."""
    if evaluate is None:
        evaluate = evaluate_run
    world, seed = task.make_world()
    line = {**evaluate(world, seed), "family": task.family, "index": task.index}
    if "gold" not in line:
        # What an alarm at any step would have cost: `score` moves the baselines' thresholds.
        line["gold"] = simulate(world, seed).gold.round(5).tolist()
    try:
        return dict(json.loads(json.dumps(line, allow_nan=False, default=_to_json_value)))
    except ValueError as error:
        raise StoreError(f"run {task.index} of {task.family}: a result is not a number ({error})") from error


def read_runs(folder: Path) -> dict[tuple[str, int], Line]:
    """The runs a folder has, by family and index. The last line of a shard may be torn, and is then not there."""
    runs: dict[tuple[str, int], Line] = {}
    for shard in sorted(folder.glob("runs-*.jsonl")):
        lines = shard.read_bytes().split(b"\n")
        for number, text in enumerate(lines[:-1]):  # what follows the last newline was never finished
            try:
                line = json.loads(text)
                runs.setdefault((line["family"], line["index"]), line)
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"{shard}: line {number + 1} is damaged; delete the file to make its runs again"
                ) from error
    return runs


def facts_of(folder: Path) -> dict[str, Any]:
    """What a campaign's folder says of itself: seed, update rules, code, date, commands."""
    path = folder / FACTS
    if not path.is_file():
        raise StoreError(
            f"{folder} is no campaign: it has no {FACTS}; make one with `tiltmeter lab run --out {folder}`"
        )
    return dict(json.loads(path.read_text()))


def open_folder(folder: Path, facts: Mapping[str, Any]) -> None:
    """Create the folder, or check that it is of the same seed, rules, worlds and code; then note the command."""
    folder.mkdir(parents=True, exist_ok=True)
    now = {**facts, "code": code(), "version": tiltmeter.__version__}
    if (folder / FACTS).is_file():
        then = facts_of(folder)
        for name in ("seed", "updates", "worlds", "worlds_code", "code"):
            if then.get(name) != now.get(name):
                raise AttachError(f"{folder} has runs of another {name}; choose a new --out, or delete the folder")
        now = {**now, "date": then.get("date"), "commands": _merge_commands(then, now)}
    partial = folder / f"{FACTS}.part"
    partial.write_text(json.dumps(now, indent=1) + "\n")
    partial.replace(folder / FACTS)


def code() -> str:
    """A hash of everything that can change a run's result: worlds, evaluation, statistics, detectors."""
    core, lab = Path(tiltmeter.__file__).parent, Path(__file__).parent
    digest = hashlib.sha256()
    for room in (lab, core / "gold", core / "detectors", core / "stats"):
        for path in sorted(room.rglob("*.py")):
            if path.parent != lab or path.name not in _NOT_HASHED:
                name = path.relative_to(room.parent).as_posix()
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _run_tasks(tasks: Sequence[CampaignRun], workers: int, evaluate: EvaluateRun | None) -> Iterator[Line]:
    if workers <= 1:
        for task in tasks:
            yield run_task(task, evaluate)
        return
    with _one_thread_each():
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        try:
            queue = iter(tasks)
            waiting: set[Future[Line]] = set()
            while True:
                # A few more than there are workers, so that none waits for this process.
                for task in queue:
                    waiting.add(pool.submit(run_task, task, evaluate))
                    if len(waiting) >= 3 * workers:
                        break
                if not waiting:
                    return
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """One thread per worker: otherwise each process would use all cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _shard(folder: Path) -> Iterator[Callable[[Line], None]]:
    """A file of this invocation's own, so that nothing is ever appended to a torn line."""
    number = len(list(folder.glob("runs-*.jsonl")))
    while True:
        path = folder / f"runs-{number:04d}.jsonl"
        try:
            path.touch(exist_ok=False)
            break
        except FileExistsError:
            number += 1
    with path.open("a", encoding="utf-8") as file:

        def write(line: Line) -> None:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()

        yield write


def _origin(worlds: str) -> dict[str, str]:
    """Outside worlds by their file's own name and content: where it lies on this machine is nobody's business."""
    path, _, name = worlds.rpartition(":")
    return {"worlds": f"{Path(path).name}:{name}", "worlds_code": _hash(worlds)} if worlds else {}


def _hash(worlds: str) -> str:
    path = Path(worlds.rpartition(":")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


@lru_cache(maxsize=4)
def _load_worlds(worlds: str, _: str) -> dict[str, Callable[[np.random.Generator], World]]:
    """Once per process and content: a worker makes many runs of one file."""
    return dict(load_worlds(worlds))


def _merge_commands(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*then.get("commands", ()), *now.get("commands", ())]))


def _to_json_value(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a result line")
