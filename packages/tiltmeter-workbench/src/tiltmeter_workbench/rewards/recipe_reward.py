"""Build one reward function for the trainer from the `rewards:` and `guards:` sections of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.composed_reward import Agree, Part
from tiltmeter.gold.guards.reward import Reward
from tiltmeter.safety.loading import load_function
from tiltmeter_workbench.rewards import shaping
from tiltmeter_workbench.rewards.judge_reward import judge
from tiltmeter_workbench.rewards.lagrangian import constrained
from tiltmeter_workbench.rewards.length import length_debiased, overlong
from tiltmeter_workbench.rewards.repetition_penalty import repetition
from tiltmeter_workbench.rewards.reward_ensemble import ensemble
from tiltmeter_workbench.rewards.reward_model import RewardModel, model
from tiltmeter_workbench.rewards.verifiers.verifier_gate import gate
from tiltmeter_workbench.rewards.weighted_sum import combine

#: What `guards: standard` means: each closes one known kind of reward hacking and needs no settings for the task.
STANDARD_GUARDS = ("length_debiased", "repetition", "overlong")
#: Guards that wrap the reward, and guards whose penalty is added to it.
WRAPPING_GUARDS = ("clipped", "constrained", "gate", "length_debiased", "shaped")
PENALTY_GUARDS = ("overlong", "repetition")
SOURCES = ("function", "judge", "model")
ENSEMBLE_SETTINGS = ("rule", "penalty", "scale")  # settings of the ensemble; all others apply to each model
BUFFER = 0.2  # of the length limit, over which `overlong` falls, as in DAPO (arXiv 2503.14476)

Guards = str | Sequence[str | Mapping[str, Any]]


def reward_from_recipe(
    rewards: Sequence[Mapping[str, Any]],
    guards: Guards = (),
    *,
    limit: int | None = None,
    folder: str | Path = ".",
    agree: Agree | None = None,
) -> Reward:
    """The reward of a recipe. Raises `AttachError` with the valid choices for an unknown name.

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
    return add_guards(whole, guards, limit=limit, folder=folder, agree=agree)


def add_guards(
    reward: Part, guards: Guards, *, limit: int | None = None, folder: str | Path = ".", agree: Agree | None = None
) -> Reward:
    """A reward wrapped in guards, with penalties added.

    >>> def long(completions, **_): return [float(len(text)) for text in completions]
    >>> safe = add_guards(long, [{"clipped": {"low": 0.0, "high": 9.0}}, "repetition"])
    >>> safe(completions=["four", "no more no more no more no more"]), safe.components
    ([4.0, 8.4], ('reward', 'repetition'))
    """
    chosen = read_guards(guards)
    penalties: dict[str, Part] = {}
    weights: dict[str, float] = {}
    for name, options in chosen:
        settings = dict(options)
        if name in PENALTY_GUARDS:
            weights[name] = _number(f"{name}: its weight", settings.pop("weight", 1.0))
            penalties[name] = _build(name, _penalty, name, settings, limit)
        else:
            reward = _build(name, _wrap, name, settings, reward, Path(folder), agree)
    if not penalties and isinstance(reward, Reward):
        return reward
    return combine({"reward": reward, **penalties}, weights, name="guarded" if chosen else "reward")


def read_guards(guards: Guards) -> list[tuple[str, Mapping[str, Any]]]:
    """Guards by name, each with its settings. Raises `AttachError` for an unknown guard."""
    if isinstance(guards, str):
        if guards != "standard":
            raise AttachError(f'guards: {guards!r} is no set of guards; write "standard" or a list of names')
        guards = STANDARD_GUARDS
    if not isinstance(guards, Sequence):  # a list, because the order decides which guard wraps which
        raise AttachError('guards: write "standard" or a list, as - clipped: {low: -2, high: 2}')
    named_guards: list[tuple[str, Mapping[str, Any]]] = []
    for guard in guards:
        one = {guard: {}} if isinstance(guard, str) else guard
        if not isinstance(one, Mapping) or len(one) != 1:
            raise AttachError("guards: each is a name, or one name with its settings, as - clipped: {low: -2, high: 2}")
        ((name, settings),) = one.items()
        if name not in (*WRAPPING_GUARDS, *PENALTY_GUARDS):
            raise AttachError(
                f"guards: there is no {name!r}; there are {', '.join(sorted((*WRAPPING_GUARDS, *PENALTY_GUARDS)))}"
            )
        if name in (earlier for earlier, _ in named_guards):
            raise AttachError(f"guards: {name} stands there twice")
        named_guards.append((name, _settings(name, settings)))
    return named_guards


