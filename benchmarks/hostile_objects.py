"""Hostile objects handed to a watched training: nothing may be raised into it, and everything lost must be counted.

    python benchmarks/hostile_objects.py [--json] [--write] [--only NAME] [--entries observe capture attach]

Each kind of object is passed to `observe` (in every column, as the column and as one of its rows), to a captured reward
function (as an argument, a result and an exception), and to a TRL trainer that is attached (in dataset rows, logs and
evaluation metrics of real training). The harness counts what it passed. A training failure is an exception that gets
out, a result that is not the reward's own, or a training that does not end as an unwatched one does. Uncounted is what
was passed and is neither stored nor among the losses.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import asyncio
import functools
import itertools
import logging
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np

import tiltmeter
from record import record, show
from tiltmeter.adapters.capture.capture import capture
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.errors import Boundary
from tiltmeter.rundir.store import RunDirectory

ROWS = 4
GROUP = [0, 0, 1, 1]
#: What `observe` takes, by where a hostile object is put.
COLUMNS = ("reward", "gold", "completion", "prompt", "facts", "length", "tokens", "logprob", "truncated", "advantage")
ENTRIES = ("observe", "capture", "attach")


class Panic(BaseException):
    """As Rust extensions raise it."""


def raising(error: Callable[[], BaseException], *names: str) -> Any:
    """An object whose methods of these names raise."""

    def fail(self: object, *args: object, **kwargs: object) -> Any:
        raise error()

    return type("Raising", (), dict.fromkeys(names, fail))()


def odd_error(**methods: Any) -> Callable[[], BaseException]:
    kind = type("OddError", (Exception,), methods)
    return lambda: kind("x")


def broken(self: object) -> Any:
    raise IndexError("an ordinary bug")


class Shouting(str):
    """A text whose own methods fail."""

    __slots__ = ()
    __getitem__ = __len__ = __iter__ = encode = __format__ = broken  # type: ignore[assignment]


class NamelessMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__name__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class NamelessError(Exception, metaclass=NamelessMeta): ...


class ClasslessError(Exception):
    __class__: Any = property(broken)


class Sized:
    """It has a length, and rows that never end."""

    def __init__(self, length: Any = ROWS) -> None:
        self.length = length

    def __len__(self) -> Any:
        return self.length

    def __getitem__(self, row: int) -> float:
        return 1.0


class Endless(Mapping[str, float]):
    def __getitem__(self, key: str) -> float:
        return 1.0

    def __len__(self) -> int:
        return 10**12

    def __iter__(self) -> Iterator[str]:
        return (f"key {number}" for number in itertools.count())


class BadItems(dict[str, float]):
    items = keys = values = __iter__ = broken


class Impostor:
    """It says that it is an array."""

    __class__: Any = np.ndarray


class Array:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, *args: object, **kwargs: object) -> Any:
        return self.value


def array_of_itself() -> Array:
    box = Array(None)
    box.value = box
    return box


@dataclass
class Number:
    """What numpy's scalars and one-element tensors look like."""

    value: Callable[[], Any]

    def item(self) -> Any:
        return self.value()

    def __float__(self) -> float:
        return self.value()  # type: ignore[no-any-return]


@dataclass
class Scene:
    """Where objects are passed to, for those that call back."""

    again: Callable[[], None] = lambda: None
    passed: int = 0
    failures: list[str] = field(default_factory=list)

    def call(self, what: str, work: Callable[[], Any], count: int = 1) -> Any:
        self.passed += count
        try:
            return work()
        except BaseException as error:  # noqa: BLE001  # whatever reaches the trainer is the failure looked for
            self.failures.append(f"{what}: {type(error)!r}")
            return None


def fail_with(error: BaseException) -> Any:
    raise error


def midway() -> Iterator[float]:
    yield 1.0
    raise Panic("midway")


def inside_itself(container: Any) -> Any:
    container.append(container) if isinstance(container, list) else container.update(me=container)
    return container


def deep(levels: int = 20_000) -> Any:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def dead_proxy() -> Any:
    return weakref.proxy(Sized())


def released() -> Any:
    view = memoryview(bytearray(8))
    view.release()
    return view


