"""Which recorded figures may no longer be true: their revision is not in the history, or their rooms changed since.

    python benchmarks/stale.py [--json]

A result names the revision that it was measured at, and the rooms (folders) whose code its figures depend on. `make
stale` prints one line for each result that is not of today: how old it is, and which of its rooms have changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from record import RESULTS
from rooms import ROOT, rooms_of


@dataclass(frozen=True, slots=True)
class Age:
    """How old one result is; `commits` and `days` are None where the revision is not an ancestor of the commit."""

    name: str
    revision: str
    commits: int | None
    days: int | None
    changed: tuple[str, ...]  # rooms

    @property
    def is_stale(self) -> bool:
        return self.commits is None or bool(self.changed)

    @property
    def text(self) -> str:
        if self.commits is None:
            return f"{self.revision or 'no revision'}, not in the history"
        changed = ", ".join(room.removeprefix("src/tiltmeter/") for room in self.changed) or "nothing"
        return f"{self.revision}, {self.commits} commits, {self.days} days; changed since: {changed}"


def age_of(path: Path) -> Age:
    """The age of one result file."""
    result = json.loads(path.read_text())
    result = result if isinstance(result, dict) else {}
    revision = str(result.get("revision", "")).removesuffix("-dirty")
    if not revision or _git("merge-base", "--is-ancestor", revision, "HEAD") is None:
        return Age(path.stem, revision, None, None, ())
    rooms = result.get("rooms") or rooms_of(_script(result))
    commits = int(_git("rev-list", "--count", f"{revision}..HEAD") or 0)
    then = int(_git("log", "-1", "--format=%ct", revision) or 0)
    days = int((time.time() - then) // 86_400)
    changed = tuple(room for room in rooms if _changed(revision, room))
    return Age(path.stem, revision, commits, days, changed)


def ages(folder: Path = RESULTS) -> list[Age]:
    """Of all result files, the oldest first, those that are not in the history before them."""
    found = [age_of(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda age: -(10**9 if age.commits is None else age.commits))


def _script(result: dict[str, object]) -> Path:
    """The benchmark that made a result."""
    words = str(result.get("command", "")).split()
    return next((ROOT / word for word in words if word.endswith(".py")), ROOT / "benchmarks" / "none")


@cache
def _changed(revision: str, room: str) -> bool:
    """Whether code of a room differs between a revision and the commit that is checked out."""
    names = _git("diff", "--name-only", revision, "HEAD", "--", room)
    return names is None or any(name.endswith((".py", ".toml")) for name in names.splitlines())


@cache
def _git(*words: str) -> str | None:
    """What git prints; None if it fails."""
    done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT)
    return None if done.returncode else done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = ages()
    if options.json:
        print(json.dumps([asdict(age) | {"stale": age.is_stale} for age in found]))
        return 0
    for age in found:
        if age.is_stale:
            print(f"{age.name:24} {age.text}")
    stale = sum(age.is_stale for age in found)
    gone = sum(age.commits is None for age in found)
    print(f"{stale} of {len(found)} results are stale, {gone} of them measured at no revision of the history")
    return 0


if __name__ == "__main__":
    sys.exit(main())
