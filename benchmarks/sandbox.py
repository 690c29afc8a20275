"""Whether the sandbox holds, what it costs, and whether a long run of it leaks.

    python benchmarks/sandbox.py [--json] [--quick] [--write]

Every attack of `attacks.toml` is run in every tier, as root (which gives itself up) and as nobody: `attacks` are the
pairs, `blocked` those that were stopped. `strict_vs_bare` and `pooled_vs_bare` are ratios of medians to
`python -I -c 'print(1)'`, measured in turns in one run. `leak` compares the first and the last thousand of 10,000
programs in a pool. `forgeries_paid_values_out` are answers that cheat and that the values-out harness pays for, with
hidden inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks import ATTACKS
from record import record, show
from tiltmeter.sandbox import Limits, SandboxUnavailable, open_sandbox
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.interpreter import find_interpreter
from tiltmeter.sandbox.landlock import Landlock
from tiltmeter.sandbox.pool import Pool
from tiltmeter.sandbox.probed_sandbox import ProbedSandbox

COMBINATIONS = (("bwrap", "strict"), ("bwrap", "pooled"), ("landlock", "strict"))
PROGRAMS = (
    "print(sum(range(100)))",
    "open('/tmp/left', 'w').write('x' * 1000)\nprint(1)",
    "import os\nos.makedirs('/tmp/a/b')\nopen('/dev/shm/left', 'w').write('x')",
    "raise ValueError('x' * 1000)",
    "import threading\nt = threading.Thread(target=print, args=('thread',))\nt.start()",
    "x = bytearray(20 << 20)\nprint(len(x))",
    "print(input())",
)
QUICK = ("fork bomb", "file that everybody may read", "TCP", "writing to the status descriptor", "killing the parent")
LIMITS = Limits(wall_seconds=30.0)


def sieges(quick: bool) -> list[dict[str, Any]]:
    """By tier, isolation and account: how many attacks, how many stopped, and what the others got."""
    rows = []
    users = ["", "nobody"] if os.geteuid() == 0 else [""]
    script = Path(__file__).with_name("siege.py")
    for tier, isolation in COMBINATIONS:
        for user in users:
            command = [sys.executable, str(script), "--tier", tier, "--isolation", isolation]
            command += [*(["--user", user] if user else []), *(QUICK if quick else ())]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)["attacks"]
            got = {name: what for name, what in found.items() if what}
            row = {"tier": tier, "isolation": isolation, "account": user or ("root" if os.geteuid() == 0 else "user")}
            rows.append({**row, "attacks": len(found), "blocked": len(found) - len(got)})
            for name, what in got.items():
                print(f"{tier} {isolation} {user}: {name}: {what}", file=sys.stderr)
    return rows


def latency(rounds: int) -> dict[str, Any]:
    """Milliseconds of a program that prints one line, in turns, and programs a second with two threads."""
    program = find_interpreter().program
    pool = ProbedSandbox(Pool(LIMITS), "pooled")
    places = {
        "strict": ProbedSandbox(Bubblewrap(LIMITS), "strict"),
        "landlock": ProbedSandbox(Landlock(LIMITS), "strict"),
        "pooled": pool,
    }

    def bare() -> None:
        subprocess.run([program, "-I", "-c", "print(1)"], capture_output=True, check=True)

    runs: dict[str, Callable[[], Any]] = {"bare": bare}
    runs |= {name: lambda place=place: place.run("print(1)") for name, place in places.items()}  # type: ignore[misc]
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            taken[name].append(1000 * (time.perf_counter() - began))
    middle = {name: statistics.median(times) for name, times in taken.items()}
    rows = []
    for name, times in taken.items():
        row = {"how": name, "p50_ms": round(middle[name], 1), "p95_ms": round(sorted(times)[int(0.95 * len(times))], 1)}
        rows.append({**row, "vs_bare": round(middle[name] / middle["bare"], 2)})
    for row in rows[1:]:
        began = time.perf_counter()
        places[str(row["how"])].run_many([("print(1)", "")] * rounds)
        row["per_second_2_threads"] = round(rounds / (time.perf_counter() - began), 1)
    pool.close()
    ratios = {f"{name}_vs_bare": round(middle[name] / middle["bare"], 3) for name in places}
    return {**ratios, "latency": rows}


def leak(programs: int) -> dict[str, Any]:
    """What a pool, and this process, hold after the first tenth of many programs and after the last."""
    pool = Pool(LIMITS)
    place = ProbedSandbox(pool, "pooled")
    marks = []
    wrong = 0
    for number in range(programs):
        ended = place.run(PROGRAMS[number % len(PROGRAMS)], "7\n")
        wrong += ended.kind != "ended"
        if number + 1 in (programs // 10, programs):
            marks.append(_held(pool))
    outside = [path.name for path in Path("/tmp").iterdir() if path.name in ("left", "a")]
    inside = place.run("import os\nprint(os.listdir('/tmp') + os.listdir('/dev/shm'))").stdout.strip()
    served = pool.servers_started
    place.close()
    grown = {f"{name}_growth": round(marks[1][name] - marks[0][name], 2) for name in marks[0]}
    rest = {"children_left": len(_children(os.getpid())), "files_left": len(outside) + (inside != "[]")}
    return {"programs": programs, "not_ended": wrong, "servers_started": served, **grown, **rest}


def _held(pool: Pool) -> dict[str, float]:
    servers = [pid for server in pool._idle for pid in (server.process.pid, *_children(server.process.pid))]
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "processes": len(_children(os.getpid())),
        "our_mb": _resident(os.getpid()),
        "server_mb": sum(map(_resident, servers)),
    }


def _children(process: int) -> list[int]:
    """All descendants, as the kernel lists them."""
    found = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in (thread / "children").read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def _resident(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="nothing here is random; kept for the record")
    parser.add_argument("--quick", action="store_true", help="a small size: a few attacks and 100 programs")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        open_sandbox().close()
    except SandboxUnavailable as error:
        print(f"not measured: {error}", file=sys.stderr)
        print(json.dumps({"measured": False}) if asked.json else "not measured")
        return 0
    rows = sieges(asked.quick)
    figures: dict[str, Any] = {
        "attacks": sum(row["attacks"] for row in rows),
        "blocked": sum(row["blocked"] for row in rows),
        "kinds_of_attack": len(ATTACKS),
        **latency(10 if asked.quick else 100),
        **forgeries(),
        "leak": leak(100 if asked.quick else 10_000),
        "sieges": rows,
    }
    result = record("sandbox", figures, seed=asked.seed, keep=asked.write and not asked.quick)
    show(result, as_json=asked.json)
    return 0


def forgeries() -> dict[str, int]:
    """How many answers that cheat the values-out harness pays for: with hidden inputs, as it is meant to be used, and
    with inputs that the cheat knows."""
    from toy_harnesses import forgeries_paid_values_out

    with open_sandbox() as sandbox:
        paid = forgeries_paid_values_out(sandbox)
    hidden, known = len(paid["hidden_inputs"]), len(paid["known_inputs"])
    return {"forgeries_paid_values_out": hidden, "forgeries_paid_values_out_known_inputs": known}


if __name__ == "__main__":
    sys.exit(main())
