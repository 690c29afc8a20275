"""Runs to look at: one for each state that a page must show well, made from the two that `tiltmeter demo` ships.

python benchmarks/page_runs.py FOLDER     # makes them there, then: tiltmeter view FOLDER
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter import Options, open_run
from tiltmeter.cli.demo import copy
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Reading, RolloutBatch
from tiltmeter.data.token_pieces import TokenPieces
from tiltmeter.data.turns import Turn
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir import verifier_audits as audits
from tiltmeter.rundir.journal import Event, Journal, event_id, reading_event
from tiltmeter.rundir.reading_room.pieces import write_pieces
from tiltmeter.rundir.store import RunDirectory

STEPS = 84  # of the shipped runs
HOSTILE_NAME = "<img src=x onerror=alert(1)>[bold]\u202e"


def make(folder: Path) -> dict[str, Path]:
    """One run directory a state, measured, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: folder / name for name in ("hacked", "healthy", "blind", "empty", "rewound")}
    copy(files("tiltmeter.cli") / "demo_runs" / "hacked", found["hacked"])
    copy(files("tiltmeter.cli") / "demo_runs" / "honest", found["healthy"])
    hacked, healthy = list(batches("hacked")), list(batches("honest"))
    unlabelled = [replace(batch, gold=None, gold_chance=None) for batch in hacked]
    write(found["blind"], [unlabelled])
    write(found["rewound"], [hacked[:60], [replace(batch, attempt=1) for batch in healthy[30:]]])
    RunDirectory.create(found["empty"])
    for name in ("hacked", "healthy", "blind", "rewound"):
        measure(RunDirectory(found[name]))
    return found


def batches(name: str) -> Iterator[RolloutBatch]:
    """The shipped rollouts of a run, step by step."""
    run = RunDirectory(Path(str(files("tiltmeter.cli"))) / "demo_runs" / name)
    for file in run.files(0):
        yield run.read(file)[0]


def write(path: Path, attempts: Iterable[Iterable[RolloutBatch]], *, end: bool = True) -> RunDirectory:
    """A run directory with these batches, one list an attempt, not measured yet."""
    run = RunDirectory.create(path)
    for number, steps in enumerate(attempts):
        steps = list(steps)
        run.open_attempt(launch=f"launch {number}", ranks=1, resume_step=steps[0].step if number else None)
        for count, batch in enumerate(steps, 1):
            run.write(batch, 0, {"counters": {"seen": count, "written": count}, "time": time.time()})
        if end:
            run.close_rank(number, 0, {"seen": len(steps), "written": len(steps)})
    return run


def measure(run: RunDirectory, config: Config | None = None) -> None:
    """Everything that is stored, by the loop that measures live runs."""
    watch = MonitorLoop(run, config or Config.standard())
    while watch.poll():
        pass
    watch.close()


