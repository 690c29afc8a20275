"""Iterative DPO with rejection sampling: sample, score, pair the best with the worst, train, and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import LATER, CompletionToLabel, GoldSource
from tiltmeter.gold.label_files import to_label
from tiltmeter.monitor.parts import load_gold
from tiltmeter_workbench.common.table_files import Row, read_rows
from tiltmeter_workbench.train import distributed, references
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.methods import dpo
from tiltmeter_workbench.train.methods.grpo import build_reward
from tiltmeter_workbench.train.methods.round_drift import Gold, drift_summary, stop_rule
from tiltmeter_workbench.train.methods.sampling import (
    SamplingSettings,
    append_jsonl,
    as_completion,
    draw_order,
    int_option,
    read_jsonl,
    rewrite_jsonl,
    run_once,
    sample_answers,
)
from tiltmeter_workbench.train.recipe import Recipe, Stage
from tiltmeter_workbench.train.trl_trainer import entropy_weight, make_config

OPTIONS = {
    "rounds": "how often it is sampled and trained; 3",
    "samples": "answers to each prompt; 4",
    "prompts_per_round": "prompts drawn for a round; all of them",
    "temperature": "of sampling; 1",
    "limit": "tokens of an answer; 256",
    "stop": "whether rounds end once gold has fallen beyond chance; true",
    "entropy_weight": "as in dpo",
}
GOLD_BATCH = 64


@dataclass
class RoundPairs:
    """Preference pairs of one round's samples, with counts of dropped prompts."""

    rows: list[Row] = field(default_factory=list)
    ties: int = 0  # prompts whose answers all have one reward, or are one text
    unscored: int = 0  # prompts with fewer than two answers that could be scored
    cut: int = 0  # chosen answers that the limit ended


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for options that cannot work."""
    int_option(stage, "rounds", 3)
    int_option(stage, "samples", 4, least=2)
    int_option(stage, "limit", 256)
    int_option(stage, "prompts_per_round", 1)
    entropy_weight(stage)
    if not isinstance(stage.options.get("stop", True), bool):
        raise AttachError(f"stage {stage.name}: options: stop is true or false, not {stage.options['stop']!r}")
    temperature = stage.options.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not temperature > 0.0:
        raise AttachError(
            f"stage {stage.name}: options: temperature is above 0, or all answers are one, not {temperature!r}"
        )
    if stage.gold is not None and references.PEOPLE.match(stage.gold):
        raise AttachError(f"stage {stage.name}: gold: people answer too late for a round; name a function or a judge")


def train(context: Context) -> StageOutput:
    """The policy after all rounds. Each round has its samples, pairs and model in `round-K`."""
    from trl import DPOConfig

    rounds = int_option(context.stage, "rounds", 3)
    device = str(make_config(context, DPOConfig).device)  # several processes know each other from here on
    policy, notes, facts = context.model, [], []
    for number in range(1, rounds + 1):
        folder = context.folder / f"round-{number}"
        summary = run_once(folder / "round.json", lambda: _run_round(context, number, folder, policy, device))  # noqa: B023
        facts.append(summary)
        notes += _notes(summary)
        if not summary["pairs"]:
            break
        if best := summary.get("go_back_to"):
            # What was sampled in the best round is the policy of the round before it.
            policy = context.model if best == 1 else context.folder / f"round-{best - 1}" / "model"
            break
        policy = folder / "model"
    files = [
        context.folder / f"round-{summary['round']}" / name
        for summary in facts
        for name in ("samples.jsonl", "pairs.jsonl")
    ]
    return StageOutput((policy,), tuple(files), {"rounds": facts, **_totals(facts)}, tuple(notes))


def pair_best_with_worst(samples: Sequence[Row]) -> RoundPairs:
    """The best answer to each prompt against the worst, by reward alone.

    >>> row = {"prompt": "2 and 2?", "completions": ["4", "5", "6"], "rewards": [1.0, None, 0.0], "ended": [True] * 3}
    >>> found = pair_best_with_worst([row, {**row, "rewards": [1.0, 1.0, 1.0]}, {**row, "rewards": [None, None, 1.0]}])
    >>> found.rows[0]["chosen"], found.rows[0]["rejected"], found.ties, found.unscored
    ('4', '6', 1, 1)
    """
    pairs = RoundPairs()
    for row in samples:
        scored = [at for at, reward in enumerate(row["rewards"]) if reward is not None]
        if len(scored) < 2:
            pairs.unscored += 1
            continue
        best, worst = (rule(scored, key=lambda at: row["rewards"][at]) for rule in (max, min))
        texts, prompt = row["completions"], row["prompt"]
        if row["rewards"][best] == row["rewards"][worst] or texts[best] == texts[worst]:
            pairs.ties += 1
            continue
        pairs.cut += not row["ended"][best]
        pairs.rows.append(
            {
                "prompt": prompt,
                "chosen": as_completion(texts[best], prompt),
                "rejected": as_completion(texts[worst], prompt),
                "score_chosen": row["rewards"][best],
                "score_rejected": row["rewards"][worst],
            }
        )
    return pairs


def _run_round(context: Context, number: int, folder: Path, policy: Path, device: str) -> dict[str, Any]:
    stage, seed = context.stage, f"{context.recipe.seed}/{context.stage.name}/{number}"
    assert context.data is not None
    rows = read_rows(context.data)
    sampling = SamplingSettings(
        int_option(stage, "samples", 4, least=2),
        int_option(stage, "limit", 256),
        float(stage.options.get("temperature", 1.0)),
        context.recipe.seed + 7919 * number,
    )
    if distributed.is_main_process():
        reward = build_reward(context, limit=sampling.limit, device=device, single_process=True)
        if number > 1:  # the guards go on learning from round to round
            reward.restore(read_jsonl(folder.with_name(f"round-{number - 1}") / "samples.jsonl")[-1]["learnt"])
        order = draw_order(len(rows), stage.options.get("prompts_per_round"), seed)
        samples = sample_answers(folder / "samples.jsonl", policy, rows, order, sampling, reward, context.progress)
        rewrite_jsonl(folder / "pairs.jsonl", pair_best_with_worst(samples).rows)
        _record_gold(context, folder / "gold.jsonl", samples, rows)
    distributed.wait_for_everyone()
    samples = read_jsonl(folder / "samples.jsonl")
    pairs, scores = pair_best_with_worst(samples), [one for row in samples for one in row["rewards"] if one is not None]
    summary: dict[str, Any] = {
        "round": number,
        "prompts": len(samples),
        "mean_reward": fmean(scores) if scores else None,
        "pairs": len(pairs.rows),
        "ties": pairs.ties,
        "unscored": pairs.unscored,
        "cut": pairs.cut,
        **_gold_summary(folder / "gold.jsonl"),
        **drift_summary(samples, pairs.rows),
    }
    rule = stop_rule([_gold_by_row(folder.with_name(f"round-{at}") / "gold.jsonl") for at in range(1, number + 1)])
    if stage.gold is not None and rule.stop:
        summary["fall_odds"] = rule.odds
        if stage.options.get("stop", True) and pairs.rows:
            return {**summary, "go_back_to": rule.best}
    if not pairs.rows:
        if number == 1:
            raise AttachError(
                f"stage {stage.name}: not one of {len(samples)} prompts has answers that are paid differently "
                f"({pairs.ties} ties, {pairs.unscored} unscored; see {folder / 'samples.jsonl'}): raise "
                "options: samples or temperature, or look at the reward"
            )
        return summary
    trained = _train_dpo(context, folder, policy)
    return {**summary, **{name: trained.facts.get(name) for name in ("steps", "seconds", "last", "alarms")}}


def _train_dpo(context: Context, folder: Path, policy: Path) -> StageOutput:
    """One round of TRL's DPO, whose reference is the policy that the samples came from."""
    kept_options = {name: value for name, value in context.stage.options.items() if name == "entropy_weight"}
    stage = replace(context.stage, method="dpo", rewards=(), guards=(), gold=None, options=kept_options)
    return dpo.train(
        replace(context, stage=stage, folder=folder, model=policy, data=folder / "pairs.jsonl", rewards=())
    )