def _build(name: str, make: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except (TypeError, ValueError) as error:
        raise AttachError(f"{name}: {error}") from error


def _penalty(name: str, settings: dict[str, Any], limit: int | None) -> Part:
    if name == "repetition":
        return repetition(**settings)
    most = settings.pop("limit", limit)
    if most is None:
        raise AttachError("overlong: say the limit in tokens, as - overlong: {limit: 1024}")
    return overlong(int(most), int(settings.pop("buffer", max(1, round(BUFFER * most)))), **settings)


def _wrap(name: str, settings: dict[str, Any], reward: Part, folder: Path, agree: Agree | None) -> Part:
    if name == "length_debiased":
        return length_debiased(reward, agree=agree, **settings)
    if name == "constrained":
        return _add_floors(settings, reward, folder, agree)
    if name == "gate":
        if "check" not in settings:
            raise AttachError("gate: name the check that must pass, as - gate: {check: checks.py:right}")
        return gate(load_function(_resolve_path(settings.pop("check"), folder)), reward, **settings)
    if name == "clipped":
        return shaping.clipped(reward, **settings)
    if "reference" not in settings:
        raise AttachError("shaped: name the reference, a column with one answer a row or a number: {reference: answer}")
    return shaping.shaped(reward, **settings)


def _add_floors(settings: dict[str, Any], reward: Part, folder: Path, agree: Agree | None) -> Part:
    floors: dict[str, tuple[Part, float]] = {}
    for at, entry in enumerate(settings.pop("floors", ())):
        name, part = _source("constrained", entry, at, folder, agree, "floor")
        floors[name] = part, _number(f"constrained: the floor of {name}", entry.get("floor"))
    if not floors:
        raise AttachError("constrained: name what must hold: {floors: [{function: checks.py:polite, floor: 0.9}]}")
    return constrained(reward, floors, agree=agree, **settings)


def read_source(where: str, entry: object, at: int, amount: str = "weight") -> tuple[str, dict[str, Any]]:
    """The kind of source that an entry names, and its settings. Raises `AttachError` for an unknown key; the source
    itself need not exist yet, such as a reward model that is still to be trained."""
    if not isinstance(entry, Mapping):
        raise AttachError(f"{where}: each is a source with its settings, as - function: rewards.py:helpful")
    allowed = {"name", amount, "settings", *SOURCES}
    if strange := sorted(set(map(str, entry)) - allowed):
        raise AttachError(f"{where}: {', '.join(strange)} means nothing here; there are {', '.join(sorted(allowed))}")
    sources = [source for source in SOURCES if source in entry]
    if len(sources) != 1:
        raise AttachError(f"{where}: number {at + 1} needs exactly one of {', '.join(SOURCES)}")
    settings = dict(_settings(sources[0], entry.get("settings")))
    if sources[0] == "model":
        if amount in entry:
            _number(f"{where}: the {amount} of number {at + 1}", entry[amount])
        _build("model", lambda: RewardModel("", **{k: v for k, v in settings.items() if k not in ENSEMBLE_SETTINGS}))
    return sources[0], settings


def _source(where: str, entry: Any, at: int, folder: Path, agree: Agree | None, amount: str) -> tuple[str, Part]:
    """A source's name and function; `amount` is the key of its number ("weight" or "floor")."""
    source, settings = read_source(where, entry, at, amount)
    part = _build(source, _open_source, source, entry[source], settings, folder, agree)
    return str(entry.get("name") or getattr(part, "__name__", source)), part


def _settings(name: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise AttachError(f"{name}: its settings are names with values, as {{low: -2, high: 2}}, not {value!r}")
    return value


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise AttachError(f"{what} is a number, not {value!r}")
    return float(value)


def _open_source(source: str, value: Any, settings: dict[str, Any], folder: Path, agree: Agree | None) -> Part:
    if source == "function":
        if settings:
            raise AttachError(f"{value}: a function takes no settings here; write them into its file")
        return load_function(_resolve_path(value, folder))
    if source == "judge":
        return judge(folder / str(value), **settings)
    if not isinstance(value, (str, Path, list, tuple)) or not value:
        raise AttachError(f"model: name a folder, or a list of folders for an ensemble, not {value!r}")
    folders = [str(value)] if isinstance(value, (str, Path)) else [str(one) for one in value]
    of_ensemble = {name: settings.pop(name) for name in ENSEMBLE_SETTINGS if name in settings}
    models = [model(folder / one, **settings) for one in folders]
    if len(models) == 1:
        if of_ensemble:
            raise AttachError(f"{', '.join(of_ensemble)}: one model is no ensemble; name several")
        return models[0]
    # Members fitted apart have scales of their own: the first rows of training give them, unless the recipe does.
    return ensemble(models, agree=agree, name="ensemble", **{"scale": 256, **of_ensemble})


def _resolve_path(name: object, folder: Path) -> str:
    """A function's name with its file relative to the recipe's folder."""
    path, colon, attribute = str(name).rpartition(":")
    return f"{folder / path}{colon}{attribute}" if path else str(name)
