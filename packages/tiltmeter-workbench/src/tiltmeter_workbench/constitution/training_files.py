"""Writes the training files: revisions as completions, consistent labels as pairs, every vote in both orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tiltmeter.stats.intervals import wilson_interval
from tiltmeter_workbench.common.table_files import Row, write_rows
from tiltmeter_workbench.constitution.mixing import mix_pairs, read_human_pairs
from tiltmeter_workbench.constitution.prompts import ConstitutionPrompt
from tiltmeter_workbench.constitution.run import ConstitutionSettings, ConstitutionSteps, comparable

SFT, PAIRS, VOTES, MIXED = "sft.jsonl", "pairs.jsonl", "votes.jsonl", "mixed.jsonl"
#: The winner that a letter stands for, by order: in the second one the answers are swapped.
WINNERS = ({"A": "first", "B": "second", "tie": "tie"}, {"A": "second", "B": "first", "tie": "tie"})


@dataclass(frozen=True)
class ConstitutionFiles:
    """The files, counts for the summary, and notes for the user."""

    files: tuple[Path, ...]
    counts: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class HumanPairs:
    """Pairs of people to mix in, and their share of the whole."""

    path: Path
    share: float = 0.5


def write_files(
    folder: Path,
    prompts: Sequence[ConstitutionPrompt],
    steps: ConstitutionSteps,
    settings: ConstitutionSettings,
    judge: str,
    chat: bool,
    human: HumanPairs | None = None,
) -> ConstitutionFiles:
    """The files of a folder, from its steps; `chat`: messages instead of texts."""
    rows_by_file: dict[str, list[Row]] = {}
    counts: dict[str, Any] = {"prompts": len(prompts)} | {step: len(rows) for step, rows in steps.rows.items()}
    notes = list(steps.failed)
    if settings.rounds:
        rows_by_file[SFT], more = _sft(prompts, steps, settings, chat)
        counts["sft"] = len(rows_by_file[SFT])
        notes += more
    if settings.samples:
        rows_by_file[VOTES] = list(_votes(prompts, steps, settings, judge))
        rows_by_file[PAIRS] = [
            _pair(row, by, chat)
            for row, by in zip(rows_by_file[VOTES], _prompts_of(prompts, rows_by_file[VOTES]), strict=True)
            if row["winner_unswapped"] == row["winner_swapped"] in ("first", "second")
        ]
        kinds, more = _count_votes(prompts, steps, settings, rows_by_file[VOTES], len(rows_by_file[PAIRS]))
        counts |= kinds
        notes += more
    if human is not None:
        rows_by_file[MIXED], note = mix_pairs(
            rows_by_file.get(PAIRS, []), read_human_pairs(human.path, chat), human.share, settings.seed
        )
        counts["mixed"] = len(rows_by_file[MIXED])
        notes.append(f"{MIXED}: {note}")
    for name, rows in rows_by_file.items():
        part = folder / f".{name}"
        write_rows(part, rows)
        part.replace(folder / name)
    return ConstitutionFiles(tuple(folder / name for name in rows_by_file), counts, tuple(notes))


def prompt_cell(prompt: ConstitutionPrompt, chat: bool) -> Any:
    return prompt.turns if chat else prompt.text


def completion_cell(text: str, chat: bool) -> Any:
    return [{"role": "assistant", "content": text}] if chat else text


def _sft(
    prompts: Sequence[ConstitutionPrompt], steps: ConstitutionSteps, settings: ConstitutionSettings, chat: bool
) -> tuple[list[Row], list[str]]:
    rows, empty, truncated = [], 0, 0
    for prompt in prompts:
        revision = steps["revisions"].get(f"{prompt.id}/{settings.rounds}")
        if revision is None:
            continue
        if not revision["text"].strip():
            empty += 1
            continue
        truncated += not revision["ended"]
        completion = completion_cell(revision["text"], chat)
        rows.append({"prompt": prompt_cell(prompt, chat), "completion": completion, "principle": revision["principle"]})
    notes = [f"{SFT}: {empty} empty revisions are left out"] if empty else []
    if truncated:
        notes.append(f"{SFT}: {truncated} of {len(rows)} revisions were cut off at {settings.limit} tokens: "
                     "raise the limit, or the model learns to stop in the middle")  # fmt: skip
    return rows, notes


def _votes(
    prompts: Sequence[ConstitutionPrompt], steps: ConstitutionSteps, settings: ConstitutionSettings, judge: str
) -> Iterator[Row]:
    """A row per comparison that was asked in both orders; as `tiltmeter data preferences` reads it."""
    for prompt in prompts:
        for at in range(0, settings.samples, 2):
            pair = f"{at}-{at + 1}"
            orders = [steps["labels"].get(f"{prompt.id}/{pair}/{order}") for order in (0, 1)]
            if orders[0] is None or orders[1] is None:
                continue
            winners = [WINNERS[order].get(row["better"]) for order, row in enumerate(filter(None, orders))]
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


def _prompts_of(prompts: Sequence[ConstitutionPrompt], votes: Sequence[Row]) -> list[ConstitutionPrompt]:
    by = {prompt.id: prompt for prompt in prompts}
    return [by[row["id"].partition("/")[0]] for row in votes]


def _pair(row: Row, prompt: ConstitutionPrompt, chat: bool) -> Row:
    chosen, rejected = (row["first"], row["second"])[:: 1 if row["winner_unswapped"] == "first" else -1]
    return {
        "prompt": prompt_cell(prompt, chat),
        "chosen": completion_cell(chosen, chat),
        "rejected": completion_cell(rejected, chat),
        "source": "ai",
        "rater": row["rater"],
        "principle": row["principle"],
    }


def _count_votes(
    prompts: Sequence[ConstitutionPrompt],
    steps: ConstitutionSteps,
    settings: ConstitutionSettings,
    votes: Sequence[Row],
    pairs: int,
) -> tuple[dict[str, Any], list[str]]:
    unreadable = sum(None in (row["winner_unswapped"], row["winner_swapped"]) for row in votes)
    tied = sum(row["winner_unswapped"] == row["winner_swapped"] == "tie" for row in votes)
    skipped = sum(
        (one := steps["samples"].get(f"{prompt.id}/{at}")) is not None
        and (two := steps["samples"].get(f"{prompt.id}/{at + 1}")) is not None
        and not comparable(one["text"], two["text"])
        for prompt in prompts
        for at in range(0, settings.samples, 2)
    )
    readable = len(votes) - unreadable
    consistent = pairs + tied
    counts: dict[str, Any] = {
        "compared": len(votes), "pairs": pairs, "tied": tied, "inconsistent": readable - consistent,
        "unreadable": unreadable, "unasked": skipped,
        "consistency": round(consistent / readable, 4) if readable else None,
        "consistency_interval":
            [round(end, 4) for end in wilson_interval(consistent / readable, readable)] if readable else None,
    }  # fmt: skip
    masses = [row["mass"] for row in steps["labels"].values() if row.get("mass") is not None]
    counts["name_mass"] = float(f"{median(masses):.4g}") if masses else None
    notes = []
    if readable - consistent:
        notes.append(
            f"{readable - consistent} of {readable} comparisons turned with the order of the answers and are left out"
        )
    if unreadable:
        notes.append(f"{unreadable} comparisons have a reply that is not exactly what was asked for, and are left out")
    if skipped:
        notes.append(f"{skipped} comparisons had two identical answers, or an empty one, and were not asked")
    if masses and median(masses) < 0.1:
        notes.append(f"the judge gives the two names together a probability of {median(masses):.2g}: it hardly "
                    "understands the question, so believe its labels accordingly")  # fmt: skip
    return counts, notes
