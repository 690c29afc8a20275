"""Which phrases each of twelve models over-uses, compared with what other models wrote to the same prompts.

    python benchmarks/phrases.py [--json]

Writes `benchmarks/results/phrases.json` and, from it, `docs/phrases.md`. Each model's 100 answers are compared with
those of the models of other families; a prompt is the unit. Phrases are cut to 6 words.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from record import RESULTS, record
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.instruments.phrases import OverusedPhrases, phrases_overused_in
from tiltmeter.safety.safe_text import visible

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "creative_outputs_slop_score" / "outputs.jsonl.gz"
PAGE = ROOT / "docs" / "phrases.md"

MOST, WORDS = 10, 6

Answers = dict[str, dict[int, str]]


def answers() -> Answers:
    """By model and prompt."""
    found: Answers = {}
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            found.setdefault(row["model"], {})[row["prompt_index"]] = row["output"]
    return found


def family(model: str) -> str:
    return model.split("-")[0]


def batch(found: Answers, models: list[str]) -> RolloutBatch:
    """The answers of these models, a group for each prompt."""
    prompts = sorted(found[models[0]])
    texts = [found[model][prompt] for prompt in prompts for model in models]
    group = np.repeat(prompts, len(models))
    return from_columns(0, group, completion=texts, prompt=[f"prompt {number}" for number in group])


def measure(found: Answers) -> dict[str, Any]:
    """By model: phrases as [words, share of its answers, share of the others' answers, z], strongest first."""
    models: dict[str, Any] = {}
    for model in sorted(found):
        own = batch(found, [model])
        others = [other for other in sorted(found) if family(other) != family(model)]
        pool = Baseline(batch(found, others))
        phrases = phrases_overused_in(own, pool, 1_000)
        counts = OverusedPhrases().measure(own, pool)["count"]
        models[model] = {
            "against": len(others),
            "over_used": len(phrases),
            "per_answer": round(float(counts.mean()), 2),
            "phrases": [
                [
                    " ".join(phrase.text.split()[:WORDS]),
                    round(phrase.share, 3),
                    round(phrase.share_before, 3),
                    round(phrase.z, 1),
                ]
                for phrase in phrases[:MOST]
            ],
        }
    return models


def cell(text: str) -> str:
    """Text that a model wrote, inert in a table cell of a Markdown page."""
    shown = html.escape(visible(text), quote=False).replace("\n", " ")
    return re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", shown)


def page(result: dict[str, Any]) -> str:
    """The page for people, from the result alone."""
    models = sorted(result["models"].items(), key=lambda item: (-item[1]["per_answer"], item[0]))
    lines = [
        "# Over-used phrases",
        "",
        "What [`text.overused`](instruments.md#textoverused) finds in real text: twelve models wrote to the same 100",
        "creative-writing prompts, and each is compared with the models of other families. A family is what a model's",
        "name begins with, up to the first hyphen. A phrase counts once per answer, and is listed when it is over-used",
        "at a false discovery rate of 1%. Nobody chose the phrases. For your own run there is",
        "[`tiltmeter rollouts --phrases`](cli.md#rollouts).",
        "",
        "| model | over-used phrases | per answer | strongest: share of its answers (of the others' answers) |",
        "|---|---:|---:|---|",
    ]
    for model, found in models:
        told = [f"“{cell(words)}” {100 * now:.0f}% ({100 * before:.0f}%)" for words, now, before, _ in found["phrases"]]
        shown = "; ".join(told) or "none"
        lines.append(f"| {cell(model)} | {found['over_used']} | {found['per_answer']:.1f} | {shown} |")
    lines += [
        "",
        "Many are names, props and openings that a model reaches for whatever the prompt asks. Words are runs of",
        "letters and digits, with an apostrophe only between two of them: “1 000 words” was “1,000 words”, and “wasn”",
        "is what is left where a model writes “wasn’ a” for “wasn’t a”.",
        "",
        f"Data: {result['source']}.",
        "",
        f"Made by `{result['command']}` from `benchmarks/results/phrases.json`; phrases are cut to {WORDS} words.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="nothing here is random; kept for the record")
    parser.add_argument("--quick", action="store_true", help="write nothing")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not DATA.exists():
        print("not measured: the answers of slop-score are not on this machine", file=sys.stderr)
        print(json.dumps({"measured": False}) if asked.json else "not measured")
        return 0
    source = "sam-paech/slop-score at commit 289264ab, `results/`, MIT licence; 12 models, the first 100 common prompts"
    result = {"source": source, "models": measure(answers())} | record("phrases", {}, seed=asked.seed, keep=False)
    if not asked.quick:
        (RESULTS / "phrases.json").write_text(json.dumps(result, indent=1, ensure_ascii=True) + "\n")
        PAGE.write_text(page(result), encoding="utf-8")
    if asked.json:
        print(json.dumps(result))
    else:
        print(page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
