"""Environments of OpenEnv in a loop of your own: each episode becomes a conversation of the run, with what was paid.

OpenEnv has no callbacks, so `OpenEnvEpisodes.watch` wraps `reset` and `step` of an environment or of a client. What
they return and raise is untouched; an episode in which they raise has no reward, and never one of 0.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltmeter.adapters.custom_loop import Run
from tiltmeter.data.turns import ASSISTANT, TOOL, USER, Turn
from tiltmeter.errors import Boundary, describe_error
from tiltmeter_workbench.environments.verify import read_error

#: Arguments of `reset` that choose among episodes of one task, and not the task.
_NOT_THE_TASK = ("seed", "episode_id", "timeout_s")
#: Fields that every action and every observation has: they are columns here, and not words.
_COLUMNS = ("done", "reward", "metadata")
EPISODES_WAITING = 65_536  # that are held while no step ends; of more, new ones are counted as lost


@dataclass
class EnvEpisode:
    """One episode, from `reset` on."""

    env: str
    task: str
    turns: list[Turn] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    stop: str | None = None
    artifacts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        """What its steps paid together; None where none paid, or where the environment failed."""
        return sum(self.rewards) if self.rewards and not self.artifacts else None


class OpenEnvEpisodes:
    """Episodes of OpenEnv's environments, handed to a run as one step whenever the policy was updated.

    A group is the episodes of one task: of the same arguments of `reset`, or, without any, of the same first
    observation. `watch(env).group = ...` before `reset` names it instead.

    >>> class Echo:  # as OpenEnv's `Environment`
    ...     def reset(self): return {"text": "Say yes.", "done": False}
    ...     def step(self, action): return {"text": "", "done": True, "reward": float(action == "yes")}
    >>> import tempfile
    >>> from tiltmeter import open_run
    >>> with open_run(f"{tempfile.mkdtemp()}/run", monitor=False) as run:
    ...     episodes = OpenEnvEpisodes(run)
    ...     env = episodes.watch(Echo())
    ...     for answer in ("yes", "no"):
    ...         _ = env.reset(), env.step(answer)
    ...     episodes.end_step(0)
    2
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._episodes: list[EnvEpisode] = []
        self._lost = 0
        self._lock = threading.Lock()  # environments may be stepped in threads

    def watch(self, env: Any, name: str | None = None) -> WatchedEnv:
        """The same environment or client, whose episodes are recorded. `name`: by which its rows are told apart."""
        return WatchedEnv(env, name or type(env).__name__, self)

    def end_step(self, step: int, scalars: Mapping[str, float] | None = None) -> int:
        """Hand over every episode that began since the last step, and say how many. Never raises.

        Call it when all episodes of a step have ended: one that is still going is recorded as it stands.
        """
        with self._lock:
            episodes, self._episodes = [one for one in self._episodes if len(one.turns) > 1], []
            lost, self._lost = self._lost, 0
        if lost:
            self._run.record_problem(f"{lost} episodes before step {step} were not kept: end_step() came too late")
        with Boundary(self.count_failure):
            if episodes:
                self._run.observe(
                    step=step,
                    group=[f"{one.env} {one.task}" for one in episodes],
                    prompt=[one.turns[0].text for one in episodes],
                    turns=[one.turns for one in episodes],
                    reward=[one.reward for one in episodes],
                    stop=[one.stop for one in episodes],
                    env=[one.env for one in episodes],
                    task=[one.task for one in episodes],
                    artifacts=[dict(one.artifacts) for one in episodes],
                    scalars=dict(scalars or {}),
                )
        return len(episodes)

    def add(self, episode: EnvEpisode) -> None:
        with self._lock:
            if len(self._episodes) < EPISODES_WAITING:
                self._episodes.append(episode)
            else:
                self._lost += 1

    def count_failure(self, error: BaseException) -> None:
        self._run.record_problem(f"an episode of an environment was not recorded: {describe_error(error)}")


