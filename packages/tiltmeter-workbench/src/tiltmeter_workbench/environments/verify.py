"""An environment's `verify`, for a loop of your own: where it fails there is no reward, and never one of 0.

OpenEnv's `session.verify` and Harbor's `Verifier.verify` raise when a container is gone, a reward file is missing or
time is up. A loop that goes on with 0 teaches the policy that its answer was wrong.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tiltmeter.errors import Boundary, describe_error

log = logging.getLogger("tiltmeter")

#: Parts of the names of errors that say that the container, and not the verifier in it, is gone.
_SANDBOX_ERRORS = ("sandbox", "container", "docker", "connect")
#: What ends a task or a generator; it is nobody's failure.
_ENDS = (asyncio.CancelledError, GeneratorExit)


class Verified(NamedTuple):
    """What a verifier said about one conversation."""

    reward: Any  # None: it paid nothing, or it failed
    rewards: Mapping[str, Any]  # by name, where it pays for several things
    stop: str | None  # verifier or sandbox: it failed; None: it did not
    artifacts: Mapping[str, Any]  # its metrics and artifacts, or its error
    result: Any  # what it returned


def wrap_verify(verify: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same arguments that returns `Verified` and raises nothing; asynchronous if `verify` is.

    >>> def verify(messages): raise TimeoutError("no answer in 60 s")
    >>> outcome = wrap_verify(verify)([])
    >>> outcome.reward, outcome.stop, outcome.artifacts
    (None, 'verifier', {'verify_error': 'TimeoutError: no answer in 60 s'})
    """

    @functools.wraps(verify)
    def call(*args: Any, **kwargs: Any) -> Verified:
        errors: list[BaseException] = []
        with Boundary(errors.append, user_code=True):
            return _read_result(verify(*args, **kwargs))
        return read_error(errors[0])

    @functools.wraps(verify)
    async def call_async(*args: Any, **kwargs: Any) -> Verified:
        errors: list[BaseException] = []
        with Boundary(errors.append, user_code=True):
            return _read_result(await verify(*args, **kwargs))
        return read_error(errors[0])

    return call_async if inspect.iscoroutinefunction(verify) else call


def verify_columns(verified: Sequence[Verified], stop: Sequence[object] | None = None) -> dict[str, Any]:
    """The columns `reward`, `rewards`, `stop` and `artifacts` of `observe`. `stop`: why each conversation ended, which
    stands where its verifier did not fail.

    >>> columns = verify_columns([wrap_verify(float)("1"), wrap_verify(float)("one")], ["done", "done"])
    >>> columns["reward"], columns["stop"]
    ([1.0, None], ['done', 'verifier'])
    """
    names = dict.fromkeys(name for one in verified for name in one.rewards)
    ends = [None] * len(verified) if stop is None else stop
    return {
        "reward": [one.reward for one in verified],
        "rewards": {name: [one.rewards.get(name) for one in verified] for name in names},
        "stop": [one.stop or end for one, end in zip(verified, ends, strict=True)],
        "artifacts": [dict(one.artifacts) for one in verified],
    }


def _read_result(result: Any) -> Verified:
    """What OpenEnv's `VerifyResult`, Harbor's `VerifierResult`, a dict of the same, or a number says."""
    if result is None or isinstance(result, (bool, int, float)):
        return Verified(result, {}, None, {}, result)

    def get(name: str) -> Any:
        return result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)

    rewards = get("rewards") or {}
    reward = next((value for name in ("env_reward", "reward") if (value := get(name)) is not None), None)
    if reward is None:
        reward = rewards.get("reward") if len(rewards) != 1 else next(iter(rewards.values()))
    artifacts = {**(get("artifacts") or {}), **({"metrics": dict(metrics)} if (metrics := get("metrics")) else {})}
    return Verified(reward, rewards if len(rewards) > 1 else {}, None, artifacts, result)


def read_error(error: BaseException) -> Verified:
    """What is stored of an environment that raised. Raises what ends a task, which is no failure."""
    if isinstance(error, _ENDS):
        raise error
    names = " ".join(kind.__name__.lower() for kind in type(error).__mro__)
    stop = "sandbox" if any(part in names for part in _SANDBOX_ERRORS) else "verifier"
    why = describe_error(error)
    log.warning("verify failed, which is no reward: %s", why)
    return Verified(None, {}, stop, {"verify_error": why}, None)
