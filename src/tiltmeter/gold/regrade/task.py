"""A task to grade by: its pristine tree, its tests and held-out ones, as files; read from folders once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tiltmeter.gold.regrade.hostile_folder import read_folder
from tiltmeter.gold.regrade.path_rules import counts, is_workspace_path
from tiltmeter.gold.regrade.settings import Case, Regrade
from tiltmeter.gold.regrade.workspace import KeptWorkspace, tree_digest

TREE_FILE_BYTES, TREE_BYTES, TREE_FILES = 16 << 20, 64 << 20, 30_000
_TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$")


class TaskError(ValueError):
    """A task cannot be graded by, and why; this says nothing about a workspace."""


@dataclass(frozen=True)
class GradingTask:
    """What workspaces of one task are graded by.

    >>> task = GradingTask({"src/a.py": b"", "tests/test_a.py": b"def test_a(): pass"}, ("tests",))
    >>> task.test_files, sorted(task.restore(KeptWorkspace(files={"src/a.py": "x = 1", "tests/test_a.py": ""})))
    (('tests/test_a.py',), ['src/a.py', 'tests/test_a.py'])
    """

    tree: Mapping[str, bytes]
    tests: Sequence[str]
    held_out: Mapping[str, bytes] = None  # type: ignore[assignment]
    cases: tuple[Case, ...] = ()
    allow: Sequence[str] = ("src/**",)
    protected: Sequence[str] = ("tests/**",)
    packages: Sequence[str] = ()
    timeout: float = 60.0
    memory_mb: int = 1024

    @cached_property
    def digest(self) -> str:
        return tree_digest(self.tree)

    @property
    def hidden_tests(self) -> Mapping[str, bytes]:
        return self.held_out or {}

    @cached_property
    def test_files(self) -> tuple[str, ...]:
        """Files with tests, held-out ones among them."""
        inside = [path for path in self.tree if _TEST_FILE.search(path) and self._is_test(path)]
        return tuple(sorted({*inside, *(path for path in self.hidden_tests if _TEST_FILE.search(path))}))

    def _is_test(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") or one in ("", ".") for one in self.tests)

    def counts(self, path: str) -> bool:
        """Whether the agent's version of this path is graded: never a test's."""
        protects = (*self.protected, *(f"/{one}" for one in self.tests), *(f"/{one}/**" for one in self.tests if one))
        return counts(path, self.allow, protects) and path not in self.hidden_tests

    def restore(self, workspace: KeptWorkspace) -> dict[str, bytes]:
        """The pristine tree with what counts of a workspace. Raises `TaskError` or `ValueError`."""
        if workspace.base and workspace.base != self.digest:
            raise TaskError("the workspace was workspace against another tree than that of its task")
        if workspace.unknown:
            raise TaskError(f"the workspace was not workspace whole: {', '.join(sorted(workspace.left_out))}")
        whole = not workspace.base  # without a tree to compare with, what is not there was removed
        content = workspace.content
        tree = {path: data for path, data in self.tree.items() if not self._is_gone(path, workspace, content, whole)}
        tree |= {path: data for path, data in content.items() if self.counts(path)}
        return tree | dict(self.hidden_tests)

    def links(self, workspace: KeptWorkspace) -> dict[str, str]:
        return {path: target for path, target in workspace.links.items() if self.counts(path)}

    def _is_gone(self, path: str, workspace: KeptWorkspace, content: Mapping[str, bytes], whole: bool) -> bool:
        gone = path not in content if whole else path in workspace.removed
        return gone and self.counts(path)


def read_task(settings: Regrade, name: str = "") -> GradingTask:
    """The task of that name. Raises `TaskError` with what to do."""
    base = Path(place(settings.base, name))
    if (base / "task.toml").is_file() and (base / "environment").is_dir():
        tree, tests = _read_harbor(base)
    else:
        tree, tests = read_tree(base), settings.test_paths
    held_out = read_tree(Path(place(settings.held_out, name))) if settings.held_out else {}
    task = GradingTask(
        tree, tests, held_out, settings.cases_of(name), settings.allow, settings.protected, settings.packages,
        settings.timeout, settings.memory_mb,
    )  # fmt: skip
    if not task.test_files and not task.cases:
        raise TaskError(f"{base} has no test_*.py in {', '.join(tests)}, and there are no cases")
    return task


def place(pattern: str, task: str) -> str:
    """A folder by its pattern. Raises `TaskError` for a name that leads elsewhere.

    >>> place("tasks/{task}/repo", "roman"), place("repo", "roman")
    ('tasks/roman/repo', 'repo')
    """
    if "{task}" not in pattern:
        return pattern
    if not is_workspace_path(task):
        raise TaskError("the row has no `task` that names a folder")
    return pattern.replace("{task}", task)


def read_tree(folder: Path) -> dict[str, bytes]:
    """The files of a pristine tree or of held-out tests. Raises `TaskError`."""
    try:
        listing = read_folder(folder, file_bytes=TREE_FILE_BYTES, total_bytes=TREE_BYTES, most=TREE_FILES)
    except OSError as error:
        raise TaskError(f"{folder} cannot be read: {error.strerror or error}") from error
    if listing.cut or "too large" in listing.left_out:
        raise TaskError(f"{folder} is larger than {TREE_BYTES >> 20} MB or {TREE_FILES} files")
    return listing.files


def _read_harbor(folder: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """A task folder of Harbor or terminal-bench: the tree that the Dockerfile's COPY lines make in its work folder, and
    the tests. Its RUN lines are not executed: what they install is named by `packages`."""
    environment = read_tree(folder / "environment")
    docker = environment.get("Dockerfile", b"").decode("utf-8", "replace")
    workdir, tree = "/app", dict[str, bytes]()
    for line in re.sub(r"\\\n", " ", docker).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "WORKDIR":
            workdir = rest.strip()
        elif word.upper() in ("COPY", "ADD") and "--from=" not in rest:
            *sources, target = [one for one in shlex.split(rest) if not one.startswith("--")] or [""]
            for source in sources:
                tree |= _copied(environment, source, target, workdir)
    tests = {f"tests/{path}": content for path, content in read_tree(folder / "tests").items()}
    return tree | tests, ("tests",)


def _copied(environment: Mapping[str, bytes], source: str, target: str, workdir: str) -> dict[str, bytes]:
    """What a COPY line puts below the work folder."""
    source, inside = source.strip("/").removeprefix("./").rstrip("."), target
    if target.startswith("/"):
        if not f"{target.rstrip('/')}/".startswith(f"{workdir.rstrip('/')}/"):
            return {}
        inside = target[len(workdir.rstrip("/")) :]
    inside = inside.strip("/").removeprefix("./").rstrip(".")
    if source in environment:
        is_folder = target.endswith(("/", ".")) or not inside
        name = "/".join(filter(None, (inside, source.rpartition("/")[2]))) if is_folder else inside
        return {name: environment[source]}
    prefix = f"{source.rstrip('/')}/" if source.strip("/") else ""
    listing = {path[len(prefix) :]: data for path, data in environment.items() if path.startswith(prefix)}
    return {"/".join(filter(None, (inside, path))): data for path, data in listing.items() if path != "Dockerfile"}
