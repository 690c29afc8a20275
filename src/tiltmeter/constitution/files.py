"""What training reads: revisions as completions, consistent labels as pairs, and every vote in both orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tiltmeter.constitution.mixing import human_pairs, mixed
from tiltmeter.constitution.prompts import Prompt
from tiltmeter.constitution.run import Settings, Steps, comparable
from tiltmeter.rows import Row, write_rows
from tiltmeter.stats.intervals import wilson

SFT, PAIRS, VOTES, MIXED = "sft.jsonl", "pairs.jsonl", "votes.jsonl", "mixed.jsonl"
#: What a letter means by order: in the second one the answers are turned round.
MEANT = ({"A": "first", "B": "second", "tie": "tie"}, {"A": "second", "B": "first", "tie": "tie"})


@dataclass(frozen=True)
class Made:
    """The files, counts for the summary, and sentences for whoever ran it."""

    files: tuple[Path, ...]
    counts: dict[str, Any]
    told: tuple[str, ...]


@dataclass(frozen=True)
class Human:
    """Pairs of people to mix in, and their share of the whole."""

    path: Path
    share: float = 0.5


def written(
    folder: Path,
    prompts: Sequence[Prompt],
    steps: Steps,
    settings: Settings,
    judge: str,
    chat: bool,
    human: Human | None = None,
) -> Made:
    """The files of a folder, from its steps; `chat`: messages instead of texts."""
    made: dict[str, list[Row]] = {}
    counts: dict[str, Any] = {"prompts": len(prompts)} | {step: len(rows) for step, rows in steps.rows.items()}
    told = list(steps.failed)
    if settings.rounds:
        made[SFT], more = _sft(prompts, steps, settings, chat)
        counts["sft"] = len(made[SFT])
        told += more
    if settings.samples:
        made[VOTES] = list(_votes(prompts, steps, settings, judge))
        made[PAIRS] = [_pair(row, by, chat) for row, by in zip(made[VOTES], _given(prompts, made[VOTES]), strict=True)
                       if row["winner_unswapped"] == row["winner_swapped"] in ("first", "second")]  # fmt: skip
        kinds, more = _counted(prompts, steps, settings, made[VOTES], len(made[PAIRS]))
        counts |= kinds
        told += more
    if human is not None:
        made[MIXED], said = mixed(made.get(PAIRS, []), human_pairs(human.path, chat), human.share, settings.seed)
        counts["mixed"] = len(made[MIXED])
        told.append(f"{MIXED}: {said}")
    for name, rows in made.items():
        part = folder / f".{name}"
        write_rows(part, rows)
        part.replace(folder / name)
    return Made(tuple(folder / name for name in made), counts, tuple(told))


def formed(prompt: Prompt, chat: bool) -> Any:
    return prompt.turns if chat else prompt.text


def answered(text: str, chat: bool) -> Any:
    return [{"role": "assistant", "content": text}] if chat else text


def _sft(prompts: Sequence[Prompt], steps: Steps, settings: Settings, chat: bool) -> tuple[list[Row], list[str]]:
    rows, empty, cut = [], 0, 0
    for prompt in prompts:
        revision = steps["revisions"].get(f"{prompt.id}/{settings.rounds}")
        if revision is None:
            continue
        if not revision["text"].strip():
            empty += 1
            continue
        cut += not revision["ended"]
        completion = answered(revision["text"], chat)
        rows.append({"prompt": formed(prompt, chat), "completion": completion, "principle": revision["principle"]})
    told = [f"{SFT}: {empty} empty revisions are left out"] if empty else []
    if cut:
        told.append(f"{SFT}: {cut} of {len(rows)} revisions were cut off at {settings.limit} tokens: raise the limit, "
                    "or the model learns to stop in the middle")  # fmt: skip
    return rows, told


def _votes(prompts: Sequence[Prompt], steps: Steps, settings: Settings, judge: str) -> Iterator[Row]:
    """A row per comparison that was asked in both orders; as `tiltmeter preferences` reads it."""
    for prompt in prompts:
        for at in range(0, settings.samples, 2):
            pair = f"{at}-{at + 1}"
            orders = [steps["labels"].get(f"{prompt.id}/{pair}/{order}") for order in (0, 1)]
            if orders[0] is None or orders[1] is None:
                continue
            winners = [MEANT[order].get(row["better"]) for order, row in enumerate(filter(None, orders))]
            yield {
                "prompt": prompt.text,
                "first": steps["samples"][f"{prompt.id}/{at}"]["text"],
                "second": steps["samples"][f"{prompt.id}/{at + 1}"]["text"],
                "winner_unswapped": winners[0],
                "winner_swapped": winners[1],
                "rater": judge,
                "principle": orders[0]["principle"],
                "id": f"{prompt.id}/{pair}",
            }


def _given(prompts: Sequence[Prompt], votes: Sequence[Row]) -> list[Prompt]:
    by = {prompt.id: prompt for prompt in prompts}
    return [by[row["id"].partition("/")[0]] for row in votes]


def _pair(row: Row, prompt: Prompt, chat: bool) -> Row:
    chosen, rejected = (row["first"], row["second"])[:: 1 if row["winner_unswapped"] == "first" else -1]
    return {
        "prompt": formed(prompt, chat),
        "chosen": answered(chosen, chat),
        "rejected": answered(rejected, chat),
        "source": "ai",
        "rater": row["rater"],
        "principle": row["principle"],
    }


def _counted(
    prompts: Sequence[Prompt], steps: Steps, settings: Settings, votes: Sequence[Row], pairs: int
) -> tuple[dict[str, Any], list[str]]:
    unread = sum(None in (row["winner_unswapped"], row["winner_swapped"]) for row in votes)
    tied = sum(row["winner_unswapped"] == row["winner_swapped"] == "tie" for row in votes)
    unasked = sum(
        (one := steps["samples"].get(f"{prompt.id}/{at}")) is not None
        and (two := steps["samples"].get(f"{prompt.id}/{at + 1}")) is not None
        and not comparable(one["text"], two["text"])
        for prompt in prompts
        for at in range(0, settings.samples, 2)
    )
    judged = len(votes) - unread
    agreed = pairs + tied
    counts: dict[str, Any] = {
        "compared": len(votes), "pairs": pairs, "tied": tied, "inconsistent": judged - agreed, "unreadable": unread,
        "unasked": unasked, "consistency": round(agreed / judged, 4) if judged else None,
        "consistency_interval": [round(end, 4) for end in wilson(agreed / judged, judged)] if judged else None,
    }  # fmt: skip
    masses = [row["mass"] for row in steps["labels"].values() if row.get("mass") is not None]
    counts["name_mass"] = float(f"{median(masses):.4g}") if masses else None
    told = []
    if judged - agreed:
        told.append(f"{judged - agreed} of {judged} comparisons turned with the order of the answers and are left out")
    if unread:
        told.append(f"{unread} comparisons have a reply that is not exactly what was asked for, and are left out")
    if unasked:
        told.append(f"{unasked} comparisons had two identical answers, or an empty one, and were not asked")
    if masses and median(masses) < 0.1:
        told.append(f"the judge gives the two names together a probability of {median(masses):.2g}: it hardly "
                    "understands the question, so believe its labels accordingly")  # fmt: skip
    return counts, told