class WatchedEnv:
    """An environment or a client of OpenEnv, of which `reset` and `step` are also recorded."""

    def __init__(self, env: Any, name: str, episodes: OpenEnvEpisodes) -> None:
        self.group: object = None  # of the next episode, where its task does not say
        self._env, self._name, self._episodes = env, name, episodes
        self._episode: EnvEpisode | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def __enter__(self) -> WatchedEnv:
        self._env.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._env.__exit__(*error)

    async def __aenter__(self) -> WatchedEnv:
        await self._env.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._env.__aexit__(*error)

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        self._episode = None
        result = self._env.reset(*args, **kwargs)  # an environment that does not begin is no episode
        return self._after_reset(result, kwargs) if inspect.isawaitable(result) else self._begin(result, kwargs)

    async def reset_async(self, *args: Any, **kwargs: Any) -> Any:
        self._episode = None
        return self._begin(await self._env.reset_async(*args, **kwargs), kwargs)

    def step(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        self._act(action)
        try:
            result = self._env.step(action, *args, **kwargs)
        except BaseException as error:
            self._fail(error)
            raise
        return self._after_step(result) if inspect.isawaitable(result) else self._answer(result)

    async def step_async(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        self._act(action)
        return await self._after_step(self._env.step_async(action, *args, **kwargs))

    async def _after_reset(self, result: Awaitable[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._begin(await result, kwargs)

    async def _after_step(self, result: Awaitable[Any]) -> Any:
        try:
            return self._answer(await result)
        except BaseException as error:
            self._fail(error)
            raise

    # -- what is recorded: nothing here raises -----------------------------------------------------------------------

    def _begin(self, result: Any, kwargs: Mapping[str, Any]) -> Any:
        with Boundary(self._episodes.count_failure):
            words = _words(_get(result, "observation", result))
            task = {name: value for name, value in kwargs.items() if name not in _NOT_THE_TASK}
            named = self.group if self.group is not None else _words(task) if task else words
            self._episode = EnvEpisode(self._name, str(named), [Turn(USER, words)])
            self._episodes.add(self._episode)
        return result

    def _act(self, action: Any) -> None:
        with Boundary(self._episodes.count_failure):
            if self._episode is not None:
                self._episode.turns.append(Turn(ASSISTANT, _words(action)))

    def _answer(self, result: Any) -> Any:
        with Boundary(self._episodes.count_failure):
            if (episode := self._episode) is not None:
                observation = _get(result, "observation", result)
                reward = _get(result, "reward", None)
                paid = None if reward is None else float(reward)
                if paid is not None:
                    episode.rewards.append(paid)
                episode.turns.append(Turn(TOOL, _words(observation), reward=paid))
                if _get(result, "done", False):
                    episode.stop = "done"
        return result

    def _fail(self, error: BaseException) -> None:
        with Boundary(self._episodes.count_failure):
            if self._episode is not None:
                outcome = read_error(error)
                self._episode.stop, self._episode.artifacts = outcome.stop, outcome.artifacts


def _get(result: Any, name: str, default: Any) -> Any:
    return result.get(name, default) if isinstance(result, Mapping) else getattr(result, name, default)


def _words(item: Any) -> str:
    """An action or an observation as text: its only field if that is a string, else its fields as JSON.

    >>> _words({"message": "hello", "metadata": {}}), _words({"x": 1, "y": 2, "done": False})
    ('hello', '{"x": 1, "y": 2}')
    """
    if isinstance(item, str):
        return item
    fields = item.model_dump() if hasattr(item, "model_dump") else item
    if not isinstance(fields, Mapping):
        return str(fields)
    fields = {name: value for name, value in fields.items() if name not in _COLUMNS}
    only = next(iter(fields.values())) if len(fields) == 1 else None
    return only if isinstance(only, str) else json.dumps(fields, default=str)