class Calls:
    """Whoever looks at it is called back."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def __array__(self, *args: object, **kwargs: object) -> Any:
        self.scene.again()
        return np.ones(ROWS)

    def __len__(self) -> int:
        return ROWS


Kind = Callable[[Scene], Any]
KINDS: dict[str, Kind] = {
    "error without a text": lambda scene: raising(odd_error(__str__=broken), "__array__", "__len__", "__iter__"),
    "error without a form": lambda scene: raising(
        odd_error(__str__=broken, __repr__=broken), "__array__", "__len__", "__iter__"
    ),
    "error whose text is a number": lambda scene: raising(odd_error(__str__=lambda self: 3), "__array__", "__iter__"),
    "error whose text is broken": lambda scene: raising(
        odd_error(__str__=lambda self: Shouting("x")), "__array__", "__iter__"
    ),
    "error that says exit": lambda scene: raising(
        odd_error(__str__=lambda self: fail_with(Panic())), "__array__", "__iter__"
    ),
    "error without a name": lambda scene: raising(lambda: NamelessError("x"), "__array__", "__iter__"),
    "error without a class": lambda scene: raising(lambda: ClasslessError("x"), "__array__", "__iter__"),
    "error of ten megabytes": lambda scene: raising(lambda: ValueError("x" * 10_000_000), "__array__", "__iter__"),
    "panic": lambda scene: raising(lambda: Panic("x"), "__array__", "__len__", "__iter__"),
    "generator exit": lambda scene: raising(GeneratorExit, "__array__", "__iter__"),
    "cancelled": lambda scene: raising(asyncio.CancelledError, "__array__", "__iter__"),
    "no memory": lambda scene: raising(MemoryError, "__array__", "__iter__"),
    "recursion": lambda scene: raising(RecursionError, "__array__", "__iter__"),
    "stop iteration": lambda scene: raising(StopIteration, "__array__", "__iter__"),
    "group of errors": lambda scene: raising(lambda: BaseExceptionGroup("x", [Panic()]), "__array__", "__iter__"),
    "length raises": lambda scene: raising(lambda: Panic("x"), "__len__"),
    "length below zero": lambda scene: Sized(-1),
    "length beyond all": lambda scene: Sized(10**18),
    "length in words": lambda scene: Sized("four"),
    "rows without end": lambda scene: Sized(),
    "iterator without end": lambda scene: itertools.repeat(1.0),
    "numbers without end": lambda scene: itertools.count(),
    "generator": lambda scene: (float(row) for row in range(ROWS)),
    "generator that fails": lambda scene: midway(),
    "no attribute": lambda scene: raising(lambda: Panic("x"), "__getattr__"),
    "no attribute at all": lambda scene: raising(lambda: RuntimeError("x"), "__getattribute__"),
    "another class": lambda scene: Impostor(),
    "number that fails": lambda scene: Number(lambda: fail_with(odd_error(__str__=broken)())),
    "number that panics": lambda scene: Number(lambda: fail_with(Panic("x"))),
    "number in words": lambda scene: Number(lambda: "one"),
    "number beyond all": lambda scene: Number(lambda: 10**400),
    "number that calls back": lambda scene: Number(lambda: scene.again() or 1.0),  # type: ignore[func-returns-value]
    "array that is none": lambda scene: Array("text"),
    "array of itself": lambda scene: array_of_itself(),
    "array beyond all memory": lambda scene: Array(np.broadcast_to(np.float64(1.0), (10**12,))),
    "array of objects": lambda scene: Array(np.array([Number(lambda: fail_with(Panic()))] * ROWS, object)),
    "array of structures": lambda scene: np.zeros(ROWS, [("a", float), ("b", int)]),
    "complex numbers": lambda scene: np.ones(ROWS, complex),
    "dates": lambda scene: np.zeros(ROWS, "datetime64[s]"),
    "masked": lambda scene: np.ma.masked_array(np.ones(ROWS), [True] * ROWS),
    "column that calls back": Calls,
    "mock": lambda scene: MagicMock(),
    "mock with everything": lambda scene: Mock(__array__=Mock(side_effect=Panic)),
    "list inside itself": lambda scene: inside_itself([]),
    "dict inside itself": lambda scene: inside_itself({}),
    "deep list": lambda scene: deep(),
    "mapping without end": lambda scene: Endless(),
    "mapping without items": lambda scene: BadItems(a=1.0),
    "key without a text": lambda scene: {raising(lambda: Panic("x"), "__str__", "__repr__"): 1.0},
    "text that is broken": lambda scene: Shouting("text"),
    "half a character": lambda scene: "\ud800" * ROWS,
    "bytes": lambda scene: b"\xff" * ROWS,
    "nobody's proxy": lambda scene: dead_proxy(),
    "released memory": lambda scene: released(),
    "no truth": lambda scene: raising(lambda: Panic("x"), "__bool__", "__eq__", "__hash__"),
    "not a number": lambda scene: float("nan"),
    "a class": lambda scene: Sized,
    "an exception": lambda scene: ClasslessError("x"),
}
if find_spec("torch") is not None:
    torch = import_module("torch")
    KINDS |= {
        "tensor of no device": lambda scene: torch.empty(ROWS, device="meta"),
        "sparse tensor": lambda scene: torch.eye(ROWS).to_sparse(),
        "tensor of eight bits": lambda scene: torch.ones(ROWS).to(torch.float8_e4m3fn),
        "conjugate tensor": lambda scene: torch.ones(ROWS, dtype=torch.complex64).conj(),
    }


def good(step: int) -> dict[str, Any]:
    return {"step": step, "group": GROUP, "reward": [1.0, 0.0, 0.5, 0.25], "completion": ["a", "b", "c", "d"]}


def places(thing: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where one object can stand in a call of `observe`; its step is set by the caller."""
    for name in COLUMNS:
        yield name, {name: thing}
        yield f"a row of {name}", {name: [thing] * ROWS}
    yield "scalars", {"scalars": thing}
    yield "a scalar", {"scalars": {"loss": thing}}
    yield "rewards", {"rewards": thing}
    yield "a component", {"rewards": {"format": thing}}
    yield "group", {"group": thing}
    yield "fingerprint", {"fingerprint": thing}
    yield "step", {"step": thing}


