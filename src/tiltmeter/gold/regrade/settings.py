"""`tiltmeter.Regrade`: which tests are run again on final workspaces, and what of a workspace counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.sandbox.values import NotPlain, decode, encode

SUFFIX = ".regrade.json"  # of a file with settings, by which they are named
SETTINGS_BYTES = 16 << 20
Case = tuple[str, Sequence[Any], Any]  # "package.module:function", arguments, what it must return


@dataclass(frozen=True)
class Regrade:
    """Gold of an agent's episode: 1 if its program is right by the task's own tests, whatever it did to them.

    The final workspace of an episode is kept. Of it only the paths that the task allows are laid over the pristine
    tree; then the original tests, held-out tests and cases are run in a sandbox. A label is 1.0 if all of them hold,
    else 0.0, and missing where something of ours broke.

    Args:
        tests: Folder or file with the task's tests, in its tree; or several.
        protected: Paths of which the agent's version never counts, as glob patterns.
        cases: Held-out calls, as `("package.module:function", (arguments,), expected)`; by task where there are
            several, as `{"roman": [...]}`; or a JSON file of either.
        allow: Paths that the agent may change; everything else is the task's own. A protected path is never allowed.
        base: Folder with the pristine tree. `tasks/{task}` for many: each row's `task` names its own.
        held_out: Folder with tests that the agent never sees, laid over the tree; may hold `{task}` too.
        packages: Installed packages that the program or its tests import, beside those that the pristine tree imports.
        timeout: Seconds that the tests of one workspace may take.
        memory_mb: Memory that they may take.

    Example:

        tiltmeter.attach(trainer, gold=tiltmeter.Regrade(base="tasks/{task}", allow=["src/**"], cases="cases.json"))
    """

    tests: str | Sequence[str] = "tests/"
    protected: Sequence[str] = ("tests/**", "conftest.py", "*.toml")
    cases: Sequence[Case] | Mapping[str, Sequence[Case]] | str = ()
    allow: Sequence[str] = ("src/**",)
    base: str = "."
    held_out: str = ""
    packages: Sequence[str] = ()
    timeout: float = 60.0
    memory_mb: int = 1024

    def __post_init__(self) -> None:
        for name in ("protected", "allow", "packages"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) and one for one in value):
                raise AttachError(f"Regrade({name}=...) takes a list of texts, as {name}=[{_EXAMPLES[name]!r}]")
            object.__setattr__(self, name, tuple(value))
        if not self.allow or not self.tests or not self.timeout > 0 or self.memory_mb < 64:
            raise AttachError("Regrade needs tests, something in allow, a timeout above 0 and at least 64 MB of memory")

    @property
    def test_paths(self) -> tuple[str, ...]:
        """The tests as paths in the tree, without slashes at their ends."""
        named = (self.tests,) if isinstance(self.tests, str) else tuple(self.tests)
        return tuple(one.strip("/").removeprefix("./") for one in named)

    def cases_of(self, task: str) -> tuple[Case, ...]:
        """The cases of one task. Raises `AttachError` if they are none."""
        raw = _read_cases(self.cases) if isinstance(self.cases, str) else self.cases
        raw = raw.get(task, ()) if isinstance(raw, Mapping) else raw
        cases = []
        for one in raw:
            if len(one) != 3 or not isinstance(one[0], str) or one[0].count(":") != 1:
                raise AttachError(
                    f'a case of Regrade is ("package.module:function", (arguments,), expected): {one!r:.80}'
                )
            cases.append((one[0], tuple(one[1]), one[2]))
        try:
            encode([(args, expected) for _, args, expected in cases])
        except NotPlain as error:
            raise AttachError(f"cases of Regrade hold plain values, and one has: {error}") from None
        return tuple(cases)

    def to_text(self) -> str:
        """The settings as the text of a file, with absolute paths: another process reads them.

        >>> read_settings(Regrade(allow=["app/**"], cases=[("a:f", (1,), (2,))]).to_text()).cases_of("")
        (('a:f', (1,), (2,)),)
        """
        values = asdict(self)
        for name in ("base", "held_out"):
            values[name] = values[name] and str(Path(values[name]).absolute())
        raw = _read_cases(self.cases) if isinstance(self.cases, str) else self.cases
        tasks = list(raw) if isinstance(raw, Mapping) else None
        values["cases"] = (
            encode(list(self.cases_of("")))
            if tasks is None
            else {task: encode(list(self.cases_of(task))) for task in tasks}
        )
        return json.dumps(
            {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}, sort_keys=True
        )


_EXAMPLES = {"protected": "tests/**", "allow": "src/**", "packages": "numpy"}


def _read_cases(file: str) -> Any:
    try:
        return json.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise AttachError(f"Regrade(cases={file!r}) cannot be read: {error}") from error


def read_settings(text: str) -> Regrade:
    """Settings that `to_text` wrote. Raises `AttachError`."""
    try:
        values = json.loads(text)
        unknown = set(values) - {field.name for field in fields(Regrade)}
        if unknown:
            raise ValueError(f"has {sorted(unknown)[0]!r}")
        cases = values.pop("cases", [])
        values["cases"] = (
            {task: decode(one) for task, one in cases.items()} if isinstance(cases, dict) else decode(cases)
        )
        return Regrade(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise AttachError(f"not settings of Regrade: {error}") from error
