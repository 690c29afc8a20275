"""What measuring costs per token: n-gram kernels against the libraries people use, and the whole default panel.

    python benchmarks/instruments.py --json

Everything is CPU time of one process on one core, both sides of a ratio measured in turn (A B B A ...) in one run, and
a ratio is the quotient of medians with a bootstrap interval. Each kernel is checked against its oracle before it is
timed. The text is the manual of the Python that runs this, cut into word pieces; completions of one prompt are drawn
from the same few sentences, so that they share n-grams as real ones do.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import importlib.metadata
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from itertools import cycle, pairwise
from typing import Any

import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from nltk.util import ngrams
from numpy.typing import NDArray

from record import record
from store import Others, _manual, logprobs
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import Turn
from tiltmeter.monitor.panel import InstrumentPanel, missing_columns, readings
from tiltmeter.monitor.parts import Config
from tiltmeter.stats.ngrams import corpus_distinct, group_ngrams

ROLLOUTS, TOKENS, GROUP = 512, 200, 8
PAIRS = 9

Figures = dict[str, Any]
Timed = Callable[[], float]  # CPU seconds per token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quick", action="store_true", help="3 pairs instead of 9")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs = 3 if options.quick else PAIRS
    rng = np.random.default_rng(options.seed)
    others = Others()
    figures: Figures = {}
    for size in (8, 64):
        figures |= _named(f"self_bleu_vs_nltk_g{size}", against_nltk(rng, size, pairs))
    figures |= _named("distinct_vs_diversity", against_diversity(rng, pairs))
    figures |= panel_figures(rng, pairs)
    figures |= others.figures()
    result = record("instruments", figures, seed=options.seed, keep=not options.quick)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value}")


def against_nltk(rng: np.random.Generator, size: int, pairs: int) -> tuple[float, float, float] | None:
    """nltk's CPU per token over ours: self-BLEU of every completion and distinct 1..4-grams, groups of `size`."""
    ids, _ = completions(rng, size, TOKENS, size)
    tokens = [row.tolist() for row in ids]
    flat, offsets, starts = np.concatenate(ids), _offsets(ids), np.array([0, size])
    smoothing = SmoothingFunction().method1

    def theirs() -> tuple[list[float], list[int]]:
        scores = [
            sentence_bleu(tokens[:row] + tokens[row + 1 :], tokens[row], smoothing_function=smoothing)
            for row in range(size)
        ]
        return scores, [len({gram for row in tokens for gram in ngrams(row, n)}) for n in range(1, 5)]

    ours_many = max(1, 20_000 // len(flat))  # long enough for the clock
    many = [np.concatenate([flat] * ours_many), _offsets(ids * ours_many), np.arange(0, size * ours_many + 1, size)]
    scores, distinct = group_ngrams(flat, offsets, starts)
    said, counted = theirs()
    assert np.abs(scores - said).max() < 1e-12, "self-BLEU differs from nltk"
    assert distinct[0].tolist() == counted, "distinct n-grams differ from sets"
    return ratio(timed(theirs, len(flat)), timed(lambda: group_ngrams(many[0], many[1], many[2]), len(many[0])), pairs)


def against_diversity(rng: np.random.Generator, pairs: int) -> tuple[float, float, float] | None:
    """The `diversity` package's CPU per token over ours: distinct 1..4-grams over one step."""
    score = _diversity()
    if score is None:
        return None
    ids, _ = completions(rng, ROLLOUTS, TOKENS, GROUP)
    flat, offsets = np.concatenate(ids), _offsets(ids)
    words = [" ".join(map(str, row.tolist())) for row in ids]
    sets = [len({gram for row in ids for gram in ngrams(row.tolist(), n)}) for n in range(1, 5)]
    assert corpus_distinct(flat, offsets).tolist() == sets, "corpus distinct differs from sets"
    return ratio(
        timed(lambda: score(words), len(flat)), timed(lambda: corpus_distinct(flat, offsets), len(flat)), pairs
    )


def panel_figures(rng: np.random.Generator, pairs: int) -> Figures:
    """The whole default panel: tokens per second, the cost of each instrument, growth with group size and length."""
    panel = InstrumentPanel(Config.standard(), strict=True)
    baseline = Baseline(batch_of(rng, 256, TOKENS, GROUP))
    # Several of each, in turn: what is remembered of one batch must not serve the next measurement of it.
    ordinary = [batch_of(rng, ROLLOUTS, TOKENS, GROUP) for _ in range(3)]
    agents = [batch_of(rng, ROLLOUTS, TOKENS, GROUP, agents=True) for _ in range(3)]
    one_group = [batch_of(rng, ROLLOUTS, TOKENS, GROUP, regrouped=ROLLOUTS) for _ in range(3)]
    short = [batch_of(rng, 1_280, 100, GROUP) for _ in range(3)]
    long = [batch_of(rng, 32, 4_000, GROUP) for _ in range(3)]

    def ngrams_of(batches: list[RolloutBatch]) -> Timed:
        """The n-gram kernel by itself: the panel cuts at 256 tokens first, so that length cannot decide."""
        turns = cycle([(batch.tokens, batch.starts) for batch in batches if batch.tokens is not None])

        def work() -> None:
            tokens, starts = next(turns)
            group_ngrams(tokens.values, tokens.offsets, starts)

        return timed(work, _tokens(batches))

    def cost(batches: list[RolloutBatch]) -> Timed:
        turns = cycle(batches)
        return timed(lambda: panel.measure(next(turns), baseline), _tokens(batches))

    found = panel.measure(ordinary[0], baseline)
    clock = cost(ordinary)
    costs = [clock() for _ in range(8 * pairs)]
    per_token = median(costs)
    alone, share = {}, {}
    for part in panel.config.instruments:
        ordinarily = not missing_columns(part, ordinary[0])
        turns = cycle(ordinary if ordinarily else agents)
        clock = timed(lambda p=part, t=turns: readings(p, next(t), baseline), _tokens(ordinary))  # type: ignore[misc]
        alone[part.name] = median([clock() for _ in range(3 * pairs)])
        if ordinarily:
            share[part.name] = alone[part.name]
    growth = ratio(cost(one_group), cost(ordinary), pairs)
    longer = ratio(cost(long), cost(short), pairs)
    total = sum(share.values())
    loop = timed(lambda: sum(number * number for number in range(200_000)), 1)
    return {
        # How fast this machine happened to be: the speed of shared ones varies twofold from minute to minute.
        "python_loop_ms": round(1e3 * median([loop() for _ in range(9)]), 3),
        "panel_mtok_per_core_s": round(1e-6 / per_token, 3),
        "panel_mtok_per_core_s_best": round(1e-6 / min(costs), 3),
        "panel_readings": len(found),
        **_named("group_growth_8_to_512", growth),
        **_named("length_growth_100_to_4000", longer),
        **_named("self_bleu_group_growth", ratio(ngrams_of(one_group), ngrams_of(ordinary), pairs)),
        **_named("self_bleu_length_growth", ratio(ngrams_of(long), ngrams_of(short), pairs)),
        "us_per_token": {name: round(1e6 * seconds, 5) for name, seconds in alone.items()},
        "share": {name: round(seconds / total, 4) for name, seconds in sorted(share.items(), key=lambda i: -i[1])},
    }


def _tokens(batches: list[RolloutBatch]) -> int:
    """Of one of them; they have the same number."""
    assert batches[0].length is not None
    return int(batches[0].length.sum())


# -- measuring --------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], object], tokens: int) -> Timed:
    """CPU seconds per token of one call, warmed up once."""
    work()

    def once() -> float:
        begin = time.process_time()
        work()
        return (time.process_time() - begin) / tokens

    return once


def ratio(one: Timed, other: Timed, pairs: int) -> tuple[float, float, float]:
    """Median cost of `one` over that of `other`, measured in turn, with a 95 % bootstrap interval."""
    first, second = [], []
    for turn in range(pairs):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            if side == 0:
                first.append(one())
            else:
                second.append(median([other() for _ in range(3)]))
    draws = np.random.default_rng(0)
    a, b = np.array(first), np.array(second)
    picks = [(draws.choice(a, len(a)), draws.choice(b, len(b))) for _ in range(2_000)]
    low, high = np.quantile([np.median(x) / np.median(y) for x, y in picks], [0.025, 0.975])
    return float(np.median(a) / np.median(b)), float(low), float(high)


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _named(name: str, found: tuple[float, float, float] | None) -> Figures:
    if found is None:
        return {name: "not measured: pip install --no-deps diversity"}
    value, low, high = (round(part, 3) for part in found)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _diversity() -> Callable[[list[str]], float] | None:
    """The function of the installed package, from its file: importing the package would need spaCy and more."""
    try:
        path = importlib.metadata.distribution("diversity").locate_file("diversity/ngram_diversity.py")
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.spec_from_file_location("diversity_ngrams", str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    score: Callable[[list[str]], float] = module.ngram_diversity_score
    return score


# -- data -------------------------------------------------------------------------------------------------------------


def completions(
    rng: np.random.Generator, rows: int, tokens: int, size: int
) -> tuple[list[NDArray[np.int32]], list[str]]:
    """Token ids and texts; those of one prompt are drawn from the same pool of runs of 20 pieces, with repeats."""
    pieces, ids = _manual()
    made: list[NDArray[np.int32]] = []
    texts: list[str] = []
    run = 20
    for _ in range(0, rows, size):
        pool = rng.integers(0, len(pieces) - run, size=3 * tokens // run)
        for _ in range(min(size, rows - len(made))):
            chosen = rng.choice(pool, size=-(-tokens // run))
            spot = (chosen[:, None] + np.arange(run)).reshape(-1)[:tokens]
            made.append(ids[spot])
            texts.append("".join(pieces[place] for place in spot))
    return made, texts


def batch_of(
    rng: np.random.Generator, rows: int, tokens: int, size: int, regrouped: int | None = None, *, agents: bool = False
) -> RolloutBatch:
    """One step with every column that TRL gives; `regrouped`: the same rows in groups of another size.

    `agents`: also what agents, process rewards and asynchronous trainers add, so that every instrument has its columns.
    """
    ids, texts = completions(rng, rows, tokens, size)
    flat = rows * tokens
    logprob, ref_logprob = logprobs(rng, flat, "softmax")
    offsets = _offsets(ids)

    def rag(values: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [values[a:b] for a, b in pairwise(offsets)]

    reward = rng.normal(size=rows)
    added: Figures = {
        "step_reward": list(rng.normal(size=(rows, 4))),
        "own": [np.ones(tokens, np.uint8)] * rows,
        "turns": [[Turn("assistant", text, call="bash", arguments='{"cmd": "ls"}')] for text in texts],
        "env": ["shell"] * rows,
        "task": [f"task {row // size}" for row in range(rows)],
        "stop": ["done"] * rows,
        "version": rng.integers(0, 2, rows),
        "trained": rng.random(rows) < 0.9,
    }
    return from_columns(
        step=1,
        group=np.arange(rows) // (regrouped or size),
        reward=reward,
        rewards={"helpful": reward, "format": rng.integers(0, 2, rows)},
        advantage=rng.normal(size=rows),
        gold=(rng.random(rows) < 0.5).astype(float),
        truncated=rng.random(rows) < 0.1,
        prompt=[f"I think that {text[:80]} is right. What do you say?" for text in texts],
        completion=texts,
        tokens=ids,
        logprob=rag(logprob),
        ref_logprob=rag(ref_logprob),
        engine_logprob=rag((logprob + rng.normal(0, 0.01, flat)).astype(np.float32)),
        entropy=rag(rng.exponential(size=flat).astype(np.float32)),
        scalars={"loss": 0.1, "grad_norm": 1.0, "learning_rate": 1e-6},
        **(added if agents else {}),
    )


def _offsets(rows: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)


if __name__ == "__main__":
    main()