def unaccounted(counters: Mapping[str, int], passed: int) -> int:
    stored = counters["written"] + counters["thinned"] + counters["dropped"]
    return abs(passed - counters["seen"]) + abs(counters["seen"] - stored)


def try_observe(name: str, kind: Kind, folder: Path) -> tuple[list[str], int]:
    """The exceptions that got out of `observe`, `evaluate` and `pinned`, and how many batches are in no account."""
    scene, steps = Scene(), itertools.count()
    run = open_run(folder / "run", monitor=False)

    def again() -> None:
        scene.call("again", lambda: run.observe(**good(next(steps))))

    scene.again = again
    for where, columns in places(kind(scene)):
        for give in (False, True):
            step = next(steps)
            batch = {**good(step), **columns}
            scene.call(f"{name} as {where}", functools.partial(run.observe, give=give, **batch))
    thing = kind(scene)
    calls: list[Callable[[], None]] = [
        lambda: run.evaluate(thing, 0.5, 10),
        lambda: run.evaluate(1, thing, 10),
        lambda: run.pinned(1, thing, thing),
        lambda: run.pinned(thing, ["p"], ["c"], [thing]),
    ]
    for at, work in enumerate(calls):
        scene.call(f"{name} in call {at}", work, 0)
    for _ in range(3):
        scene.call("good", lambda: run.observe(**good(next(steps))))
    drain(run)  # what calls back calls a closed run otherwise, which hears nothing
    scene.call("close", run.close, 0)
    lost = unaccounted(run.counters, scene.passed)
    lost += unnamed_columns(run)
    if not RunDirectory(folder / "run").ended(0):
        scene.failures.append(f"{name}: no end marker")
    return scene.failures, lost


def drain(run: Run) -> None:
    deadline = time.monotonic() + 20.0
    while run._writer is not None and run._writer._pending and time.monotonic() < deadline:
        time.sleep(0.01)


def unnamed_columns(run: Run) -> int:
    """Batches that have fewer columns than they were passed with, in a run that names no lost column."""
    store = run.store
    assert store is not None
    thinner = sum(store.read(file)[0].completion is None for file in store.files(0))
    return thinner if not run.counters["columns_lost"] and not run.counters["thinned"] else 0


def try_capture(name: str, kind: Kind, folder: Path) -> tuple[list[str], int]:
    """The same for a captured reward function, which must give what it gave without us."""
    scene = Scene()
    result: list[Any] = [None]

    def reward(prompts: Any, completions: Any, **more: Any) -> Any:
        if type(result[0]) is ClasslessError:
            raise result[0]
        return result[0]

    wrapped: Any = capture(reward, folder / "captured", monitor=False)

    def call(where: str, value: Any, **arguments: Any) -> None:
        result[0] = value
        scene.passed += 1
        try:
            if wrapped(**{"prompts": ["p"] * ROWS, "completions": ["c"] * ROWS, **arguments}) is not value:
                scene.failures.append(f"{name} as {where}: another result")
        except BaseException as error:  # noqa: BLE001
            if error is not value:  # the reward's own exception passes
                scene.failures.append(f"{name} as {where}: {type(error)!r}")

    scene.again = lambda: call("again", [1.0] * ROWS)
    fine = [1.0] * ROWS
    thing = kind(scene)
    call("completions", fine, completions=thing)
    call("a completion", fine, completions=[thing] * ROWS)
    call("prompts", fine, prompts=thing)
    call("a prompt", fine, prompts=[thing] * ROWS)
    call("a fact", fine, answer=[thing] * ROWS)
    call("ids", fine, completion_ids=thing)
    call("state", fine, trainer_state=thing)
    call("the result", kind(scene))
    call("a score", [kind(scene)] * ROWS)
    call("a named score", {"score": fine, "part": kind(scene)})
    scene.call("step", lambda: tiltmeter.capture.step(kind(scene), scalars=kind(scene)), 0)
    call("good", fine)
    recorder = wrapped.recorder
    scene.call("flush", recorder.flush, 0)
    scene.call("close", recorder.close, 0)
    counts = recorder.counters
    lost = abs(scene.passed - counts["calls"]) + abs(counts["rows"] - counts["written"] - counts["dropped"])
    return scene.failures, lost


