"""Whether a run says the same on other processors, and is kept on other file systems.

    python benchmarks/portable.py [--json] [--write] [--cycles 100] [--runs NAME ...] [--skip-replays] [--skip-crashes]

Replays: the two runs of the demo and ten more that the product records here (`portable_runs.py`) are replayed in
processes of their own with all of this processor's features, without AVX-512, and without AVX-512, AVX2 and FMA, in
numpy, OpenBLAS, numba and pyarrow. A replay is different if an event differs (see `Event.same_content`) or if the
verdict does. Instructions are switched off; it is the same machine.

File systems: the campaign of `crash.py`, which kills a writer again and again, where the process is told what other
file systems answer (`file_systems.py`). `lost` counts acknowledged steps and events that are not there, or torn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from file_systems import FILE_SYSTEMS
from record import record, show

HERE = Path(__file__).parent
AVX512 = "X86_V4 AVX512_SKX AVX512_ICL AVX512_SPR"
#: By name, what processes are told to do without: numpy, OpenBLAS, numba (LLVM) and Arrow each ask the processor.
FEATURES: dict[str, dict[str, str]] = {
    "all": {},
    "no AVX-512": {
        "NPY_DISABLE_CPU_FEATURES": AVX512,
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",
        "ARROW_USER_SIMD_LEVEL": "AVX2",
    },
    "no AVX2": {
        "NPY_DISABLE_CPU_FEATURES": f"{AVX512} X86_V3 AVX2 FMA3",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NUMBA_CPU_NAME": "nehalem",
        "NUMBA_CPU_FEATURES": "",
        "ARROW_USER_SIMD_LEVEL": "SSE4_2",
    },
}


def run_child(words: list[str], environment: dict[str, str]) -> str:
    # numpy warns of features that it does not know on this processor; a replay must not fail because of that.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def try_replays(folder: Path, names: list[str]) -> tuple[int, dict[str, str]]:
    """How many replays were made, and which were different."""
    run_child(["portable_runs.py", "record", str(folder), *names], {})
    recorded: dict[str, str] = {}
    different: dict[str, str] = {}
    count = 0
    for features, environment in FEATURES.items():
        # Compiled kernels are cached by processor name and features, each set in its own folder all the same.
        cache = {"NUMBA_CACHE_DIR": str(folder / "kernels" / features.replace(" ", "-"))}
        answers = json.loads(run_child(["portable_runs.py", "replay", str(folder)], {**environment, **cache}))
        for name, answer in answers.items():
            count += 1
            first = recorded.setdefault(name, answer["verdict"])
            if answer["difference"] or answer["verdict"] != first:
                different[f"{features}: {name}"] = answer["difference"] or f"{first} became {answer['verdict']}"
            print(f"{features}: {name}: {answer['difference'] or answer['verdict']}", file=sys.stderr, flush=True)
    return count, different


def try_file_systems(cycles: int) -> dict[str, Any]:
    """By file system, what the campaign found."""
    found: dict[str, Any] = {}
    for name in FILE_SYSTEMS:
        text = run_child(["crash.py", "--cycles", str(cycles), "--file-system", name, "--json"], {})
        figures = json.loads(text)
        kept = ("acknowledged", "lost", "torn_reads", "events_acknowledged", "events_lost", "events_changed")
        found[name] = {key: figures[key] for key in kept}
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record it in benchmarks/results/portable.json")
    parser.add_argument("--cycles", type=int, default=100, help="kills on each file system")
    parser.add_argument("--runs", nargs="*", default=[], metavar="NAME", help="only these recorded runs")
    parser.add_argument("--skip-replays", action="store_true")
    parser.add_argument("--skip-crashes", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if not options.skip_replays:
        with tempfile.TemporaryDirectory(prefix="tiltmeter-portable-") as folder:
            count, different = try_replays(Path(folder), options.runs)
        figures |= {"feature_sets": len(FEATURES), "replays": count, "replays_different": len(different)}
        figures["different"] = different
    if not options.skip_crashes:
        found = try_file_systems(options.cycles)
        bad = ("lost", "torn_reads", "events_lost", "events_changed")
        figures |= {"file_systems": len(found), "cycles": options.cycles * len(found)}
        figures["lost"] = sum(one[key] for one in found.values() for key in bad)
        figures["by_file_system"] = found
    show(record("portable", figures, seed=0, keep=options.write), as_json=options.json)
    return int(bool(figures.get("replays_different", 0) or figures.get("lost", 0)))


if __name__ == "__main__":
    sys.exit(main())
