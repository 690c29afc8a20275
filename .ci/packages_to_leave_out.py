"""Which packages' tests this run of CI leaves out: a line for pytest, `--ignore=packages/NAME`, for each.

    python .ci/packages_to_leave_out.py

A package is tested where its files have changed, or a module of the core or of another package that it imports, since
the commit at which all tests last ran (`whole_revision` in `benchmarks/results/ci.json`); and all are, every fifty
commits, where that commit is not in the history, and where versions, fixtures or this file have changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_COMMITS = 50
#: What every test depends on.
COMMON = (".ci/", "pyproject.toml", "conftest.py", "tests/shared_fixtures.py", "packages/{}/pyproject.toml")
IMPORTED = re.compile(r"^\s*(?:from|import) (tiltmeter\w*(?:\.\w+)*)(?: import \(?([\w, ]+))?", re.M)


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


def imported_modules(package: Path) -> set[str]:
    """Names of our modules that the package and its tests import: `tiltmeter.gold`, `tiltmeter.gold.judge`."""
    found: set[str] = set()
    for file in package.rglob("*.py"):
        for module, names in IMPORTED.findall(file.read_text()):
            found |= {module, *(f"{module}.{name.strip()}" for name in names.split(","))}
    return found


def module_of(file: str) -> str:
    """The module's name of a source file, the core's or a package's.

    >>> module_of("src/tiltmeter/gold/judge.py"), module_of("packages/tiltmeter-lab/src/tiltmeter_lab/__init__.py")
    ('tiltmeter.gold.judge', 'tiltmeter_lab')
    """
    inner = re.sub(r"^(packages/[^/]+/)?src/", "", file)
    return inner.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_due(package: Path, changed: list[str]) -> bool:
    """Whether something that the package's tests depend on has changed."""
    own = f"packages/{package.name}/"
    common = tuple(name.format(package.name) for name in COMMON)
    if any(file.startswith((own, *common)) for file in changed):
        return True
    return bool({module_of(file) for file in changed if file.endswith(".py")} & imported_modules(package))


def main() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "ci.json").read_text())
    changed = changed_since(record.get("whole_revision", ""))
    for package in sorted((ROOT / "packages").iterdir()):
        if changed is not None and not is_due(package, changed):
            print(f"--ignore=packages/{package.name}")
            print(f"{package.name}: its tests are left out, nothing that they depend on has changed", file=sys.stderr)


if __name__ == "__main__":
    main()
