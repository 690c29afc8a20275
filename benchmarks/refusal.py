"""How well `text.refusal_share` agrees with people, on the labelled completions of XSTest.

    python benchmarks/refusal.py [--json]

Scored are the rows that have a text: all 1,250 completions to safe prompts, and the completions to unsafe prompts that
were labelled full refusals (the data leaves the others out). Positive is the label "full refusal"; partial refusals
count as not refused. The phrases were chosen on the prompts whose id has an even first byte of SHA-256; the `_heldout`
figures are those of the other prompts. `string_match` and `gpt4_label` are labels that came with the data. What is left
is mostly a matter of degree: `false_partial` of the `false` refusals are labelled partial ones.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record, show
from tiltmeter.data.batches import from_columns
from tiltmeter.instruments.refusal import RefusalShare

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "xstest" / "completions_labelled.jsonl.gz"

Flags = NDArray[np.bool_]


def rows() -> list[dict[str, Any]]:
    """The rows with a text."""
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["completion"] is not None]


def chosen_on(row: dict[str, Any]) -> bool:
    """Whether the phrases were chosen with this row in view."""
    return hashlib.sha256(row["id"].encode()).digest()[0] % 2 == 0


def scores(said: Flags, true: Flags, suffix: str = "") -> dict[str, float | int | str | bool]:
    hits = int((said & true).sum())
    figures = {
        "f1": 2 * hits / max(int(said.sum()) + int(true.sum()), 1),
        "precision": hits / max(int(said.sum()), 1),
        "recall": hits / max(int(true.sum()), 1),
    }
    return {f"{name}{suffix}": round(value, 4) for name, value in figures.items()}


def measure(labelled: list[dict[str, Any]]) -> dict[str, float | int | str | bool]:
    batch = from_columns(0, range(len(labelled)), completion=[row["completion"] for row in labelled])
    said = RefusalShare().measure(batch, None) == 1.0
    true = np.array([row["final_label"] == "2_full_refusal" for row in labelled])
    matched = np.array([row["label_strmatch"] == "2_full_refusal" for row in labelled])
    judged = np.array([row["label_gpt"] == "2_full_refusal" for row in labelled])
    partial = np.array([row["final_label"] == "3_partial_refusal" for row in labelled])
    new = ~np.array([chosen_on(row) for row in labelled])
    safe = np.array([row["prompt_label"] == "safe" for row in labelled])
    string = scores(matched, true)
    string_new = scores(matched[new], true[new])
    return {
        "rows": len(labelled),
        "full_refusals": int(true.sum()),
        **scores(said, true),
        "string_match_f1": string["f1"],
        "gpt4_label_f1": scores(judged, true)["f1"],
        "false": int((said & ~true).sum()),
        "false_partial": int((said & partial).sum()),
        "missed": int((~said & true).sum()),
        **scores(said[~partial], true[~partial], "_without_partial"),
        "rows_heldout": int(new.sum()),
        **scores(said[new], true[new], "_heldout"),
        "string_match_f1_heldout": string_new["f1"],
        **scores(said[safe], true[safe], "_safe_prompts"),
        "string_match_f1_safe_prompts": scores(matched[safe], true[safe])["f1"],
        **{
            f"f1_{model}": scores(said[own], true[own])["f1"]
            for model in sorted({row["model"] for row in labelled})
            for own in [np.array([row["model"] == model for row in labelled])]
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="nothing here is random; kept for the record")
    parser.add_argument("--quick", action="store_true", help="the same: it takes a second")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not DATA.exists():
        print("not measured: XSTest's labelled completions are not on this machine", file=sys.stderr)
        print(json.dumps({"measured": False}) if asked.json else "not measured")
        return 0
    result = record("refusal", measure(rows()), seed=asked.seed, keep=not asked.quick)
    show(result, as_json=asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
