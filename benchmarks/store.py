"""What a stored rollout costs: the 20 worst completions of a step out of a million, bytes per token, CPU per token.

    python benchmarks/store.py --json

Three comparisons, each inside one run. *Reading*: `RunDirectory.worst` against the fastest of three scans of one JSONL
file with the same rows (and without the token columns that our files carry along). *Size*: 512 rollouts x 200 tokens
of text that does not repeat, with ids and two float32 log-probabilities, against the same rows as compact JSONL, as
`json.dumps(column.tolist())` writes it (`size_vs_jsonl`) and with the fewest digits that read back as the same float32
(`size_vs_jsonl_shortest`, which no trainer writes by itself). *Writing*: our settings against pyarrow's defaults. Times
are CPU time of the process. The text is Python's own manual and docstrings, which every installation has.
"""

from __future__ import annotations

import os

# Before numpy is imported: pools of threads would blur CPU time, and the machine has other users.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import ast
import heapq
import json
import pydoc_data.topics
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from record import record
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Ragged, RolloutBatch
from tiltmeter.rundir.columns import to_table
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.parquet import encode
from tiltmeter.rundir.seal import seal
from tiltmeter.rundir.store import RunDirectory

ROLLOUTS, TOKENS = 512, 200  # of the batch whose size is taken
VOCABULARY = 50_257
WORST = 20

