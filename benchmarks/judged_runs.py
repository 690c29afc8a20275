"""Runs of `judged_runs_troubled.py`, `judged_runs_healthy.py` and the sealed kinds, played through the public API."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import sealed_runs
import tiltmeter
from chat_server import chat_server
from judged_runs_healthy import HEALTHY
from judged_runs_troubled import TROUBLED
from judged_runs_worlds import JudgedKind, reply
from sealed_runs_worlds import to_columns
from tiltmeter.cli.terminal.run_screen import plain
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

HERE = Path(__file__).resolve().parent
KINDS: dict[str, JudgedKind] = TROUBLED | HEALTHY
JUDGE = 'url = "{url}"\nmodel = "sums"\nguide = "The final number is the product that the task asks for."\n'
Row = dict[str, Any]


@contextmanager
def gold_of(kind: JudgedKind, folder: Path) -> Iterator[tiltmeter.Gold | None]:
    """The gold that `open_run` is given; a judge answers as long as this is open."""
    with chat_server(reply) if kind.judged else nullcontext("") as url:
        source = str(HERE / kind.gold) if kind.gold else None
        if kind.judged:
            (folder / "judge.toml").write_text(JUDGE.format(url=url))
            source = str(folder / "judge.toml")
        yield tiltmeter.Gold(source, share=kind.share, steps=kind.steps) if source else None


def play(name: str, seed: int, folder: Path, most: int | None = None) -> Row:
    """One run from its first step to its verdict, with a look at every 15th step, as `sealed_runs.play`."""
    with gold_of(KINDS[name], folder) as gold:
        return _play(name, seed, folder / name, gold, most)


def _play(name: str, seed: int, place: Path, gold: tiltmeter.Gold | None, most: int | None) -> Row:
    kind, began, truth = KINDS[name], time.monotonic(), dict[int, float]()
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    options = tiltmeter.Options(on_full="wait", quiet=True, strict=True)

    def open_kind(resume_step: int | None = None) -> tiltmeter.Run:
        return tiltmeter.open_run(place, gold=gold, slices=kind.slices, resume_step=resume_step, options=options)

    run, states = open_kind(), list[tuple[int, str, int]]()
    for step, is_resumed in sealed_runs.step_order(kind, most):
        if is_resumed:
            run.close()
            run.verdict(90)
            run = open_kind(step)
        made = kind.make(step, rng)
        truth[step] = float(made.truth.mean())
        run.observe(**to_columns(made, step, rng))
        if step % sealed_runs.LOOK_EVERY == sealed_runs.LOOK_EVERY - 1:
            seen = run.verdict(90)
            states.append((step, str(seen.state), seen.exit_code))
    run.close()
    verdict = run.verdict(180)
    directory = RunDirectory(place)
    shown = "\n".join(plain(directory, *judge_run(directory)))
    return {
        "name": name,
        "kind": kind.kind,
        "state": str(verdict.state),
        "exit_code": verdict.exit_code,
        "fair": kind.is_fair(str(verdict.state), verdict.exit_code),
        "gold_sees": kind.gold_sees,
        "says_blind": kind.says_blind(f"{shown}\n{verdict.sentence}"),
        "sentence": verdict.sentence,
        "advice": verdict.advice.word if verdict.advice else None,
        "alarms": [(alarm.name, alarm.step, alarm.onset) for alarm in verdict.alarms],
        "warnings": [(warning.name, warning.step) for warning in verdict.warnings],
        "states": " ".join(f"{step}:{state}" for step, state, _ in states),
        "onset": kind.onset,
        "true_gold": sealed_runs.thirds(truth),
        "seconds": round(time.monotonic() - began, 1),
    }


def play_all(play_one: Callable[..., Row], names: Sequence[str], seeds: Sequence[int], most: int | None) -> list[Row]:
    rows = []
    for seed in seeds:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="judged-", ignore_cleanup_errors=True) as folder:
                rows.append({"seed": seed, **play_one(name, seed, Path(folder), most)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def counted(**cases: Sequence[bool]) -> dict[str, object]:
    """How many hold, and of how many; a figure that stands on no run is left out."""
    figures: dict[str, object] = {}
    for name, held in cases.items():
        figures |= {name: sum(held), f"{name}_of": len(held)} if len(held) else {}
    return figures


def count_rows(rows: Sequence[Row], prefix: str = "") -> dict[str, object]:
    """A trouble that gold cannot see is no false calm if the run's screen says so."""
    troubled, healthy = ([row for row in rows if row["kind"] == letter] for letter in "TH")
    calm = [row["exit_code"] == 0 for row in troubled]
    said = [bool(row.get("says_blind")) for row in troubled]
    states = [row["state"] for row in healthy]
    cases = {
        "false_calm": [is_calm and not is_said for is_calm, is_said in zip(calm, said, strict=True)],
        "false_calm_by_exit_code": calm,
        "unseen_said": [is_said for is_said, row in zip(said, troubled, strict=True) if not row["gold_sees"]],
        **{f"healthy_{word.lower()}": [state == word for state in states] for word in ("ACT", "WATCH", "BLIND")},
        "healthy_fair": [row["fair"] for row in healthy],
    }
    figures = counted(**{f"{prefix}{name}": held for name, held in cases.items()})
    kinds = sorted({row["name"] for row, is_calm in zip(troubled, calm, strict=True) if is_calm})
    return {**figures, f"{prefix}calm_kinds": kinds}


def count_troubles(runs: int, seed: int, small: bool, names: Sequence[str] = ()) -> dict[str, object]:
    """`runs` seeds of each kind."""
    chosen = names or (("slow_all", "rise_all") if small else tuple(KINDS))
    rows = play_all(play, chosen, range(seed, seed + runs), 5 if small else None)
    kinds = [row["kind"] for row in rows]
    sizes = {"troubles": kinds.count("T"), "healthy": kinds.count("H")}
    return {**{name: n for name, n in sizes.items() if n}, **count_rows(rows), "troubles_rows": rows}


def count_own(runs: int, seed: int, small: bool, names: Sequence[str] = ()) -> dict[str, object]:
    """The twenty sealed kinds, as `sealed_runs.py` plays them."""
    chosen = names or (("maths_parts", "code_preempted") if small else tuple(sealed_runs.KINDS))
    rows = play_all(sealed_runs.play, chosen, range(seed, seed + runs), 5 if small else None)
    return {**count_rows(rows, "own_"), "own_rows": rows}
