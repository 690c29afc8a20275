"""Which paths of a workspace count: glob patterns as in a `.gitignore`, and files that no task lets its agent bring."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

LONGEST_PATH = 400
DEEPEST = 24  # folders
#: Whatever a task allows: files that change how tests are found, run or reported, or that Python runs by itself.
NEVER = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
    *("pyproject.toml", "sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc"),
    *("**/*.egg-info/**", "**/*.dist-info/**"),
)  # fmt: skip
#: What tools leave behind, which is neither looked at nor kept.
CACHES = frozenset(
    {
        *(".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox"),
        *(".nox", ".venv", "venv", "node_modules", ".ipynb_checkpoints", ".idea", ".vscode", ".cache", ".eggs"),
    }
)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path fits one of the patterns. One without a slash fits a name in any folder; `**` crosses folders.

    >>> matches("a/conftest.py", ["conftest.py"]), matches("src/a/b.py", ["src/**"]), matches("a/src/b.py", ["src/**"])
    (True, True, False)
    >>> matches("tests/x/y.py", ["tests/"]), matches("pytests/x.py", ["tests/"]), matches("src/a/b.py", ["src/*.py"])
    (True, False, False)
    """
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


def counts(path: str, allow: Sequence[str], protected: Sequence[str]) -> bool:
    """Whether the agent's version of this path is graded.

    >>> [counts(path, ["**"], ["tests/**"]) for path in ("src/a.py", "tests/a.py", "src/conftest.py")]
    [True, False, False]
    """
    return matches(path, allow) and not matches(path, protected) and not matches(path, NEVER)


def fixed_folder(pattern: str) -> str:
    """The folder that all paths of a pattern are in, "" if that is not known.

    >>> fixed_folder("src/app/**"), fixed_folder("*.py"), fixed_folder("src/a.py"), fixed_folder("lib/")
    ('src/app', '', 'src', 'lib')
    """
    if pattern.endswith("/"):
        pattern += "**"
    names = pattern.lstrip("/").split("/")[:-1]
    plain = next((at for at, name in enumerate(names) if re.search(r"[*?\[]", name)), len(names))
    return "/".join(names[:plain])


def is_workspace_path(path: str) -> bool:
    """Whether this can be the path of a file in a workspace: plain names, not too long, not too deep.

    >>> [is_workspace_path(path) for path in ("src/a.py", "../a", "/etc/x", "a\\nb", "a//b", "src/./b", "a\\udc80")]
    [True, False, False, False, False, False, False]
    """
    names = path.split("/")
    fits = 0 < len(path) <= LONGEST_PATH and len(names) <= DEEPEST
    return fits and path.isprintable() and all(name not in ("", ".", "..") for name in names)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.removeprefix("./")
    anchored = "/" in pattern.rstrip("/")
    if pattern.endswith("/"):
        pattern, anchored = f"{pattern}**", True
    parts = []
    for token in re.findall(r"\*\*/?|\*|\?|[^*?]+", pattern.lstrip("/")):
        wild = {"**/": r"(?:[^/]+/){0,24}", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
        parts.append(wild.get(token, re.escape(token)))
    return re.compile(("" if anchored else r"(?:.*/)?") + "".join(parts), re.DOTALL)