def try_attach(kinds: Mapping[str, Kind], folder: Path) -> tuple[list[str], int]:
    """Real training with one kind at each step; parameters must be those of the same training, unwatched."""
    trl_model: Any = import_module("trl_model")
    model = trl_model.make_model(folder / "model", trl_model.SMALL)
    steps = len(kinds) + 2

    def trained(watched: bool) -> tuple[Any, Any]:
        trainer = trl_model.make_trainer(
            model, folder / f"out-{watched}", trl_model.SMALL, steps=steps, rewards=[trl_model.long]
        )
        generate, scene = trainer._generate_and_score_completions, Scene()
        things = [kind(scene) for kind in kinds.values()]

        def planted(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            output = generate(inputs, *args, **kwargs)
            number = trainer.state.global_step
            if number < len(things):
                for row in inputs:
                    row["note"] = things[number]
            return output

        trainer._generate_and_score_completions = planted
        run = None
        if watched:
            with trl_model.quiet():
                run = tiltmeter.attach(
                    trainer, directory=folder / "attached", gold=tiltmeter.Gold(evals=["eval_score"])
                )
            hooks = run._callback
            for number, thing in enumerate(things):
                arguments = (trainer.args, trainer.state, trainer.control)
                for hook, options in (
                    (hooks.on_log, {"logs": {"kl": thing, "loss": thing}}),
                    (hooks.on_log, {"logs": thing}),
                    (hooks.on_evaluate, {"metrics": {"eval_score": thing}}),
                    (hooks.on_evaluate, {"metrics": thing}),
                ):
                    scene.call(f"hook {number}", functools.partial(hook, *arguments, **options), 0)
        (run or trainer).train()
        return trainer, (run, scene)

    plain, _ = trained(False)
    trainer, (run, scene) = trained(True)
    failures = [f"attach: {failure}" for failure in scene.failures]
    if trainer.state.global_step != steps:
        failures.append(f"attach: ended at step {trainer.state.global_step} of {steps}")
    if trl_model.parameters(trainer) != trl_model.parameters(plain):
        failures.append("attach: other parameters than unwatched")
    return failures, unaccounted(run.counters, steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record it in benchmarks/results/hostile_objects.json")
    parser.add_argument("--only", metavar="NAME", help="only kinds whose name has this in it")
    parser.add_argument("--broken", action="store_true", help="with a boundary that catches nothing: it must be found")
    parser.add_argument("--entries", nargs="+", choices=ENTRIES, default=ENTRIES)
    options = parser.parse_args()
    if options.broken:
        Boundary.__exit__ = lambda *_: False  # type: ignore[method-assign]
        threading.excepthook = lambda _: None
    logging.getLogger("tiltmeter").setLevel(logging.CRITICAL)
    chosen = {name: kind for name, kind in KINDS.items() if options.only is None or options.only in name}
    failures: list[str] = []
    uncounted: dict[str, int] = {}
    ways: dict[str, Callable[[str, Kind, Path], tuple[list[str], int]]] = {
        "observe": try_observe,
        "capture": try_capture,
    }
    for entry in options.entries:
        for name, kind in chosen.items() if entry in ways else ():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                new, lost = ways[entry](name, kind, Path(folder))
            failures += new
            uncounted |= {f"{entry}: {name}": lost} if lost else {}
            print(
                f"{'failed' if new or lost else 'passed'}  {entry}: {name} {new} {lost or ''}",
                file=sys.stderr,
                flush=True,
            )
    if "attach" in options.entries:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            new, lost = try_attach(chosen, Path(folder))
        failures += new
        uncounted |= {"attach": lost} if lost else {}
    figures = {
        "kinds": len(chosen),
        "entries": len(options.entries),
        "training_failures": len(failures),
        "uncounted": sum(uncounted.values()),
        "failures": failures[:20],
        "uncounted_where": uncounted,
    }
    show(record("hostile_objects", figures, seed=0, keep=options.write), as_json=options.json)
    return int(bool(failures or uncounted) != options.broken)


if __name__ == "__main__":
    sys.exit(main())
