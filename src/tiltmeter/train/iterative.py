"""Iterative DPO with rejection sampling: sample, score, pair the best with the worst, train, and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tiltmeter.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import LATER, GoldSource, Request
from tiltmeter.rows import Row, read_rows
from tiltmeter.train import places, processes
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.online import paid
from tiltmeter.train.recipe import Recipe, Stage
from tiltmeter.train.sampling import Sampling, drawn, keep, kept, once, replaced, sampled, spoken, whole
from tiltmeter.train.settings import configured, entropy_weight

OPTIONS = {
    "rounds": "how often it is sampled and trained; 3",
    "samples": "answers to each prompt; 4",
    "prompts_per_round": "prompts drawn for a round; all of them",
    "temperature": "of sampling; 1",
    "limit": "tokens of an answer; 256",
    "entropy_weight": "as in dpo",
}
GOLD_AT_ONCE = 64


@dataclass
class Pairs:
    """What a round's samples come to."""

    rows: list[Row] = field(default_factory=list)
    ties: int = 0  # prompts whose answers are all paid alike, or are one text
    unscored: int = 0  # prompts with fewer than two answers that could be scored
    cut: int = 0  # chosen answers that the limit ended


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for options that cannot work."""
    whole(stage, "rounds", 3)
    whole(stage, "samples", 4, least=2)
    whole(stage, "limit", 256)
    whole(stage, "prompts_per_round", 1)
    entropy_weight(stage)
    temperature = stage.options.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not temperature > 0.0:
        raise AttachError(
            f"stage {stage.name}: options: temperature is above 0, or all answers are one, not {temperature!r}"
        )
    if stage.gold is not None and places.PEOPLE.match(stage.gold):
        raise AttachError(f"stage {stage.name}: gold: people answer too late for a round; name a function or a judge")


def train(context: Context) -> Trained:
    """The policy after all rounds. Each round has its samples, pairs and model in `round-K`."""
    from trl import DPOConfig

    rounds = whole(context.stage, "rounds", 3)
    device = str(configured(context, DPOConfig).device)  # several processes know each other from here on
    policy, told, facts = context.model, [], []
    for number in range(1, rounds + 1):
        folder = context.folder / f"round-{number}"
        said = once(folder / "round.json", lambda: _round(context, number, folder, policy, device))  # noqa: B023
        facts.append(said)
        told += _sentences(said)
        if not said["pairs"]:
            break
        policy = folder / "model"
    files = [
        context.folder / f"round-{said['round']}" / name for said in facts for name in ("samples.jsonl", "pairs.jsonl")
    ]
    return Trained((policy,), tuple(files), {"rounds": facts, **_whole_of(facts)}, tuple(told))


def paired(samples: Sequence[Row]) -> Pairs:
    """The best answer to each prompt against the worst, by reward alone.

    >>> row = {"prompt": "2 and 2?", "completions": ["4", "5", "6"], "rewards": [1.0, None, 0.0], "ended": [True] * 3}
    >>> found = paired([row, {**row, "rewards": [1.0, 1.0, 1.0]}, {**row, "rewards": [None, None, 1.0]}])
    >>> found.rows[0]["chosen"], found.rows[0]["rejected"], found.ties, found.unscored
    ('4', '6', 1, 1)
    """
    found = Pairs()
    for row in samples:
        scored = [at for at, reward in enumerate(row["rewards"]) if reward is not None]
        if len(scored) < 2:
            found.unscored += 1
            continue
        best, worst = (rule(scored, key=lambda at: row["rewards"][at]) for rule in (max, min))
        texts, prompt = row["completions"], row["prompt"]
        if row["rewards"][best] == row["rewards"][worst] or texts[best] == texts[worst]:
            found.ties += 1
            continue
        found.cut += not row["ended"][best]
        found.rows.append(
            {
                "prompt": prompt,
                "chosen": spoken(texts[best], prompt),
                "rejected": spoken(texts[worst], prompt),
                "score_chosen": row["rewards"][best],
                "score_rejected": row["rewards"][worst],
            }
        )
    return found


def _round(context: Context, number: int, folder: Path, policy: Path, device: str) -> dict[str, Any]:
    stage, seed = context.stage, f"{context.recipe.seed}/{context.stage.name}/{number}"
    assert context.data is not None
    rows = read_rows(context.data)
    how = Sampling(
        whole(stage, "samples", 4, least=2),
        whole(stage, "limit", 256),
        float(stage.options.get("temperature", 1.0)),
        context.recipe.seed + 7919 * number,
    )
    if processes.main():
        reward = paid(context, limit=how.limit, device=device, alone=True)
        if number > 1:  # the guards go on learning from round to round
            reward.restore(kept(folder.with_name(f"round-{number - 1}") / "samples.jsonl")[-1]["learnt"])
        order = drawn(len(rows), stage.options.get("prompts_per_round"), seed)
        samples = sampled(folder / "samples.jsonl", policy, rows, order, how, reward, context.progress)
        replaced(folder / "pairs.jsonl", paired(samples).rows)
        _report(context, folder / "gold.jsonl", samples, rows)
    processes.wait()
    samples = kept(folder / "samples.jsonl")
    found, paying = paired(samples), [one for row in samples for one in row["rewards"] if one is not None]
    said: dict[str, Any] = {
        "round": number,
        "prompts": len(samples),
        "mean_reward": fmean(paying) if paying else None,
        "pairs": len(found.rows),
        "ties": found.ties,
        "unscored": found.unscored,
        "cut": found.cut,
        **_gold(folder / "gold.jsonl"),
    }
    if not found.rows:
        if number == 1:
            raise AttachError(
                f"stage {stage.name}: not one of {len(samples)} prompts has answers that are paid differently "
                f"({found.ties} ties, {found.unscored} unscored; see {folder / 'samples.jsonl'}): raise "
                "options: samples or temperature, or look at the reward"
            )
        return said
    trained = _dpo(context, folder, policy)
    return {**said, **{name: trained.facts.get(name) for name in ("steps", "seconds", "last", "alarms")}}


def _dpo(context: Context, folder: Path, policy: Path) -> Trained:
    """One round of TRL's DPO, whose reference is the policy that the samples came from."""
    from tiltmeter.train import preference

    kept_options = {name: value for name, value in context.stage.options.items() if name == "entropy_weight"}
    stage = replace(context.stage, method="dpo", rewards=(), guards=(), gold=None, options=kept_options)
    return preference.train(
        replace(context, stage=stage, folder=folder, model=policy, data=folder / "pairs.jsonl", rewards=())
    )