def _record_gold(context: Context, path: Path, samples: Sequence[Row], rows: Sequence[Row]) -> None:
    """Gold labels of each prompt's first answer, an unselected sample of the policy; nothing is ranked by them."""
    if context.stage.gold is None:
        return
    source = load_gold(context.stage.gold)
    done = len(read_jsonl(path))
    for first in range(done, len(samples), GOLD_BATCH):
        part = samples[first : first + GOLD_BATCH]
        append_jsonl(
            path,
            [{"row": row["row"], "gold": gold} for row, gold in zip(part, _ask_gold(source, part, rows), strict=True)],
        )
        context.progress("gold", min(first + GOLD_BATCH, len(samples)), len(samples))


def _ask_gold(source: GoldSource, samples: Sequence[Row], rows: Sequence[Row]) -> list[float | None]:
    requests = []
    for number, sample in enumerate(samples):
        facts = {name: value for name, value in rows[sample["row"]].items() if name != "prompt"}
        facts |= {"length": sample["lengths"][0], "truncated": not sample["ended"][0]}
        text = plain_text(sample["prompt"])
        requests.append(
            CompletionToLabel(str(number), 0, 0, sample["row"], "report", text, sample["completions"][0], facts)
        )
    return [to_label(None if answer is LATER else answer).value for answer in source.label(requests)]


def _gold_summary(path: Path) -> dict[str, Any]:
    labels = [row["gold"] for row in read_jsonl(path) if row["gold"] is not None]
    return {"gold": fmean(labels) if labels else None, "gold_answers": len(labels)}


def _gold_by_row(path: Path) -> Gold:
    return {row["row"]: row["gold"] for row in read_jsonl(path)}


def _totals(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = {name: sum(summary.get(name) or 0 for summary in facts) for name in ("steps", "seconds", "alarms")}
    return {**total, "mean_reward": facts[-1]["mean_reward"]}


def _notes(summary: dict[str, Any]) -> list[str]:
    number, notes = summary["round"], []
    if not summary["pairs"]:
        return [f"Round {number}: no prompt has answers that are paid differently any more; no further round."]
    if "fall_odds" in summary:
        odds = f"odds {min(summary['fall_odds'], 1e9):.0f} to 1; a chance of at most 1 % where no round is worse"
        best = summary.get("go_back_to")
        model = "the model that the rounds began with" if best == 1 else f"the model of round {(best or 0) - 1}"
        end = f"no further round, and {model} is kept" if best else "it goes on, because options: stop is false"
        notes.append(f"Round {number}: gold has fallen ({odds}): {end}.")
    if summary["ties"] or summary["unscored"]:
        notes.append(
            f"Round {number}: {summary['pairs']} pairs; {summary['ties']} of {summary['prompts']} prompts were dropped "
            f"as ties, {summary['unscored']} as unscored."
        )
    if summary["cut"]:
        notes.append(
            f"Round {number}: {summary['cut']} chosen answers were cut off at the limit; raise options: limit."
        )
    return notes
