"""One comparison from beginning to end: what is asked of both models, and at what share of the error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiltmeter.compare import accuracy, capability, divergence, refusal, speed, sycophancy, texture, wins
from tiltmeter.compare.judging import Referee
from tiltmeter.compare.measure import ALPHA, Measure, not_asked
from tiltmeter.compare.report import Report
from tiltmeter.compare.samples import Material, Prompts, read_prompts
from tiltmeter.compare.suite import OWN, Prompt, Suite, read_suite
from tiltmeter.compare.tasks import OWN as TASKS
from tiltmeter.errors import AttachError

if TYPE_CHECKING:
    from tiltmeter.chat.local import LocalModel
    from tiltmeter.rewards.described import Guards

#: How many of each group's measures can be called worse. Each gets its share of ALPHA whether or not it is asked for,
#: so that what is found does not depend on what else was asked.
TESTED = {"wins": 2, "accuracy": 1, "sycophancy": 1, "refusal": 2, "capability": 1, "texture": 3, "speed": 1}
SHARE = ALPHA / sum(TESTED.values())
#: What may be left out by name.
PARTS = ("wins", "kl", "accuracy", "sycophancy", "refusal", "capability", "texture", "speed")
REASONS = 3  # why there is no judgement, the most frequent ones
PROMPTS = "general"  # the suite of our own that is asked where nobody gives prompts


@dataclass(frozen=True)
class Wanted:
    """What a comparison asks. Suites are names or paths; `most` prompts or items of each, all of them without it."""

    prompts: Prompts
    ood: Prompts | None = None
    referee: Referee | None = None
    rewards: Sequence[Mapping[str, Any]] = ()  # as in a recipe, with paths resolved: what training paid by
    guards: Guards = "standard"  # timed beside it
    sycophancy: str = "sycophancy"
    benign: str = "benign"
    harmful: str = "harmful"
    tasks: Sequence[str] = TASKS
    most: int | None = None
    leave_out: Sequence[str] = ()


def open_models(base: str | Path, checkpoint: str | Path) -> tuple[LocalModel, LocalModel]:
    """Both models of two folders; an adapter whose own base is not here is put on BASE. Raises `AttachError`."""
    from tiltmeter.chat.local import LocalModel

    return LocalModel(base), LocalModel(checkpoint, base=_base_of(Path(checkpoint), Path(base)))


def _base_of(adapter: Path, base: Path) -> Path | None:
    told = adapter / "adapter_config.json"
    if not told.exists():
        return None
    named = json.loads(told.read_text("utf-8")).get("base_model_name_or_path") or ""
    if named and Path(named).is_dir():
        return None
    if (base / "adapter_config.json").exists():
        raise AttachError(f"{adapter} is an adapter of {named!r}, which is not here, and {base} is an adapter too")
    return base


def open_prompts(source: str | Path | None, name: str = "prompts") -> Prompts:
    """The prompts of a file with a column `prompt`, or of a suite by name."""
    if source is not None and Path(source).exists():
        return read_prompts(source, name)
    suite = read_suite(source or PROMPTS)
    return Prompts(name, suite.texts, [{"id": prompt.id, "kind": prompt.kind} for prompt in suite.prompts])


def compared(material: Material, wanted: Wanted) -> Report:
    """Every measure on the same two models. One that cannot tell says so; what nobody asked for says what would ask."""
    if strange := sorted(set(wanted.leave_out) - set(PARTS)):
        raise AttachError(f"there is no measure {strange[0]!r} to leave out; there are {', '.join(PARTS)}")
    if "capability" not in wanted.leave_out:
        capability.check(wanted.tasks)
    asked = wanted.prompts.drawn(material.seed, wanted.most)
    other = None if wanted.ood is None else wanted.ood.drawn(material.seed, wanted.most)
    reward = None if not wanted.rewards or "accuracy" in wanted.leave_out else _tried(wanted.rewards, asked)
    parts: dict[str, Callable[[], list[Measure]]] = {
        "wins": lambda: _wins(material, asked, other, wanted.referee),
        "kl": lambda: divergence.measured(material, asked, alpha=ALPHA),
        "accuracy": lambda: _accuracy(material, asked, wanted.referee, reward),
        "sycophancy": lambda: sycophancy.measured(
            material, wanted.sycophancy, most=wanted.most, alpha=SHARE * TESTED["sycophancy"]
        ),
        "refusal": lambda: refusal.measured(
            material, wanted.benign, wanted.harmful, most=wanted.most, alpha=SHARE * TESTED["refusal"]
        ),
        "capability": lambda: capability.measured(
            material, wanted.tasks, limit=wanted.most, alpha=SHARE * TESTED["capability"]
        ),
        "texture": lambda: texture.measured(material, _suite(asked), alpha=SHARE * TESTED["texture"]),
        "speed": lambda: _speed(material, _suite(asked), wanted),
    }
    found: list[Measure] = []
    for name, part in parts.items():
        found += [not_asked(name, name.capitalize(), "Left out.")] if name in wanted.leave_out else part()
    referee = wanted.referee
    return Report(
        *_names(material.base.folder, material.checkpoint.folder), tuple(found),
        "" if referee is None else referee.identity, referee is not None and referee.judged,
        tuple(_told(material, wanted, asked, other)), material.seed,
    )  # fmt: skip


def _names(base: Path, checkpoint: Path) -> tuple[str, str]:
    """The folders' names, with as much of what stands before as tells them apart.

    >>> _names(Path("runs/01-sft/model"), Path("runs/02-grpo/model"))
    ('01-sft/model', '02-grpo/model')
    """
    one, other = (path.resolve().parts for path in (base, checkpoint))
    length = next((n for n in range(1, min(len(one), len(other))) if one[-n:] != other[-n:]), 1)
    return "/".join(one[-length:]), "/".join(other[-length:])


def _wins(material: Material, asked: Prompts, other: Prompts | None, referee: Referee | None) -> list[Measure]:
    """In distribution, and apart from it what training never saw."""
    if referee is None:
        how = "Give --judge: a judge.toml, or a function as checks.py:score."
        return [not_asked(where.name, where.title, how) for where in (wins.PROMPTS, wins.OOD)]
    found = wins.measured(material, asked, referee, alpha=SHARE, where=wins.PROMPTS)
    if other is None:
        return [*found, not_asked(wins.OOD.name, wins.OOD.title, "Give --ood: prompts unlike those of training.")]
    return [*found, *wins.measured(material, other, referee, alpha=SHARE, where=wins.OOD)]


def _accuracy(
    material: Material, asked: Prompts, referee: Referee | None, reward: accuracy.Reward | None
) -> list[Measure]:
    if reward is None or referee is None:
        how = "Give --reward, what training paid by, and --judge, which it is checked against."
        return [not_asked(accuracy.NAME, accuracy.TITLE, how)]
    return accuracy.measured(material, asked, referee, reward, alpha=SHARE)


def _tried(rewards: Sequence[Mapping[str, Any]], asked: Prompts) -> accuracy.Reward:
    """The reward, asked once: what it lacks is better known before hours of sampling than after."""
    reward = accuracy.paying(rewards)
    try:
        reward(asked.texts[:1], ["An answer."], **{name: [value] for name, value in asked.columns[0].items()})
    except Exception as error:  # whatever code of the operator's own raises
        raise AttachError(
            f"the reward cannot be asked: {type(error).__name__}: {error}; it is called as TRL calls it, with "
            "lists of prompts and completions, and columns that it needs must stand in the file of --prompts"
        ) from error
    return reward


def _speed(material: Material, suite: Suite, wanted: Wanted) -> list[Measure]:
    alpha = SHARE * TESTED["speed"]
    try:
        return speed.measured(material, suite, reward=wanted.rewards, guards=wanted.guards, alpha=alpha)
    except (TypeError, KeyError) as error:  # a reward that needs columns, which are not handed over where it is timed
        how = f"The reward needs more than an answer: {type(error).__name__}: {error}."
        return [speed.measured(material, suite, alpha=alpha)[0], not_asked("scoring", "Time to score", how)]


def _suite(asked: Prompts) -> Suite:
    """The same prompts as a suite: what was sampled of them serves again."""
    if not _plain(asked):
        return read_suite(PROMPTS)
    return Suite(asked.name, tuple(Prompt(str(at), text) for at, text in enumerate(asked.texts, 1)))


def _plain(asked: Prompts) -> bool:
    return all(isinstance(turns, str) for turns in asked.turns)


def _told(material: Material, wanted: Wanted, asked: Prompts, other: Prompts | None) -> list[str]:
    told = [f"{len(asked)} of {len(wanted.prompts)} prompts in a drawn order, {material.samples} answers of each model"]
    sets = [wanted.prompts] if wanted.ood is None else [wanted.prompts, wanted.ood]
    told += [
        f"{each.name}: {each.repeated} rows ask what another asks, and are left out" for each in sets if each.repeated
    ]
    if wanted.ood is not None and other is not None:
        told.append(f"{len(other)} of {len(wanted.ood)} prompts out of distribution")
    named = (("sycophancy", wanted.sycophancy), ("benign", wanted.benign), ("harmful", wanted.harmful))
    suites = [f"{kind}: {'our own' if name in OWN else name}" for kind, name in named]
    told.append(f"suites: {'; '.join(suites)}")
    if not _plain(asked):
        told.append(f"diversity, length, hedging and speed: on the suite {PROMPTS}, because prompts are conversations")
    told.append(f"answers of at most {material.limit} tokens, sampled at temperature 1 without top-k or top-p")
    faults = wanted.referee.faults if wanted.referee is not None else {}
    often = sorted(faults.items(), key=lambda fault: -fault[1])
    told += [f"not judged, {times} times: {reason}" for reason, times in often[:REASONS]]
    if rest := often[REASONS:]:
        told.append(f"not judged, {sum(times for _, times in rest)} times: {len(rest)} other reasons")
    return told
