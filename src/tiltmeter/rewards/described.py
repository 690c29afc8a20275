"""Rewards and guards as data: what a recipe says in a few lines becomes one reward function for the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.loading import load_function
from tiltmeter.rewards import Reward
from tiltmeter.rewards.combine import combine
from tiltmeter.rewards.parts import Agree, Part

#: What `guards: standard` means: each takes one known way out, none of them needs to be told anything about the task.
STANDARD = ("length_debiased", "repetition", "overlong")
#: Guards that stand around the reward, and those whose penalty is added to it.
AROUND = ("clipped", "constrained", "gate", "length_debiased", "shaped")
BESIDE = ("overlong", "repetition")
SOURCES = ("function", "judge", "model")
OF_ENSEMBLE = ("rule", "penalty", "scale")  # settings of several models together; every other is of each
BUFFER = 0.2  # of the length limit, over which `overlong` falls, as in DAPO (arXiv 2503.14476)

Guards = str | Sequence[str | Mapping[str, Any]]


def described(
    rewards: Sequence[Mapping[str, Any]],
    guards: Guards = (),
    *,
    limit: int | None = None,
    folder: str | Path = ".",
    agree: Agree | None = None,
) -> Reward:
    """The reward of a recipe. Raises `AttachError`, with what there is, for what nobody knows.

    Each of `rewards` has one source: `function: file.py:name`, `model: folder` (a list of folders is an ensemble, with
    its `rule` and `penalty`) or `judge: file.toml`; a `name`, a `weight` (1), and `settings` of the source. `guards` is
    "standard" or a list of names, each alone or with its settings, applied in that order; penalties are added at the
    end, with a `weight` of 1. Paths are relative to `folder`; `limit` is the longest completion in tokens, which
    `overlong` needs; `agree` as in `length_debiased`.
    """
    if not isinstance(rewards, Sequence) or not rewards:
        raise AttachError("rewards: name at least one, as a list: - function: rewards.py:helpful")
    parts: dict[str, Part] = {}
    weights: dict[str, float] = {}
    for at, entry in enumerate(rewards):
        name, part = _source("rewards", entry, at, Path(folder), agree, "weight")
        if name in parts:
            raise AttachError(f"rewards: two are called {name!r}; give each a name of its own")
        parts[name], weights[name] = part, _number(f"rewards: the weight of {name}", entry.get("weight", 1.0))
    whole = combine(parts, weights, name="reward")
    return guarded_by(whole, guards, limit=limit, folder=folder, agree=agree)


def guarded_by(
    reward: Part, guards: Guards, *, limit: int | None = None, folder: str | Path = ".", agree: Agree | None = None
) -> Reward:
    """A reward with guards around it, and penalties beside it.

    >>> def long(completions, **_): return [float(len(text)) for text in completions]
    >>> safe = guarded_by(long, [{"clipped": {"low": 0.0, "high": 9.0}}, "repetition"])
    >>> safe(completions=["four", "no more no more no more no more"]), safe.components
    ([4.0, 8.4], ('reward', 'repetition'))
    """
    chosen = listed(guards)
    beside: dict[str, Part] = {}
    weights: dict[str, float] = {}
    for name, given in chosen:
        settings = dict(given)
        if name in BESIDE:
            weights[name] = _number(f"{name}: its weight", settings.pop("weight", 1.0))
            beside[name] = _tried(name, _penalty, name, settings, limit)
        else:
            reward = _tried(name, _around, name, settings, reward, Path(folder), agree)
    if not beside and isinstance(reward, Reward):
        return reward
    return combine({"reward": reward, **beside}, weights, name="guarded" if chosen else "reward")


def listed(guards: Guards) -> list[tuple[str, Mapping[str, Any]]]:
    """Guards by name, each with its settings. Raises `AttachError` for what is none."""
    if isinstance(guards, str):
        if guards != "standard":
            raise AttachError(f'guards: {guards!r} is no set of guards; write "standard" or a list of names')
        guards = STANDARD
    if not isinstance(guards, Sequence):  # a mapping would lose its order, and with it what stands around what
        raise AttachError('guards: write "standard" or a list, as - clipped: {low: -2, high: 2}')
    found: list[tuple[str, Mapping[str, Any]]] = []
    for guard in guards:
        one = {guard: {}} if isinstance(guard, str) else guard
        if not isinstance(one, Mapping) or len(one) != 1:
            raise AttachError("guards: each is a name, or one name with its settings, as - clipped: {low: -2, high: 2}")
        ((name, settings),) = one.items()
        if name not in (*AROUND, *BESIDE):
            raise AttachError(f"guards: there is no {name!r}; there are {', '.join(sorted((*AROUND, *BESIDE)))}")
        if name in (known for known, _ in found):
            raise AttachError(f"guards: {name} stands there twice")
        found.append((name, _settings(name, settings)))
    return found


def _tried(name: str, make: Callable[..., Any], *given: Any) -> Any:
    try:
        return make(*given)
    except (TypeError, ValueError) as error:
        raise AttachError(f"{name}: {error}") from error


def _penalty(name: str, settings: dict[str, Any], limit: int | None) -> Part:
    if name == "repetition":
        from tiltmeter.rewards.repetition import repetition

        return repetition(**settings)
    from tiltmeter.rewards.length import overlong

    most = settings.pop("limit", limit)
    if most is None:
        raise AttachError("overlong: say the limit in tokens, as - overlong: {limit: 1024}")
    return overlong(int(most), int(settings.pop("buffer", max(1, round(BUFFER * most)))), **settings)


def _around(name: str, settings: dict[str, Any], reward: Part, folder: Path, agree: Agree | None) -> Part:
    if name == "length_debiased":
        from tiltmeter.rewards.length import length_debiased

        return length_debiased(reward, agree=agree, **settings)
    if name == "constrained":
        return _constrained(settings, reward, folder, agree)
    if name == "gate":
        from tiltmeter.rewards.gate import gate

        if "check" not in settings:
            raise AttachError("gate: name the check that must pass, as - gate: {check: checks.py:right}")
        return gate(load_function(_beside(settings.pop("check"), folder)), reward, **settings)
    from tiltmeter.rewards import shaping

    if name == "clipped":
        return shaping.clipped(reward, **settings)
    if "reference" not in settings:
        raise AttachError("shaped: name the reference, a column with one answer a row or a number: {reference: answer}")
    return shaping.shaped(reward, **settings)


def _constrained(settings: dict[str, Any], reward: Part, folder: Path, agree: Agree | None) -> Part:
    from tiltmeter.rewards.constrained import constrained

    floors: dict[str, tuple[Part, float]] = {}
    for at, entry in enumerate(settings.pop("floors", ())):
        name, part = _source("constrained", entry, at, folder, agree, "floor")
        floors[name] = part, _number(f"constrained: the floor of {name}", entry.get("floor"))
    if not floors:
        raise AttachError("constrained: name what must hold: {floors: [{function: checks.py:polite, floor: 0.9}]}")
    return constrained(reward, floors, agree=agree, **settings)


def source_of(where: str, entry: object, at: int, amount: str = "weight") -> tuple[str, dict[str, Any]]:
    """Which kind of source an entry names, and its settings. Raises `AttachError` for what means nothing there; the
    source itself need not be there yet, as a reward model that is still to be trained."""
    if not isinstance(entry, Mapping):
        raise AttachError(f"{where}: each is a source with its settings, as - function: rewards.py:helpful")
    known = {"name", amount, "settings", *SOURCES}
    if strange := sorted(set(map(str, entry)) - known):
        raise AttachError(f"{where}: {', '.join(strange)} means nothing here; there are {', '.join(sorted(known))}")
    given = [source for source in SOURCES if source in entry]
    if len(given) != 1:
        raise AttachError(f"{where}: number {at + 1} needs exactly one of {', '.join(SOURCES)}")
    settings = dict(_settings(given[0], entry.get("settings")))
    if given[0] == "model":
        from tiltmeter.rewards.model import RewardModel

        if amount in entry:
            _number(f"{where}: the {amount} of number {at + 1}", entry[amount])
        _tried("model", lambda: RewardModel("", **{k: v for k, v in settings.items() if k not in OF_ENSEMBLE}))
    return given[0], settings


def _source(where: str, entry: Any, at: int, folder: Path, agree: Agree | None, amount: str) -> tuple[str, Part]:
    """A source's name and function; `amount` is the number that may stand beside it."""
    source, settings = source_of(where, entry, at, amount)
    part = _tried(source, _made, source, entry[source], settings, folder, agree)
    return str(entry.get("name") or getattr(part, "__name__", source)), part


