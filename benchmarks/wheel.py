"""Whether the committed tree gives the same sdist and wheel wherever it is built, and how large an install is.

    python benchmarks/wheel.py [--install] [--json] [--write]

The last commit is cloned into two folders of different names and ages and built in each. `--install` also installs the
wheel into a clean environment, and counts time and bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import record, show

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, folder: Path | None = None, **extra: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=os.environ | extra, capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(place: Path) -> dict[str, str]:
    """By file name: the hash of what is built from a clone of the last commit."""
    run("git", "clone", "-q", ROOT, place)
    when = run("git", "log", "-1", "--format=%ct", folder=place).strip()
    run(
        *(sys.executable, "-m", "build", "-q", "--installer", "uv", "--outdir", place / "dist", place),
        SOURCE_DATE_EPOCH=when,
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((place / "dist").iterdir())}


def install(wheel: Path, place: Path) -> dict[str, float]:
    """Time and size of the bare package with what it needs."""
    run("uv", "venv", "-q", "--python", sys.executable, place)
    start = time.monotonic()
    run("uv", "pip", "install", "-q", "--python", place / "bin" / "python", wheel)
    seconds = time.monotonic() - start
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        "install_s": round(seconds, 1),
        "install_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "wheel_mb": round(wheel.stat().st_size / 1e6, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="also install it, and count time and bytes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/wheel.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, second = build(Path(folder) / "one"), build(Path(folder) / "another place")
        figures: dict[str, object] = {"wheel_reproducible": first == second, "files": first}
        if options.install:
            (wheel,) = (Path(folder) / "one" / "dist").glob("*.whl")
            figures |= install(wheel, Path(folder) / "clean")
    show(record("wheel", figures, seed=0, keep=options.write), as_json=options.json)
    return 0 if first == second else 1


if __name__ == "__main__":
    sys.exit(main())
