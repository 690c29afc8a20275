"""Faults injected into real TRL training, one at every optimiser step: training must end as if nobody had watched.

    python benchmarks/trl_faults.py --faults 10000 --write

Each run trains the 2-layer model with `tiltmeter.attach` while its monitor is killed or stopped, its storage fails, its
directory disappears, garbage is planted, our own code raises (`trl_injections.py`), and, in the monitor, instruments, a
detector and gold fail (`trl_saboteur.py`). A training failure is a run that raises, ends early, or whose parameters are
not bit for bit those of an unwatched run of the same seed. A fault counts as injected only if it was met: a write that
failed, a process that was alive when it was killed, a part that carried out its order.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import faulthandler
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import tiltmeter
from record import record
from trl_injections import ALL, FAULTS, FIRST, KILLS, LAST, Site
from trl_model import SMALL, call_at, long, make_model, make_trainer, parameters, quiet

FULL, QUICK = 10_000, 300
STEPS = 150
HANG_LIMIT = 1200.0  # seconds after which a run that does not end is shown with all its threads, and is a failure
SABOTEUR = Path(__file__).with_name("trl_saboteur.py")

#: What the monitor's parts are told to do, by how often.
MONITOR_KINDS = {
    "instrument_raises": 10, "instrument_answers_nonsense": 10, "detector_raises": 10, "instrument_hangs": 1,
    "monitor_disk_full": 2,
}  # fmt: skip
GOLD_KINDS = {"gold_raises": 10, "gold_answers_nonsense": 10, "gold_hangs": 1}
#: What a monitor does not outlive, or waits for; left out where the parts of the monitor are what is disturbed.
STORMS = ("directory_away", "file_for_folder", "read_only", "monitor_stopped", "slow_disk")

# -- rewards and rollouts that are odd, watched or not ----------------------------------------------------------------


@dataclass
class Odd:
    """A reward function that answers oddly at fixed calls."""

    __name__ = "odd"
    seen: Counter[str] = field(default_factory=Counter)
    calls: int = 0

    def __call__(self, completions: list[str], **_: Any) -> list[float | None]:
        self.calls += 1
        usual: list[float | None] = [len(text) / 50 for text in completions]
        kind = {3: "rewards_all_none", 5: "rewards_nan", 7: "rewards_huge", 9: "rewards_some_none"}.get(self.calls % 13)
        if kind is None:
            return usual
        self.seen[kind] += 1
        if kind == "rewards_all_none":
            return [None] * len(usual)
        odd = {"rewards_nan": float("nan"), "rewards_huge": 1e15, "rewards_some_none": None}[kind]
        return [odd if row % 3 == 0 else value for row, value in enumerate(usual)]


def empty_now_and_then(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """Rollouts of an engine that answers with nothing but the end, with one token, or with plenty."""
    step, end, known = trainer.state.global_step, trainer.processing_class.eos_token_id, len(trainer.processing_class)
    ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
    lengths = [(0, 1, SMALL.tokens - 1, 3)[(row + step) % 4] for row, _ in enumerate(prompts)]
    answers = [[*(3 + (7 * row + at + step) % (known - 3) for at in range(n)), end] for row, n in enumerate(lengths)]
    return {"prompt_ids": ids, "completion_ids": answers, "logprobs": [[-0.5] * len(answer) for answer in answers]}


@dataclass(frozen=True)
class Variant:
    kind: str = "GRPO"
    changes: tuple[tuple[str, Any], ...] = ()
    engine: bool = False  # rollouts come from outside, and some are empty


VARIANTS = (
    Variant(),
    Variant("RLOO"),
    Variant(changes=(("num_iterations", 2),)),
    Variant(changes=(("gradient_accumulation_steps", 2),)),
    Variant(engine=True),
)

# -- one training run -------------------------------------------------------------------------------------------------


def made(model: Path, home: Path, variant: Variant, steps: int, seed: int) -> tuple[Any, Odd]:
    odd = Odd()
    changes = {**dict(variant.changes), "seed": seed}
    trainer = make_trainer(model, home, SMALL, steps=steps, rewards=[odd, long], kind=variant.kind, **changes)
    if variant.engine:
        trainer.rollout_func = empty_now_and_then
    return trainer, odd


@dataclass
class Outcome:
    met: Counter[str]
    failure: str = ""
    unaccounted: int = 0
    slowest_step: float = 0.0


@dataclass(frozen=True)
class Case:
    """One kind of run to disturb."""

    variant: Variant
    mode: Literal["advise", "observe"]
    storm: bool
    seed: int


def disturbed(model: Path, home: Path, case: Case, steps: int, expected: str, patience: float) -> Outcome:
    """Train once with a fault at every step, and say what was met and how it ended."""
    rng = random.Random(repr(case))
    home.mkdir()
    (home / "done").mkdir()
    orders = {"steps": dict(enumerate(drawn(rng, MONITOR_KINDS, steps), 1)), "gold": gold_orders(rng, steps)}
    (home / "orders.json").write_text(json.dumps(orders))
    os.environ["TILTMETER_SABOTAGE"] = str(home)
    trainer, odd = made(model, home / "out", case.variant, steps, case.seed)
    parts = ("Raises", "Hangs", "Nonsense", "FullDisk", "BrokenDetector")
    saboteur = Saboteur(plan(rng, steps, storm=case.storm))
    call_at(trainer, "on_train_begin", lambda step: saboteur.next(-1))
    call_at(trainer, "on_step_begin", saboteur.next)  # before ours, so that handing over a step is disturbed too
    with quiet():
        run = tiltmeter.attach(
            trainer,
            act=case.mode,
            gold=tiltmeter.Gold(f"{SABOTEUR}:score", share=0.5),
            options=tiltmeter.Options(plugins=[f"{SABOTEUR}:{part}" for part in parts]),
        )
    (home / "attached").touch()
    saboteur.site = Site(run, home, rng)
    outcome = Outcome(saboteur.met)
    try:
        run.train() if rng.random() < 0.5 else trainer.train()
    except BaseException:  # noqa: BLE001  # whatever reaches the trainer is the failure looked for
        outcome.failure = traceback.format_exc()
    saboteur.end()
    outcome.slowest_step = saboteur.slowest
    if not outcome.failure and trainer.state.global_step != steps:
        outcome.failure = f"ended at step {trainer.state.global_step} of {steps}"
    elif not outcome.failure and parameters(trainer) != expected:
        outcome.failure = "the parameters are not those of an unwatched run"
    told = run.counters
    outcome.unaccounted = told["seen"] - told["written"] - told["thinned"] - told["dropped"]
    finish_monitor(saboteur.site, patience)
    outcome.met += odd.seen
    outcome.met += Counter(path.name.split(".")[0] for path in (home / "done").iterdir())
    return outcome


class Saboteur:
    """Holds one fault over each step, from its beginning to the beginning of the next."""

    def __init__(self, plan: list[str]) -> None:
        self.plan, self.met = plan, Counter[str]()
        self.site: Site = None  # type: ignore[assignment]  # there is none before attach
        self._on: AbstractContextManager[None] | None = None
        self._kind = ""
        self.slowest, self._began = 0.0, 0.0

    def next(self, step: int) -> None:
        if self._began:
            self.slowest = max(self.slowest, time.monotonic() - self._began)
        self.end()
        self._kind = self.plan[step + 1]
        self.site.met, self.site.step = 0, step + 1
        fault = ALL[self._kind](self.site)
        fault.__enter__()
        self._on = fault
        self._began = time.monotonic()

    def end(self) -> None:
        """Take the fault away, once the writer has had time to meet it."""
        if self._on is None:
            return
        deadline = time.monotonic() + 0.5
        while not self.site.drained() and time.monotonic() < deadline:
            time.sleep(0.002)
        self._on.__exit__(None, None, None)
        self._on = None
        self.met[self._kind] += self.site.met > 0


def plan(rng: random.Random, steps: int, *, storm: bool) -> list[str]:
    """A fault for the beginning and one for every step, each kind about equally often.

    In a storm the monitor is killed as often as it is started again, its directory is taken away, and at last nothing
    is left; without one, it lives to carry out its own orders.
    """
    known = [kind for kind in FAULTS if storm or kind not in STORMS]
    kinds = list(itertools.islice(itertools.cycle(rng.sample(known, len(known))), steps))
    rng.shuffle(kinds)
    if storm:
        for number in range(KILLS):
            kinds[steps * (2 * number + 1) // (2 * KILLS)] = "monitor_killed"
        kinds[-1 if rng.random() < 0.5 else -2] = rng.choice(list(LAST))
    return [rng.choice(list(FIRST)), *kinds]


def gold_orders(rng: random.Random, steps: int) -> list[str]:
    orders = drawn(rng, GOLD_KINDS, steps)
    orders[steps // 4] = "gold_exits"
    if rng.random() < 0.3:
        orders[steps // 2] = "gold_hangs_for_good"
    return orders


def drawn(rng: random.Random, kinds: dict[str, int], count: int) -> list[str]:
    return rng.choices(list(kinds), list(kinds.values()), k=count)


def finish_monitor(site: Site, patience: float) -> None:
    """Let the monitor carry out its orders while it still does; one that was told to hang for good ends here."""
    seen, deadline = -1, time.monotonic() + patience
    while site.monitor.poll() is None:
        if (now := len(list((site.home / "done").iterdir()))) > seen:
            seen, deadline = now, time.monotonic() + patience
        if time.monotonic() > deadline:
            site.monitor.kill()
            site.monitor.wait()
        time.sleep(0.05)


# -- the campaign -----------------------------------------------------------------------------------------------------


def cases(seed: int) -> Iterator[Case]:
    """Every variant, with and without a storm, in one mode each; then in the other; then again with other seeds."""
    for number in itertools.count():
        turn, variant = number // (2 * len(VARIANTS)), VARIANTS[number // 2 % len(VARIANTS)]
        mode: Literal["advise", "observe"] = "observe" if (number + turn) % 2 else "advise"
        yield Case(variant, mode, bool(number % 2), seed + 1 + turn // 2)


@contextmanager
def broken(number: int) -> Iterator[None]:
    """An adapter that a campaign must find out: errors get through, or numbers are drawn that training would have."""
    adapter, rollouts = import_module("tiltmeter.adapters.trl.attach"), import_module("tiltmeter.adapters.trl.rollouts")
    guard, hear, draw = adapter.Callback._guard, rollouts.Rollouts._record_loss, import_module("torch").rand
    if number % 2 == 0:
        adapter.Callback._guard = lambda self, work: work()
    else:
        rollouts.Rollouts._record_loss = lambda self, ids, output: (draw(1), hear(self, ids, output))
    try:
        yield
    finally:
        adapter.Callback._guard, rollouts.Rollouts._record_loss = guard, hear


def campaign(home: Path, faults: int, steps: int, seed: int, patience: float, *, sound: bool = True) -> dict[str, Any]:
    model = make_model(home / "model", SMALL)
    met: Counter[str] = Counter()
    expected: dict[tuple[Variant, int], str] = {}
    failures: list[str] = []
    slowest, unaccounted, runs = 0.0, 0, 0
    started = time.monotonic()
    for run, case in enumerate(cases(seed)):
        if met.total() >= faults and run >= 2:
            break
        faulthandler.dump_traceback_later(HANG_LIMIT, exit=True)
        key = (case.variant, case.seed)
        if key not in expected:
            trainer, _ = made(model, home / "plain", case.variant, steps, case.seed)
            trainer.train()
            expected[key] = parameters(trainer)
        place = home / f"run-{run}"
        with nullcontext() if sound else broken(run):
            outcome = disturbed(model, place, case, steps, expected[key], patience)
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(place)
        met += outcome.met
        runs, slowest = run + 1, max(slowest, outcome.slowest_step)
        unaccounted += outcome.unaccounted
        if outcome.failure:
            failures.append(f"{case}: {outcome.failure.strip().splitlines()[-1]}")
            print(case, outcome.failure, file=sys.stderr, flush=True)
        elapsed = time.monotonic() - started
        print(
            f"run {runs}: {met.total()} faults, {len(failures)} failures, {elapsed:.0f} s", file=sys.stderr, flush=True
        )
    return {
        "injected": met.total(),
        "training_failures": len(failures),
        "runs": runs,
        "steps": runs * steps,
        "unaccounted_batches": unaccounted,
        "slowest_step_s": round(slowest, 2),
        "by_kind": dict(sorted(met.items())),
        "failures": failures[:20],
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} faults instead of {FULL}")
    parser.add_argument("--faults", type=int, help="how many faults at least")
    parser.add_argument("--steps", type=int, help=f"optimiser steps of a run, {STEPS} if nothing is said")
    parser.add_argument(
        "--patience", type=float, default=3.0, help="seconds that a monitor may do nothing before it ends"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/faults.json whatever the size")
    parser.add_argument("--broken", action="store_true", help="with an adapter that hurts training: it must be found")
    options = parser.parse_args()
    faults = options.faults or (QUICK if options.quick else FULL)
    steps = options.steps or (110 if options.quick else STEPS)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-faults-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        figures = campaign(Path(folder), faults, steps, options.seed, options.patience, sound=not options.broken)
    result = record("faults", figures, seed=options.seed, keep=(faults >= FULL or options.write) and not options.broken)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))
    return 1 if figures["training_failures"] and not options.broken else 0


if __name__ == "__main__":
    sys.exit(main())