def _settings(name: str, given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise AttachError(f"{name}: its settings are names with values, as {{low: -2, high: 2}}, not {given!r}")
    return given


def _number(what: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not isfinite(given):
        raise AttachError(f"{what} is a number, not {given!r}")
    return float(given)


def _made(source: str, value: Any, settings: dict[str, Any], folder: Path, agree: Agree | None) -> Part:
    if source == "function":
        if settings:
            raise AttachError(f"{value}: a function takes no settings here; write them into its file")
        return load_function(_beside(value, folder))
    if source == "judge":
        from tiltmeter.rewards.judged import judge

        return judge(folder / str(value), **settings)
    from tiltmeter.rewards.ensemble import ensemble
    from tiltmeter.rewards.model import model

    if not isinstance(value, (str, Path, list, tuple)) or not value:
        raise AttachError(f"model: name a folder, or a list of folders for an ensemble, not {value!r}")
    folders = [str(value)] if isinstance(value, (str, Path)) else [str(one) for one in value]
    of_ensemble = {name: settings.pop(name) for name in OF_ENSEMBLE if name in settings}
    models = [model(folder / one, **settings) for one in folders]
    if len(models) == 1:
        if of_ensemble:
            raise AttachError(f"{', '.join(of_ensemble)}: one model is no ensemble; name several")
        return models[0]
    # Members fitted apart have scales of their own: the first rows of training give them, unless the recipe does.
    return ensemble(models, agree=agree, name="ensemble", **{"scale": 256, **of_ensemble})


def _beside(name: object, folder: Path) -> str:
    """A function's name with its file taken from beside the recipe."""
    path, colon, attribute = str(name).rpartition(":")
    return f"{folder / path}{colon}{attribute}" if path else str(name)