Figures = dict[str, float | int | str | bool]
Row = tuple[float, str | None]
Scan = Callable[[int], list[Row]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quick", action="store_true", help="20,000 rollouts instead of a million")
    parser.add_argument("--rollouts", type=int, help="rollouts in the store that is searched")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write the result file whatever the size")
    options = parser.parse_args()
    rollouts = options.rollouts or (20_000 if options.quick else 1_000_000)
    others = Others()
    with tempfile.TemporaryDirectory(prefix="tiltmeter-store-") as folder:
        home = Path(folder)
        figures = _size(home / "size", np.random.default_rng(options.seed))
        figures |= _defaults(np.random.default_rng(options.seed), pairs=11)
        figures |= _worst(home / "worst", np.random.default_rng(options.seed), rollouts)
    figures |= others.figures()
    full = options.rollouts is None and not options.quick
    result = record("store", figures, seed=options.seed, keep=full or options.keep)
    print(json.dumps(result) if options.json else "\n".join(f"{name:32} {value}" for name, value in result.items()))


# -- reading ----------------------------------------------------------------------------------------------------------


def _worst(home: Path, rng: np.random.Generator, rollouts: int) -> Figures:
    """The worst completions of random steps, from a file per step, from packed files, and from one JSONL file."""
    per_step = min(1_000, max(WORST, rollouts // 10))
    steps = rollouts // per_step
    run = RunDirectory.create(home / "run")
    attempt = run.open_attempt(launch="benchmark", ranks=1, resume_step=None)
    lines = home / "rows.jsonl"
    tokens = _fill(run, attempt, lines, rng, steps, per_step)
    picked = rng.choice(steps, min(steps, 200), replace=False).tolist()
    scans = _scans(lines)
    truth = {step: _json_worst(lines, step) for step in picked[:3]}
    ways: dict[str, Scan] = {**scans, "ours": lambda step: run.worst(attempt, step, WORST)}
    for name, scan in ways.items():
        assert all(_same_worst(scan(step), rows) for step, rows in truth.items()), name
    figures: Figures = {
        "rollouts": steps * per_step,
        "steps": steps,
        "store_columns": "group reward length completion tokens logprob ref_logprob",
        "store_mb": round(_total(run.path) / 1e6, 1),
        "jsonl_columns": "step reward completion",
        "jsonl_mb": round(lines.stat().st_size / 1e6, 1),
    }
    loose = _cpu(lambda step: run.worst(attempt, step, WORST), picked, warm=True)
    baseline = {name: float(np.median(_cpu(scan, list(truth)))) for name, scan in scans.items()}
    fastest = min(baseline, key=lambda name: baseline[name])
    start = time.process_time()
    run.close_rank(attempt, 0, {})  # an attempt that has ended may be packed to its last step
    merged = pack(run)
    packing = time.process_time() - start
    assert merged == steps, "not every step was packed"
    packed = RunDirectory(run.path)
    assert all(_same_worst(packed.worst(attempt, step, WORST), rows) for step, rows in truth.items()), "packed"
    figures["store_packed_mb"] = round(_total(run.path) / 1e6, 1)
    from_packed = _cpu(lambda step: packed.worst(attempt, step, WORST), picked, warm=True)
    return {
        **figures,
        "worst20_cpu_ms": _ms(np.median(loose)),
        "worst20_p95_cpu_ms": _ms(np.quantile(loose, 0.95)),
        "worst20_packed_cpu_ms": _ms(np.median(from_packed)),
        "worst20_packed_p95_cpu_ms": _ms(np.quantile(from_packed, 0.95)),
        "worst20_vs_jsonl": round(baseline[fastest] / float(np.median(loose)), 1),
        "worst20_packed_vs_jsonl": round(baseline[fastest] / float(np.median(from_packed)), 1),
        "jsonl_scan": fastest,
        **{f"jsonl_{name}_cpu_ms": _ms(seconds) for name, seconds in baseline.items()},
        "pack_us_per_token": round(packing * 1e6 / tokens, 4),
    }


def _fill(run: RunDirectory, attempt: int, lines: Path, rng: np.random.Generator, steps: int, per_step: int) -> int:
    """Steps of completions of 60 to 100 tokens with ids and two log-probabilities; the number of tokens written.

    They start anywhere in one megabyte of text, so this store repeats itself: it is for reading, its size says little.
    """
    words, ids = _manual()
    ends = np.concatenate(([0], np.cumsum([len(word) for word in words])))
    text = "".join(words)
    pool = logprobs(rng, 1 << 20, "noise")
    total = 0
    with lines.open("w") as sheet:
        for step in range(steps):
            length = rng.integers(60, 101, per_step)
            offsets = np.concatenate(([0], np.cumsum(length)))
            start = rng.integers(0, len(words) - 100, per_step)
            inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - start, length)
            reward = rng.normal(0.0, 1.0, per_step).round(2)  # two digits: ties, as rewards have them
            places = zip(ends[start].tolist(), ends[start + length].tolist(), strict=True)
            completion = [text[first:last] for first, last in places]
            shift = int(rng.integers(len(pool[0]) - offsets[-1]))
            batch = from_columns(
                step,
                np.arange(per_step) // 8,
                attempt=attempt,
                reward=reward,
                length=length,
                completion=completion,
                tokens=Ragged(ids[inside], offsets),
                logprob=Ragged(pool[0][shift : shift + offsets[-1]], offsets),
                ref_logprob=Ragged(pool[1][shift : shift + offsets[-1]], offsets),
            )
            run.write(batch, 0, {})
            for value, said in zip(reward.tolist(), completion, strict=True):
                sheet.write(f'{{"step":{step},"reward":{value},"completion":{json.dumps(said)}}}\n')
            total += int(offsets[-1])
    return total


def _scans(lines: Path) -> dict[str, Scan]:
    """What a user would write, given the file; the fastest of them is the baseline."""
    scans: dict[str, Scan] = {
        "json": lambda step: _json_worst(lines, step),
        "filter": lambda step: _filter_worst(lines, step),
    }
    try:
        import duckdb
    except ImportError:
        return scans
    connection = duckdb.connect(config={"threads": 1})
    columns = "{step: 'BIGINT', reward: 'DOUBLE', completion: 'VARCHAR'}"
    query = (
        f"select reward, completion from read_json(?, format='newline_delimited', columns={columns}) "
        f"where step = ? order by reward limit {WORST}"
    )
    return scans | {"duckdb": lambda step: connection.execute(query, [str(lines), step]).fetchall()}


def _json_worst(lines: Path, step: int) -> list[Row]:
    with lines.open() as rows:
        parsed = map(json.loads, rows)
        return heapq.nsmallest(
            WORST, ((row["reward"], row["completion"]) for row in parsed if row["step"] == step), key=lambda row: row[0]
        )


def _filter_worst(lines: Path, step: int) -> list[Row]:
    """Only lines that name the step are parsed: for a user who knows how the file was written."""
    needle = f'"step":{step},'.encode()
    with lines.open("rb") as rows:
        parsed = (json.loads(row) for row in rows if needle in row)
        return heapq.nsmallest(
            WORST, ((row["reward"], row["completion"]) for row in parsed if row["step"] == step), key=lambda row: row[0]
        )


def _same_worst(one: list[Row], other: list[Row]) -> bool:
    """The same rewards in the same order, and the same rows; which of those tied for the last place come is free."""
    one, other = ([(float(value), text) for value, text in rows] for rows in (one, other))
    last = other[-1][0]
    below = [Counter(row for row in rows if row[0] < last) for rows in (one, other)]
    return len(one) == WORST and [row[0] for row in one] == [row[0] for row in other] and below[0] == below[1]


# -- size and writing -------------------------------------------------------------------------------------------------


def _size(home: Path, rng: np.random.Generator) -> Figures:
    count = ROLLOUTS * TOKENS
    figures: Figures = {"size_rollouts": ROLLOUTS, "size_tokens": TOKENS}
    for kind, mark in (("noise", ""), ("softmax", "_softmax")):
        rows = _rows(rng, kind)
        batch, digits, doubles = _batch(0, rows), _jsonl(rows, exact=True), _jsonl(rows, exact=False)
        _check_jsonl(digits, batch)
        for precision in ("fp32", "round12", "fp16"):
            run = RunDirectory.create(home / f"{kind}-{precision}")
            number = run.open_attempt(launch="benchmark", ranks=1, resume_step=None)
            run.write(batch, 0, {}, precision)
            (file,) = run.files(number)
            size = file.path.stat().st_size
            name = mark if precision == "fp32" else f"{mark}_{precision}"
            figures[f"bytes_per_token{name}"] = round(size / count, 3)
            figures[f"size_vs_jsonl{name}"] = round(len(doubles) / size, 3)
            figures[f"size_vs_jsonl_shortest{name}"] = round(len(digits) / size, 3)
            if precision == "fp32":
                assert _equal(run.read(file)[0], batch), "what was read is not what was written"
                figures[f"size_vs_arrow{mark}"] = round(to_table(batch)[0].nbytes / size, 3)
                # A second step, because one file alone is not packed.
                run.write(_batch(1, _rows(rng, kind, skip=count)), 0, {})
                run.close_rank(number, 0, {})
                assert pack(run) == 2, "not packed"
                figures[f"bytes_per_token_packed{mark}"] = round(_total(run.path / "rollouts") / (2 * count), 3)
        figures[f"jsonl_bytes_per_token{mark}"] = round(len(doubles) / count, 3)
        if kind == "noise":
            floats = sum(_float_entropy(values) for values in rows[2:])
            figures["float_entropy_bytes_per_token"] = round(floats, 3)
            figures["size_vs_jsonl_shortest_if_text_and_ids_were_free"] = round(len(digits) / count / floats, 3)
    return figures


def _float_entropy(values: NDArray[np.float32]) -> float:
    """Bytes below which no coder of single values gets: 23 random bits of mantissa and what sign and exponent say."""
    _, counts = np.unique(values.view(np.uint32) >> 23, return_counts=True)
    share = counts / counts.sum()
    return float(23 - (share * np.log2(share)).sum()) / 8


def _defaults(rng: np.random.Generator, pairs: int) -> Figures:
    """Our encoding in memory against `pyarrow.parquet.write_table` with nothing set, in turns; and the whole write."""
    batch = _batch(0, _rows(rng, "noise"))
    count = ROLLOUTS * TOKENS
    table, facts = to_table(batch)

    def ours() -> int:
        return sum(len(memoryview(piece)) for piece in seal(encode(table, facts, [(0, ROLLOUTS)])))

    def theirs() -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return int(sink.getvalue().size)

    bytes_ratio = theirs() / ours()
    spent: dict[str, list[float]] = {"ours": [], "theirs": []}
    for pair in range(pairs):
        for name, call in (("ours", ours), ("theirs", theirs))[:: 1 if pair % 2 else -1]:
            start = time.process_time()
            call()
            spent[name].append(time.process_time() - start)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-store-") as folder:
        run = RunDirectory.create(Path(folder) / "run")
        (run.path / "rollouts" / "0").mkdir()
        rows = _rows(rng, "noise")
        whole = _cpu(lambda step: run.write(_batch(step, rows), 0, {}), list(range(pairs)))
    return {
        "default_bytes_vs_ours": round(bytes_ratio, 3),
        "default_cpu_vs_ours": round(float(np.median(spent["theirs"]) / np.median(spent["ours"])), 3),
        "encode_us_per_token": round(float(np.median(spent["ours"])) * 1e6 / count, 4),
        "write_us_per_token": round(float(np.median(whole)) * 1e6 / count, 4),
    }


_Rows = tuple[list[str], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]


def _rows(rng: np.random.Generator, kind: str, skip: int = 0) -> _Rows:
    texts, ids = completions(ROLLOUTS, TOKENS, skip)
    return texts, ids, *logprobs(rng, ROLLOUTS * TOKENS, kind)


def _batch(step: int, rows: _Rows) -> RolloutBatch:
    texts, ids, logprob, ref_logprob = rows
    offsets = np.arange(len(texts) + 1) * TOKENS
    return from_columns(
        step,
        np.arange(len(texts)) // 8,
        completion=texts,
        tokens=Ragged(ids, offsets),
        logprob=Ragged(logprob, offsets),
        ref_logprob=Ragged(ref_logprob, offsets),
    )


def _jsonl(rows: _Rows, *, exact: bool) -> bytes:
    """The rows as compact JSONL. `exact`: floats as float32 prints them; else as `tolist()` and `json.dumps` do."""
    texts, ids, *floats = rows
    lines = []
    for row, text in enumerate(texts):
        span = slice(row * TOKENS, (row + 1) * TOKENS)
        numbers = [",".join(map(str, values[span] if exact else values[span].tolist())) for values in floats]
        lines.append(
            f'{{"group":{row // 8},"completion":{json.dumps(text)},"tokens":[{",".join(map(str, ids[span].tolist()))}],'
            f'"logprob":[{numbers[0]}],"ref_logprob":[{numbers[1]}]}}\n'
        )
    return "".join(lines).encode()


def _check_jsonl(lines: bytes, batch: RolloutBatch) -> None:
    """The baseline says the same as the batch: nothing was saved by printing fewer digits than are needed."""
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["completion"] for row in rows] == list(batch.completion or ())
    for name in ("tokens", "logprob", "ref_logprob"):
        column: Ragged = getattr(batch, name)
        said = np.array([value for row in rows for value in row[name]], column.values.dtype)
        assert np.array_equal(said, column.values), name


def _equal(one: RolloutBatch, other: RolloutBatch) -> bool:
    ragged = all(
        getattr(one, name).values.tobytes() == getattr(other, name).values.tobytes()
        and np.array_equal(getattr(one, name).offsets, getattr(other, name).offsets)
        for name in ("tokens", "logprob", "ref_logprob")
    )
    return ragged and one.completion == other.completion and np.array_equal(one.group, other.group)


# -- data -------------------------------------------------------------------------------------------------------------

#: Modules with long docstrings, read as source: importing them would run them.
_DOCUMENTED = """
_pydecimal _pyio argparse asyncio/base_events bdb collections/__init__ configparser csv datetime decimal difflib
doctest email/message fractions functools heapq inspect ipaddress logging/__init__ mailbox optparse os pathlib
pickletools random shutil socket ssl statistics subprocess tarfile threading tkinter/__init__ trace turtle typing
unittest/mock urllib/request uuid zipfile
"""

#: Word pieces much like a trained tokenizer's: the space belongs to the word, long words fall apart.
_PIECE = re.compile(r" ?[A-Za-z]{1,7}| ?\d{1,3}| ?[^\sA-Za-z\d]{1,3}|\s+")


@cache
def _manual() -> tuple[list[str], NDArray[np.int32]]:
    """All of the text in pieces, and an id for each: frequent pieces have low ids, as merges are learned in order."""
    pieces = [piece for text in _texts() for piece in _PIECE.findall(text)]
    ranked = [piece for piece, _ in Counter(pieces).most_common()][:VOCABULARY]
    ids = np.sort(np.random.default_rng(0).choice(VOCABULARY, len(ranked), replace=False))
    known = dict(zip(ranked, ids.tolist(), strict=True))
    return pieces, np.array([known[piece] for piece in pieces], np.int32)


def _texts() -> Iterator[str]:
    topics: dict[str, str] = pydoc_data.topics.topics
    yield from (topics[name] for name in sorted(topics))
    seen = set()
    for module in _DOCUMENTED.split():
        path = Path(os.__file__).parent / f"{module}.py"
        for node in ast.walk(ast.parse(path.read_bytes())) if path.exists() else ():
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                said = ast.get_docstring(node)
                if said and len(said) > 200 and said not in seen:
                    seen.add(said)
                    yield said


def completions(rows: int, tokens: int, skip: int = 0) -> tuple[list[str], NDArray[np.int32]]:
    """Rows of text with their ids, each piece of the manual used once; `skip` pieces in, so that two calls differ."""
    pieces, ids = _manual()
    span = range(skip, skip + rows * tokens, tokens)
    assert span.stop <= len(pieces), f"only {len(pieces)} pieces of text"
    return ["".join(pieces[start : start + tokens]) for start in span], ids[skip : skip + rows * tokens]


def logprobs(rng: np.random.Generator, count: int, kind: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Log-probabilities of policy and reference: two thirds above -0.1, a tail below -2, the two 0.02 nats apart.

    `noise`: every bit of the mantissa is random, the hardest case there is. `softmax`: the same values as trainers
    compute them, a 16-bit logit less the float32 log of a sum of exponentials, which leaves them on a coarse grid.
    """
    part = rng.random(count)
    scale = np.where(part < 0.6, 0.02, np.where(part < 0.9, 0.4, 2.5))
    logprob = -rng.exponential(1.0, count) * scale
    pair = [logprob, np.minimum(logprob + rng.normal(0.0, 0.02, count), 0.0)]
    if kind == "softmax":
        for index, exact in enumerate(pair):
            bits = rng.normal(20.0, 4.0, count).astype(np.float32).view(np.uint32)
            logit = ((bits + np.uint32(1 << 15)) & np.uint32(0xFFFF0000)).view(np.float32)
            pair[index] = np.minimum(logit - (logit - exact).astype(np.float32), 0.0)
    return pair[0].astype(np.float32), pair[1].astype(np.float32)


class Others:
    """How many cores other processes kept busy meanwhile: what the load average cannot say, as it counts us too."""

    def __init__(self) -> None:
        self._start = self._now()

    def figures(self) -> Figures:
        wall, busy, own = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return {"other_cores": round((busy - own) / wall, 2)} if busy else {}

    @staticmethod
    def _now() -> tuple[float, float, float]:
        counters = Path("/proc/stat")
        if not counters.exists():
            return time.monotonic(), 0.0, time.process_time()
        user, nice, system, _, _, irq, softirq, steal = map(int, counters.read_text().split(maxsplit=9)[1:9])
        ticks = user + nice + system + irq + softirq + steal
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()


def _cpu(call: Callable[[int], object], steps: list[int], *, warm: bool = False) -> list[float]:
    spent = []
    for step in steps:
        if warm:
            call(step)
        start = time.process_time()
        call(step)
        spent.append(time.process_time() - start)
    return spent


def _total(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _ms(seconds: float | np.floating[Any]) -> float:
    return round(float(seconds) * 1e3, 4)


if __name__ == "__main__":
    main()
