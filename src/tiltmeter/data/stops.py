"""Why a trajectory ended: a closed list, with what each word says about its reward."""

from __future__ import annotations

from typing import NamedTuple


class Stop(NamedTuple):
    """What follows from one reason to end."""

    by_policy: bool  # the policy can cause it
    trusted: bool  # the reward says something about the answer
    words: tuple[str, ...] = ()  # of trainers, for the same


STOPS: dict[str, Stop] = {
    "done": Stop(True, True, ("stop", "eos", "end_turn", "completed", "complete", "env_done", "finished")),
    "length": Stop(True, True, ("max_tokens", "max_length", "truncated", "context", "token_limit", "max_seq_len")),
    "turns": Stop(True, True, ("max_turns", "message", "max_turns_reached", "iterations", "max_steps", "messages")),
    "tool_budget": Stop(True, True, ("max_tool_calls", "tool_limit", "loop_exhausted")),
    "wall_clock": Stop(True, False, ("timeout", "time", "timed_out", "time_limit", "working", "deadline")),
    "sandbox": Stop(True, False, ("container", "sandbox_error", "container_failed", "environment_error", "env_error")),
    "verifier": Stop(True, False, ("verifier_error", "scoring", "scoring_error", "grader", "reward_error")),
    "engine": Stop(False, False, ("engine_error", "model_error", "server_error", "api_error", "error")),
    "aborted": Stop(False, False, ("abort", "cancelled", "canceled", "killed", "interrupted")),
    "unknown": Stop(True, True),
}

_BY_WORD = {word: name for name, stop in STOPS.items() for word in (name, *stop.words)}


def parse_stop(value: object) -> str | None:
    """The word of the list for a trainer's word; `unknown` for one that is not known; None for none.

    >>> [parse_stop(word) for word in ("eos", "Max-Tokens", "timeout", "a quarrel", None)]
    ['done', 'length', 'wall_clock', 'unknown', None]
    """
    if value is None or value == "":
        return None
    word = str(value)[:60].strip().lower().replace("-", "_").replace(" ", "_")
    return _BY_WORD.get(word, "unknown")


def is_trusted(stop: str | None) -> bool:
    """Whether the reward of a trajectory that ended so says something about its answer; of an unknown end it may.

    >>> is_trusted("sandbox"), is_trusted("done"), is_trusted(None)
    (False, True, True)
    """
    return stop not in STOPS or STOPS[stop].trusted