def _report(context: Context, path: Path, samples: Sequence[Row], rows: Sequence[Row]) -> None:
    """What gold says of each prompt's first answer, which is a plain sample of the policy; nothing is ranked by it."""
    if context.stage.gold is None:
        return
    from tiltmeter.config import load_gold

    source = load_gold(context.stage.gold)
    done = len(kept(path))
    for first in range(done, len(samples), GOLD_AT_ONCE):
        part = samples[first : first + GOLD_AT_ONCE]
        keep(
            path,
            [{"row": row["row"], "gold": gold} for row, gold in zip(part, _asked(source, part, rows), strict=True)],
        )
        context.progress("gold", min(first + GOLD_AT_ONCE, len(samples)), len(samples))


def _asked(source: GoldSource, samples: Sequence[Row], rows: Sequence[Row]) -> list[float | None]:
    from tiltmeter.gold.files import checked

    requests = []
    for number, sample in enumerate(samples):
        facts = {name: value for name, value in rows[sample["row"]].items() if name != "prompt"}
        facts |= {"length": sample["lengths"][0], "truncated": not sample["ended"][0]}
        text = plain_text(sample["prompt"])
        requests.append(Request(str(number), 0, 0, sample["row"], "report", text, sample["completions"][0], facts))
    return [checked(None if told is LATER else told).value for told in source.label(requests)]


def _gold(path: Path) -> dict[str, Any]:
    told = [row["gold"] for row in kept(path) if row["gold"] is not None]
    return {"gold": fmean(told) if told else None, "gold_answers": len(told)}


def _whole_of(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = {name: sum(said.get(name) or 0 for said in facts) for name in ("steps", "seconds", "alarms")}
    return {**total, "mean_reward": facts[-1]["mean_reward"]}


def _sentences(said: dict[str, Any]) -> list[str]:
    number, left = said["round"], []
    if not said["pairs"]:
        return [f"Round {number}: no prompt has answers that are paid differently any more; no further round."]
    if said["ties"] or said["unscored"]:
        left.append(
            f"Round {number}: {said['pairs']} pairs; {said['ties']} of {said['prompts']} prompts were dropped as ties, "
            f"{said['unscored']} as unscored."
        )
    if said["cut"]:
        left.append(f"Round {number}: {said['cut']} chosen answers were cut off at the limit; raise options: limit.")
    return left
