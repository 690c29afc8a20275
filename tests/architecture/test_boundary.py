"""Nothing of the package raises into a trainer: one boundary catches everything, and each entry stands behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tiltmeter"
EVERYTHING = {"Exception", "BaseException"}
#: What runs in the trainer's process.
TRAINERS_SIDE = ("adapters", "rundir")

#: What a trainer calls, or what is called for it at a fork or an exit. Each is `file: class.function`.
ENTRIES = {
    "adapters/custom_loop.py": (
        *("Run.observe", "Run.refuse", "Run.record_problem", "Run.evaluate", "Run.pinned", "Run.keep_alive"),
    ),
    "adapters/capture/capture.py": ("Capture.step", "CallListener.record"),
    "adapters/capture/recorder.py": ("Recorder.step", "Recorder.close", "Recorder.refuse", "Recorder.add_call"),
    "adapters/openrlhf.py": ("OpenRLHFObserver.step",),
    "adapters/prime_rl.py": (
        *("PrimeRLMonitor.log_metrics", "PrimeRLMonitor.log_episodes", "PrimeRLMonitor.close", "PrimeRLMonitor._loop"),
    ),
    "adapters/prime_rl_screen.py": ("ScreenFilter.check",),
    "adapters/verl/driver.py": ("VerlObserver._guard", "VerlObserver.close"),
    "adapters/trl/attach.py": (
        *("Callback._guard", "Callback.on_train_begin", "Callback.on_step_begin", "Callback.on_step_end"),
        *("Callback.on_log", "Callback.on_save", "Callback.on_evaluate", "Callback.finish"),
        *("Callback.on_train_end",),
    ),
    "adapters/trl/reporter.py": ("RunReporter._read",),
    "adapters/trl/control.py": ("TrlControl._read_requests",),
    "rundir/writer.py": ("Writer.close", "Writer._work", "StepWriter._write_next"),
}


def handlers(path: Path) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            yield node


def swallows_everything(handler: ast.ExceptHandler) -> bool:
    """Whether it catches whatever comes, and does not raise at its end."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    all_of_them = any(kind is None or (isinstance(kind, ast.Name) and kind.id in EVERYTHING) for kind in types)
    return all_of_them and not isinstance(handler.body[-1], ast.Raise)


def catch_all_elsewhere(src: Path) -> list[str]:
    return [
        f"{path.relative_to(src)}:{handler.lineno}"
        for room in TRAINERS_SIDE
        for path in sorted((src / room).rglob("*.py"))
        for handler in handlers(path)
        if swallows_everything(handler)
    ]


def guarded(function: ast.AST) -> bool:
    """Whether a boundary is made, entered (`with self._boundary`) or called (`self._guard(...)`) in it."""
    entered = [item.context_expr for node in ast.walk(function) if isinstance(node, ast.With) for item in node.items]
    if any(isinstance(item, ast.Attribute) and item.attr == "_boundary" for item in entered):
        return True
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(
        (isinstance(call, ast.Name) and call.id == "Boundary")
        or (isinstance(call, ast.Attribute) and call.attr == "_guard")
        for call in calls
    )


def work_of(name: str, there: dict[str, ast.AST]) -> ast.AST:
    """The method itself, or the one that it hands to `finish_first`, if that is all it does."""
    match there[name]:
        case ast.FunctionDef(
            body=[
                *_,
                ast.Expr(ast.Call(ast.Name("finish_first"), [ast.Lambda(body=ast.Call(ast.Attribute(attr=work)))])),
            ]
        ):
            return there[f"{name.partition('.')[0]}.{work}"]
    return there[name]


def functions(path: Path) -> dict[str, ast.AST]:
    return {
        f"{owner.name}.{node.name}": node
        for owner in ast.walk(ast.parse(path.read_text()))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def test_only_the_boundary_catches_everything_in_the_trainers_process() -> None:
    assert catch_all_elsewhere(SRC) == []
    assert (
        sum(map(swallows_everything, handlers(SRC / "errors.py"))) == 3
    )  # describing an error, twice, and counting it


@pytest.mark.parametrize("file", ENTRIES)
def test_every_entry_stands_behind_the_boundary(file: str) -> None:
    there = functions(SRC / file)
    assert [name for name in ENTRIES[file] if not guarded(work_of(name, there))] == []


def test_every_callback_of_a_trainer_is_an_entry() -> None:
    hooks = {name for name in functions(SRC / "adapters/trl/attach.py") if name.startswith("Callback.on_")}
    assert hooks <= set(ENTRIES["adapters/trl/attach.py"])


def test_the_checks_see_what_is_planted(tmp_path: Path) -> None:
    (tmp_path / "rundir").mkdir()
    source = "try:\n    pass\nexcept (OSError, {}):\n    {}\n"
    for number, (kind, ends) in enumerate([("BaseException", "pass"), ("Exception", "pass"), ("ValueError", "pass")]):
        (tmp_path / "rundir" / f"{number}.py").write_text(source.format(kind, ends))
    (tmp_path / "rundir" / "raises.py").write_text(source.format("Exception", "raise"))
    (tmp_path / "rundir" / "bare.py").write_text("try:\n    pass\nexcept:\n    pass\n")
    assert catch_all_elsewhere(tmp_path) == ["rundir/0.py:3", "rundir/1.py:3", "rundir/bare.py:3"]
    assert not guarded(ast.parse("def observe(self):\n    self.write()\n"))
    source = (
        "class Run:\n    def close(self):\n        finish_first(lambda n: self._end())\n"
        "    def _end(self):\n        {}\n"
    )
    for body, is_guarded in (("self.write()", False), ("self._guard(self.write)", True)):
        (tmp_path / "ends.py").write_text(source.format(body))
        assert guarded(work_of("Run.close", functions(tmp_path / "ends.py"))) == is_guarded
