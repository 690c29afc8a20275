"""Which packages' tests this run of CI leaves out: a line for pytest, `--ignore=packages/NAME`, for each.

    python .ci/packages_to_leave_out.py

A package is tested where its files have changed, or a file that it imports, directly or through others, since the
commit at which all tests last ran (`whole_revision` in `benchmarks/results/ci.json`). All are tested every fifty
commits, where that commit is not in the history, and where versions, fixtures or CI itself have changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from rooms import PLACES, imports_of  # noqa: E402

MOST_COMMITS = 50
#: What every test depends on.
COMMON = (".ci/", "pyproject.toml", "conftest.py", "tests/shared_fixtures.py")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def changed_since(revision: str) -> list[str] | None:
    """Files that changed since, uncommitted ones too; None: all tests are due."""
    try:
        git("merge-base", "--is-ancestor", revision, "HEAD")
        if int(git("rev-list", "--count", f"{revision}..HEAD")) > MOST_COMMITS:
            return None
        return git("diff", "--name-only", revision).splitlines()
    except subprocess.CalledProcessError:
        return None


def names_behind(package: Path) -> set[str]:
    """Names that the package or its tests import, directly or through modules of ours."""
    sources = {
        module_of(str(file.relative_to(ROOT))): file for at in PLACES.values() for file in (ROOT / at).rglob("*.py")
    }
    todo = {name for file in package.rglob("*.py") for name in imports_of(file)}
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name and name not in seen:
            seen.add(name)
            todo.add(name.rpartition(".")[0])  # of `from module import name`; and a module runs its folder's __init__
            todo.update(imports_of(sources[name]) if name in sources else ())
    return seen


def module_of(file: str) -> str:
    """The module's name of a source file, the core's or a package's; of any other file, that of its folder.

    >>> module_of("src/tiltmeter/gold/judge.py"), module_of("packages/tiltmeter-lab/src/tiltmeter_lab/__init__.py")
    ('tiltmeter.gold.judge', 'tiltmeter_lab')
    >>> module_of("src/tiltmeter/diagnosis/rules.toml")
    'tiltmeter.diagnosis'
    """
    parts = Path(file).parts
    inside = parts[parts.index("src") + 1 :] if "src" in parts else parts
    name = inside[-1].removesuffix(".py")
    return ".".join(inside[:-1] if name == "__init__" or name == inside[-1] else (*inside[:-1], name))


def is_due(package: Path, changed: list[str]) -> bool:
    """Whether something that the package's tests depend on has changed."""
    if any(file.startswith((f"packages/{package.name}/", *COMMON)) for file in changed):
        return True
    return bool({module_of(file) for file in changed} & names_behind(package))


def main() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "ci.json").read_text())
    changed = changed_since(record.get("whole_revision", ""))
    for package in sorted((ROOT / "packages").iterdir()):
        if changed is not None and not is_due(package, changed):
            print(f"--ignore=packages/{package.name}")
            print(f"{package.name}: its tests are left out, nothing that they depend on has changed", file=sys.stderr)


if __name__ == "__main__":
    main()