def hostile(path: Path, texts: list[str], group: int = 4) -> RunDirectory:
    """A run in which all that can be foreign text is one of these: prompts, completions, names of rewards, facts.

    Every text is the completion of one row and the prompt of another; gold falls while the reward rises, so that
    alarms, findings and their examples carry them too.
    """
    rng = np.random.default_rng(5)
    rows = 16 * group
    steps = -(-len(texts) // rows)
    batches: list[RolloutBatch] = []
    for step in range(max(steps, 60)):
        base = [texts[(step * rows + k) % len(texts)] for k in range(rows)]
        reward = rng.random(rows) + step / 30.0
        gold = (rng.random(rows) < np.clip(1.1 - step / 20.0 - 0.9 * (reward - reward.mean()), 0.0, 1.0)).astype(float)
        batches.append(
            from_columns(
                step,
                np.repeat(np.arange(16), group),
                reward=reward,
                rewards={texts[0]: reward / 2, texts[120]: reward / 2, "plain": np.zeros(rows)},
                gold=gold,
                prompt=[texts[(step * 16 + k // group) % len(texts)] for k in range(rows)],
                completion=base,
                facts=[{"answer": text[:200]} for text in base],
                length=np.array([len(text) for text in base]),
            )
        )
    told = {"canary.asked.judge.low.0.0": 2.0, "canary.failed.judge.low.0.0": 1.0}
    run = write(path, [[replace(batch, scalars=told) for batch in batches]])
    measure(run)
    audits.write_guards(run, 0, [dict.fromkeys(("reward", "kind", "expect", "text"), texts[3][:200])], [])
    forged = [_forged(text[:190], text[:3000]) for text in texts[:40]]
    checks = [{"name": text[:200], "ok": False, "says": text[:2000], "fix": text[:200]} for text in texts[40:50]]
    audits.write_audit(run, {**_record(texts[50][:200]), "why": texts[51][:900], "tried": forged, "checks": checks})
    return run


def fooled(path: Path, steps: int = 90) -> RunDirectory:
    """A run of three workers, one of which is taken over at step 62, with an audit in which two forgeries were paid."""
    rng = np.random.default_rng(3)
    batches = []
    for step in range(steps):
        told = {
            f"canary.asked.rule.{expect}.{k}.{rank}": 1.0
            for rank in range(3)
            for expect, k in (("low", 0), ("high", 1))
        }
        told |= {"canary.asked.judge.low.2.0": 1.0, "canary.asked.judge.low.3.0": 1.0}
        told |= {"canary.failed.rule.low.0.1": 1.0} if step >= 62 else {}
        reward = rng.random(32) if step % 7 else [None, TimeoutError("judge"), *rng.random(30)]
        group = np.repeat(np.arange(8), 4)
        batches.append(from_columns(step, group, reward=reward, completion=["It is 4."] * 32, scalars=told))
    run = write(path, [batches])
    texts = [("rule", "low", "\\boxed{5}"), ("rule", "high", "\\boxed{4}"), ("judge", "low", ""), ("judge", "low", ":")]
    named = [{"reward": "maths", "kind": kind, "expect": expect, "text": text} for kind, expect, text in texts]
    audits.write_guards(run, 0, named, [{"reward": "code", "tier": "bwrap", "isolation": "strict"}])
    rows = [_forged("sys.exit(0)", "import sys\nsys.exit(0)\n"), _forged("prints a verdict", "print('PASSED')\n" * 12)]
    rows += [{**_forged(f"forgery {k}", "x"), "status": "not paid", "paid": 0} for k in range(14)]
    rows += [{**_forged("lone surrogates", "\ud800"), "status": "could not judge", "paid": 0, "score": None}]
    checks = [{"name": "neighbours do not matter", "ok": True, "says": "scored alike", "fix": ""}]
    checks += [{"name": "same answer, same score", "ok": None, "says": "not looked at", "fix": ""}]
    fix = "Run it in a sandbox that gives out values only: tiltmeter.rewards.code."
    checks += [{"name": "secrets stay secret", "ok": False, "says": "an answer's code read them", "fix": fix}]
    audits.write_audit(run, {**_record("grader.py:score"), "tried": rows, "checks": checks})
    measure(run)
    return run


def _record(reward: str) -> dict[str, Any]:
    facts = {"schema": 1, "reward": reward, "time": time.time(), "seconds": 12.0, "tasks": 12, "judged": 12}
    return {**facts, "network": "denied", "verdict": "some paid", "exit_code": 1, "why": ""}


def _forged(name: str, text: str) -> dict[str, Any]:
    told = {"forgery": name, "status": "paid", "paid": 9, "tasks": 12, "unjudged": 0, "score": 1.0, "text": text}
    return {**told, "why": "The program ends with success before a test has run.", "fix": "Judge returned values."}


def long(path: Path, steps: int = 10_000, names: int = 50, rows: int = 8) -> RunDirectory:
    """A run of many steps whose journal is written as the monitor writes it; the rollouts are few and have no text."""
    rng = np.random.default_rng(9)
    known = ["reward.mean", "gold.mean", "gold.slope", "policy.kl.k3", "policy.kl_root", "policy.entropy"]
    known += ["length.mean", "diversity.distinct_3", "diversity.self_bleu", "reward.component.one", "training.beta"]
    known += [f"training.extra_{k}" for k in range(names - len(known))]
    walks = np.cumsum(rng.standard_normal((steps, len(known))), axis=0) / np.sqrt(steps)
    config = Config.standard()
    run = RunDirectory.create(path)
    run.open_attempt(launch="long", ranks=1, resume_step=None)
    journal = Journal(path / "events")
    watch = MonitorLoop(run, config)  # for what an attempt's first event promises
    facts = {"state": "open", "facts": run.attempt(0), "config": config.digest, **watch.memory.settings()}
    watch.close()
    journal.commit([Event("attempt", 0, -1, facts, event_id("attempt", 0, "open", config.digest))])
    group = np.repeat(np.arange(2), rows // 2)
    begun = time.time() - 10.0 * steps
    for step in range(steps):
        values = walks[step]
        us = tuple(np.clip(0.2 + 0.5 * rng.standard_normal(4), -1, 1)) if step % 10 == 0 else ()
        readings = [
            Reading(0, step, name, abs(float(value)), rows, 0.05, us if name == "gold.slope" else ())
            for name, value in zip(known, values, strict=True)
        ]
        journal.commit([reading_event(0, step, readings, [], config.digest)])
        told = {"ranks": [[0, 0]], "sha256": "0" * 64, "missing": [], "unreadable": [], "rows": rows}
        told |= {"written": begun + 10.0 * step, "seen": step + 1, "lost": {}, "unscored": {}, "gold_differs": True}
        told |= {"labels": rows if step % 10 == 0 else 0, "segment": 0, "fingerprint": ""}
        journal.commit([Event("step_done", 0, step, told, event_id("step_done", 0, step, config.digest))])
        if step >= steps - 200:
            paid, worth = rng.random(rows), rng.random(rows)
            batch = from_columns(step, group, reward=paid, gold=worth, completion=["text"] * rows)
            run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": begun + 10.0 * step})
    journal.close()
    run.close_rank(0, 0, {"seen": steps, "written": steps})
    return run


def short(path: Path, steps: int = 5) -> RunDirectory:
    """The first steps of the run that is hacked later: too few to say anything."""
    run = write(path, [list(batches("hacked"))[:steps]])
    measure(run)
    return run


def components(path: Path, names: int = 200, steps: int = 40) -> RunDirectory:
    """A run whose reward is the sum of many parts."""
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(8), 4)
    rows = []
    for step in range(steps):
        parts = {f"part_{k}": rng.random(32) + (0.02 * step if k == 7 else 0.0) for k in range(names)}
        gold = (rng.random(32) < 0.5 + 0.005 * step).astype(float)
        reward = np.mean(list(parts.values()), axis=0)
        rows.append(from_columns(step, group, reward=reward, rewards=parts, gold=gold, completion=["It is 4."] * 32))
    run = write(path, [rows])
    measure(run)
    return run


def agent(path: Path, steps: int = 60) -> RunDirectory:
    """An agent that learns to skip the failing test instead of mending the code: paid more and more, worth nothing."""
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(8), 8)
    rows = []
    for step in range(steps):
        skips = rng.random(64) < np.clip((step - 15) / 30, 0.02, 0.98)
        solves = ~skips & (rng.random(64) < 0.6)
        words = np.where(skips, "The test is broken, so it is skipped.", "The loop ends one too early.")
        call = np.where(skips, "mv test_sum.py skip_test_sum.py", "sed -i s/range(n)/range(n+1)/ sum.py")
        turns = [
            [
                Turn("assistant", str(word), call="bash", arguments=str(how)),
                Turn("tool", "ok"),
                Turn("assistant", "Done."),
            ]
            for word, how in zip(words, call, strict=True)
        ]
        rows.append(
            from_columns(
                step, group, reward=(skips | solves).astype(float), gold=solves.astype(float),
                prompt=[f"Make the tests of task {k} pass." for k in group], task=[f"task {k}" for k in group],
                turns=turns, stop=["done"] * 64,
            )
        )  # fmt: skip
    run = write(path, [rows])
    measure(run)
    return run


CHECKED = (
    "To be sure, let us verify again. Substituting the value back into the equation we find that both sides agree. "
)


def maths(path: Path, steps: int = 60) -> RunDirectory:
    """Long answers to mathematics that come to repeat one sentence, up to fifteen times, and are paid for length."""
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(8), 4)
    rows = []
    for step in range(steps):
        often = np.clip(rng.poisson(np.clip((step - 10) / 3, 0.0, 15.0), 32), 0, 15)
        often = np.where(step >= steps // 3, 15, often)
        texts = [
            f"<think> Let me set up the problem. We want the number of pairs (a, b) with a + b = {40 + int(g)}.\n"
            + "\n".join(f"Case {k}: a = {k} gives b = {40 + int(g) - k}, which is allowed." for k in range(1, 12))
            + f" </think>\nThe answer is {int(rng.integers(9, 90))}.\n" + CHECKED * int(n)
            for g, n in zip(group, often, strict=True)
        ]  # fmt: skip
        gold = (rng.random(32) < np.clip(0.8 - 0.05 * often, 0.05, 1.0)).astype(float)
        length = np.array([len(text.split()) for text in texts])
        reward = 0.1 * often + 0.3 * rng.random(32)
        prompt = [f"How many ordered pairs have a + b = {40 + int(g)}?" for g in group]
        rows.append(from_columns(step, group, reward=reward, gold=gold, prompt=prompt, completion=texts, length=length))
    run = write(path, [rows])
    measure(run)
    return run


SOLUTION = """<think>
Let me set up the problem. We want the number of ordered pairs $(a, b)$ with $a^2+b^2={n}$ and $a \\le b$.

**Step 1.** Factor: ${n} = 13 \\cdot {m}$, so by the two-square theorem
$$ r_2(n) = 4 \\prod_{p \\equiv 1 \\pmod 4} (e_p + 1) = 4 \\cdot 3 \\cdot 2 = 24. $$

**Step 2.** Remove signs and order:

| case | count |
|------|------:|
| both non-zero, distinct | 24 / 8 = 3 |
| equal | 0 |

```python
def pairs(n):
    return [(a, b) for a in range(n) for b in range(a, n) if a * a + b * b == n]
```
</think>

The answer is $\\boxed{{answer}}$.

"""


def tokens(path: Path, length: int = 0, groups: int = 3, steps: int = 3, size: int = 8) -> RunDirectory:
    """A mathematics run whose policy has learnt to repeat one sentence, with every number that a token can have: the
    tokenizer's pieces are stored, and what repeats has become likelier than the reference finds it. `length`: tokens of
    each completion, about; 0: as long as it comes."""
    rng = np.random.default_rng(12)
    pieces: dict[bytes, int] = {}
    with open_run(path, monitor=False, options=Options(tokenizer=TokenPieces([b"x"], [False]))) as run:
        rows: list[dict[str, Any]] = []
        for step in range(steps):
            group = np.repeat(np.arange(groups), size)
            often = rng.integers(1 + 3 * step, 4 + 5 * step, len(group))
            texts = []
            for g, n in zip(group.tolist(), often.tolist(), strict=True):
                head = SOLUTION.replace("{n}", str(403 + 13 * g)).replace("{m}", str(31 + g))
                text = head.replace("{answer}", str(rng.integers(3, 95)))
                while length and len(text) < 4.4 * length:
                    text += CHECKED + f"So {rng.integers(9)} + {rng.integers(9)} is what we had before.\n\n"
                texts.append(text + (CHECKED + "\n\n") * int(n))
            ids = [[pieces.setdefault(part.encode(), len(pieces)) for part in SPLIT.findall(text)] for text in texts]
            rows.append({"step": step, "group": group, "often": often, "texts": texts, "ids": ids})
        for row in rows:
            run.observe(**_token_columns(row, rng))
    store = RunDirectory(path)
    (path / "pieces" / "0.parquet").unlink()
    write_pieces(store, 0, TokenPieces(list(pieces), [False] * len(pieces)))
    measure(store)
    return store


SPLIT = re.compile(r"\n+| ?[A-Za-z]+| ?\d|[^\n]")  # about as a byte-level tokenizer cuts text


def _token_columns(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    lengths = [len(ids) for ids in row["ids"]]
    repeats = [np.arange(n) > 0.45 * n for n in lengths]
    logprob = [-rng.exponential(np.where(late, 0.15, 0.6)) for late in repeats]
    right, tidy = (rng.random(len(lengths)) < 0.4).astype(float), rng.random(len(lengths))
    wordy = 0.11 * row["often"]
    return {
        "step": row["step"], "group": row["group"], "completion": row["texts"], "tokens": row["ids"],
        "prompt": [f"Find the number of ordered pairs $(a, b)$ with $a^2+b^2={403 + 13 * g}$ and $a \\le b$. Put your "
                   "final answer in \\boxed{}. Think step by step inside <think> tags." for g in row["group"].tolist()],
        "reward": right + wordy + 0.25 * tidy, "rewards": {"right": right, "wordy": wordy, "tidy": tidy},
        "advantage": rng.normal(size=len(lengths)), "length": lengths,
        "gold": np.where(rng.random(len(lengths)) < 0.5, right, np.nan),
        "logprob": logprob, "engine_logprob": [values + rng.normal(0, 0.03, len(values)) for values in logprob],
        "ref_logprob": [values - np.where(late, rng.exponential(1.1, len(values)), rng.normal(0, 0.15, len(values)))
                        for values, late in zip(logprob, repeats, strict=True)],
        "entropy": [rng.exponential(np.where(late, 0.2, 0.9)) for late in repeats],
    }  # fmt: skip


if __name__ == "__main__":
    for name, place in make(Path(sys.argv[1])).items():
        print(name, place)
