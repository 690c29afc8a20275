"""Environments of verifiers 0.4 in a loop of your own: each episode becomes rows of the run, as prime-rl's would.

Under prime-rl use `tiltmeter.adapters.prime_rl`, which also knows what is trained on; for files of an evaluation use
`tiltmeter audit`. Nothing of verifiers is imported here.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from tiltmeter.adapters.custom_loop import Run
from tiltmeter.data.verifiers_rows import episode_columns, trace_row, traces
from tiltmeter.errors import Boundary, describe_error

EPISODES_WAITING = 65_536  # that are held while no step ends; of more, new ones are counted as lost


def to_record(episode: Any) -> dict[str, Any]:
    """An episode as verifiers serialises it, with numbers in full."""
    record: dict[str, Any] = episode.to_record(float_decimals=None)
    return record


def episode_rows(
    episodes: Iterable[tuple[Any, frozenset[str] | None]],
    trained: bool | None,
    errors: list[BaseException],
    *,
    own_thread: bool,
) -> list[dict[str, Any]]:
    """The rows of traces that are trained; with names, of those alone. One that cannot be read is left out, and its
    error is added to `errors`."""
    rows: list[dict[str, Any]] = []
    for episode, names in episodes:
        with Boundary(errors.append, own_thread=own_thread):
            record = to_record(episode)
            chosen = [one for one in traces(record) if names is None or one.get("id", "") in names]
            rows += [trace_row(record, trace, trained=trained) for trace in chosen]
    return rows


class VerifiersEpisodes:
    """Episodes of verifiers' environments, handed to a run as one step whenever the policy was updated.

    Groups, parts of the reward, turns, tokens and log-probabilities are the episode's own. An episode that was not
    scored because something failed has no reward, although the package says 0.

    >>> from types import SimpleNamespace
    >>> import tempfile
    >>> from tiltmeter import open_run
    >>> record = {"id": "a", "task": {"key": "one"}, "errors": [], "traces": [
    ...     {"id": "a", "nodes": [{"message": {"role": "assistant", "content": "2"}, "sampled": True}],
    ...      "rewards": {"right": {"score": 1.0, "weight": 1.0}}}]}
    >>> with open_run(f"{tempfile.mkdtemp()}/run", monitor=False) as run:
    ...     episodes = VerifiersEpisodes(run)
    ...     episodes.add(SimpleNamespace(to_record=lambda float_decimals: record))
    ...     episodes.end_step(0)
    1
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._episodes: list[Any] = []
        self._lost = 0
        self._lock = threading.Lock()

    def watch(self, env: Any) -> Any:
        """The same environment; what its `run_slot` returns is added, after all retries."""
        original = env.run_slot

        @functools.wraps(original)
        async def run_slot(*args: Any, **kwargs: Any) -> Any:
            episode = await original(*args, **kwargs)
            self.add(episode)
            return episode

        env.run_slot = run_slot
        return env

    def add(self, episode: Any) -> None:
        """An episode of your own, as `env.run_episode` returns it."""
        with self._lock:
            if len(self._episodes) < EPISODES_WAITING:
                self._episodes.append(episode)
            else:
                self._lost += 1

    def end_step(self, step: int, scalars: Mapping[str, float] | None = None) -> int:
        """Hand over every episode since the last step, and say how many rows they made. Never raises."""
        with self._lock:
            episodes, self._episodes = self._episodes, []
            lost, self._lost = self._lost, 0
        if lost:
            self._run.record_problem(f"{lost} episodes before step {step} were not kept: end_step() came too late")
        rows: list[dict[str, Any]] = []
        errors: list[BaseException] = []
        with Boundary(errors.append):
            rows = episode_rows(((episode, None) for episode in episodes), None, errors, own_thread=False)
            if rows:
                self._run.observe(step=step, scalars=dict(scalars or {}), give=True, **episode_columns(rows))
        if errors:
            self._run.record_problem(
                f"{len(errors)} episodes of step {step} were not read: {describe_error(errors[0])}"
            )
        return len(rows)
