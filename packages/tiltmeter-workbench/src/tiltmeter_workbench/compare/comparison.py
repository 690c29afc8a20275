"""Runs a comparison of two models: all measures, each with its share of the error rate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.measures import (
    accuracy,
    capability,
    divergence,
    refusal,
    speed,
    sycophancy,
    texture,
    wins,
)
from tiltmeter_workbench.compare.measures.harness_tasks import OWN as TASKS
from tiltmeter_workbench.compare.measures.measure import ALPHA, Measure, not_asked
from tiltmeter_workbench.compare.referees import Referee
from tiltmeter_workbench.compare.report import ComparisonReport
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts, read_prompts
from tiltmeter_workbench.compare.suite import OWN, Suite, SuitePrompt, read_suite
from tiltmeter_workbench.rewards.recipe_reward import Guards

#: How many of each group's measures can be called worse. Each gets its share of ALPHA whether or not it is requested,
#: so that a result does not depend on which other measures run.
TESTED = {"wins": 2, "accuracy": 1, "sycophancy": 1, "refusal": 2, "capability": 1, "texture": 3, "speed": 1}
SHARE = ALPHA / sum(TESTED.values())
#: What may be left out by name.
PARTS = ("wins", "kl", "accuracy", "sycophancy", "refusal", "capability", "texture", "speed")
REASONS = 3  # why there is no judgement, the most frequent ones
PROMPTS = "general"  # the shipped suite that is used where no prompts are given


@dataclass(frozen=True)
class ComparisonRequest:
    """Inputs of a comparison. Suites are names or paths; `most` prompts or items of each, all of them without it."""

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
    return LocalModel(base), LocalModel(checkpoint, base=_base_of(Path(checkpoint), Path(base)))


def _base_of(adapter: Path, base: Path) -> Path | None:
    config_file = adapter / "adapter_config.json"
    if not config_file.exists():
        return None
    base_name = json.loads(config_file.read_text("utf-8")).get("base_model_name_or_path") or ""
    if base_name and Path(base_name).is_dir():
        return None
    if (base / "adapter_config.json").exists():
        raise AttachError(f"{adapter} is an adapter of {base_name!r}, which is not here, and {base} is an adapter too")
    return base


def open_prompts(source: str | Path | None, name: str = "prompts") -> Prompts:
    """The prompts of a file with a column `prompt`, or of a suite by name."""
    if source is not None and Path(source).exists():
        return read_prompts(source, name)
    suite = read_suite(source or PROMPTS)
    return Prompts(name, suite.texts, [{"id": prompt.id, "kind": prompt.kind} for prompt in suite.prompts])


def compare_models(sampler: AnswerSampler, request: ComparisonRequest) -> ComparisonReport:
    """Every measure on the same two models. One that cannot tell says so; one not requested names its option."""
    if strange := sorted(set(request.leave_out) - set(PARTS)):
        raise AttachError(f"there is no measure {strange[0]!r} to leave out; there are {', '.join(PARTS)}")
    if "capability" not in request.leave_out:
        capability.check_tasks(request.tasks)
    prompts = request.prompts.draw(sampler.seed, request.most)
    other = None if request.ood is None else request.ood.draw(sampler.seed, request.most)
    reward = None if not request.rewards or "accuracy" in request.leave_out else _check_reward(request.rewards, prompts)
    parts: dict[str, Callable[[], list[Measure]]] = {
        "wins": lambda: _wins(sampler, prompts, other, request.referee),
        "kl": lambda: divergence.measure(sampler, prompts, alpha=ALPHA),
        "accuracy": lambda: _accuracy(sampler, prompts, request.referee, reward),
        "sycophancy": lambda: sycophancy.measure(
            sampler, request.sycophancy, most=request.most, alpha=SHARE * TESTED["sycophancy"]
        ),
        "refusal": lambda: refusal.measure(
            sampler, request.benign, request.harmful, most=request.most, alpha=SHARE * TESTED["refusal"]
        ),
        "capability": lambda: capability.measure(
            sampler, request.tasks, limit=request.most, alpha=SHARE * TESTED["capability"]
        ),
        "texture": lambda: texture.measure(sampler, _suite(prompts), alpha=SHARE * TESTED["texture"]),
        "speed": lambda: _speed(sampler, _suite(prompts), request),
    }
    measures: list[Measure] = []
    for name, part in parts.items():
        measures += [not_asked(name, name.capitalize(), "Left out.")] if name in request.leave_out else part()
    referee = request.referee
    return ComparisonReport(
        *_names(sampler.base.folder, sampler.checkpoint.folder), tuple(measures),
        "" if referee is None else referee.identity, referee is not None and referee.judged,
        tuple(_input_notes(sampler, request, prompts, other)), sampler.seed,
    )  # fmt: skip


def _names(base: Path, checkpoint: Path) -> tuple[str, str]:
    """The folders' names, with as much of what stands before as tells them apart.

    >>> _names(Path("runs/01-sft/model"), Path("runs/02-grpo/model"))
    ('01-sft/model', '02-grpo/model')
    """
    one, other = (path.resolve().parts for path in (base, checkpoint))
    length = next((n for n in range(1, min(len(one), len(other))) if one[-n:] != other[-n:]), 1)
    return "/".join(one[-length:]), "/".join(other[-length:])


def _wins(sampler: AnswerSampler, prompts: Prompts, other: Prompts | None, referee: Referee | None) -> list[Measure]:
    """The win rate on the training prompts, and on out-of-distribution prompts."""
    if referee is None:
        how = "Give --judge: a judge.toml, or a function as checks.py:score."
        return [not_asked(where.name, where.title, how) for where in (wins.PROMPTS, wins.OOD)]
    measures = wins.measure(sampler, prompts, referee, alpha=SHARE, where=wins.PROMPTS)
    if other is None:
        return [*measures, not_asked(wins.OOD.name, wins.OOD.title, "Give --ood: prompts unlike those of training.")]
    return [*measures, *wins.measure(sampler, other, referee, alpha=SHARE, where=wins.OOD)]


def _accuracy(
    sampler: AnswerSampler, prompts: Prompts, referee: Referee | None, reward: accuracy.TrlReward | None
) -> list[Measure]:
    if reward is None or referee is None:
        how = "Give --reward, what training paid by, and --judge, which it is checked against."
        return [not_asked(accuracy.NAME, accuracy.TITLE, how)]
    return accuracy.measure(sampler, prompts, referee, reward, alpha=SHARE)


def _check_reward(rewards: Sequence[Mapping[str, Any]], prompts: Prompts) -> accuracy.TrlReward:
    """The reward, called once as a test before hours of sampling."""
    reward = accuracy.load_reward(rewards)
    try:
        reward(prompts.texts[:1], ["An answer."], **{name: [value] for name, value in prompts.columns[0].items()})
    except Exception as error:  # whatever the user's code raises
        raise AttachError(
            f"the reward cannot be called: {type(error).__name__}: {error}; it is called as TRL calls it, with "
            "lists of prompts and completions, and columns that it needs must stand in the file of --prompts"
        ) from error
    return reward


def _speed(sampler: AnswerSampler, suite: Suite, request: ComparisonRequest) -> list[Measure]:
    alpha = SHARE * TESTED["speed"]
    try:
        return speed.measure(sampler, suite, reward=request.rewards, guards=request.guards, alpha=alpha)
    except (TypeError, KeyError) as error:  # a reward that needs columns, which are not handed over where it is timed
        how = f"The reward needs more than an answer: {type(error).__name__}: {error}."
        return [speed.measure(sampler, suite, alpha=alpha)[0], not_asked("scoring", "Time to score", how)]


def _suite(prompts: Prompts) -> Suite:
    """The same prompts as a suite, so that stored answers are used again."""
    if not _are_texts(prompts):
        return read_suite(PROMPTS)
    return Suite(prompts.name, tuple(SuitePrompt(str(at), text) for at, text in enumerate(prompts.texts, 1)))


def _are_texts(prompts: Prompts) -> bool:
    return all(isinstance(turns, str) for turns in prompts.turns)


def _input_notes(
    sampler: AnswerSampler, request: ComparisonRequest, prompts: Prompts, other: Prompts | None
) -> list[str]:
    notes = [
        f"{len(prompts)} of {len(request.prompts)} prompts in a drawn order, {sampler.samples} answers of each model"
    ]
    sets = [request.prompts] if request.ood is None else [request.prompts, request.ood]
    notes += [
        f"{each.name}: {each.repeated} rows ask what another asks, and are left out" for each in sets if each.repeated
    ]
    if request.ood is not None and other is not None:
        notes.append(f"{len(other)} of {len(request.ood)} prompts out of distribution")
    suite_sources = (("sycophancy", request.sycophancy), ("benign", request.benign), ("harmful", request.harmful))
    suites = [f"{kind}: {'our own' if name in OWN else name}" for kind, name in suite_sources]
    notes.append(f"suites: {'; '.join(suites)}")
    if not _are_texts(prompts):
        notes.append(f"diversity, length, hedging and speed: on the suite {PROMPTS}, because prompts are conversations")
    notes.append(f"answers of at most {sampler.limit} tokens, sampled at temperature 1 without top-k or top-p")
    faults = request.referee.faults if request.referee is not None else {}
    often = sorted(faults.items(), key=lambda fault: -fault[1])
    notes += [f"not judged, {times} times: {reason}" for reason, times in often[:REASONS]]
    if rest := often[REASONS:]:
        notes.append(f"not judged, {sum(times for _, times in rest)} times: {len(rest)} other reasons")
    return notes
