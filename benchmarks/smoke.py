"""Every benchmark at its smallest size: does it run, and does it still end in figures? `smoke.toml` lists them.

    python benchmarks/smoke.py [NAME ...] [--campaign] [--json]

Libraries are imported once; each benchmark then runs in a fork of this process, with a copy of the results, so that
nothing recorded changes. A benchmark fails if it raises, ends with another exit code than 0, or records no figures. One
that says "not measured" for want of the public data sets fails only where these are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from rooms import rooms_of

HERE = Path(__file__).resolve().parent
LIMIT_SECONDS = 300
#: Public data sets, which are no part of the repository.
PUBLIC_SETS = HERE.parents[1] / "shared" / "data"
#: What most of them import; what is not installed is left to the benchmarks that need it.
WARM = ("numpy", "scipy.stats", "tiltmeter.cli.app", "tiltmeter_lab.simulate")
WARM_FOR_TRL = ("trl", "peft")
WARM_FOR_MONITOR = "src/tiltmeter/monitor"


@dataclass(frozen=True, slots=True)
class Done:
    """How one benchmark ended."""

    name: str
    error: str  # empty: it ran, and recorded figures, or what it reads is not here
    is_measured: bool
    cpu_seconds: float  # its children included


def plan() -> dict[str, dict[str, str]]:
    """The tables of `smoke.toml`: `run` and `campaign` have options by name, `tested` the test that runs it."""
    return tomllib.loads((HERE / "smoke.toml").read_text())


def recording_scripts() -> set[str]:
    """Benchmarks that record figures, by name."""
    scripts = ((path.stem, path.read_text()) for path in HERE.glob("*.py"))
    calls = re.compile(r"\brecord\((\s*\"|name)|\brun_parts\(\"")
    recording = {
        name for name, text in scripts if re.search(r"from record(_parts)? import", text) and calls.search(text)
    }
    return recording - {"record_parts"}


def run(names: Sequence[str]) -> Iterator[Done]:
    """Each in a fork, one after the other."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-smoke-") as folder:
        work = Path(folder)
        results = Path(shutil.copytree(HERE / "results", work / "results"))
        os.environ |= {"TILTMETER_BENCHMARK_RESULTS": str(results), "XDG_STATE_HOME": str(work / "state")}
        os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TILTMETER_QUIET": "1"}
        sys.path.insert(0, str(HERE))
        _warm_up(names)
        tables = plan()
        options = tables["run"] | tables["campaign"]
        if any("MODEL" in options[name] for name in names):
            _small_model(work / "model")
        if any("WORK" in options[name] for name in names):
            _untaught_policy(work / "policy")
        places = {"WORK": work / "{}" / "work", "MODEL": work / "model"}
        for name in names:
            yield _run_one(name, _options(options[name], name, places), work)


def _warm_up(names: Sequence[str]) -> None:
    """Import once what these benchmarks need, and compile the kernels of the instruments if a monitor runs."""
    scripts = [HERE / f"{name}.py" for name in names]
    trains = any("trl_model" in script.read_text() or "from trl" in script.read_text() for script in scripts)
    for library in (*WARM, *(WARM_FOR_TRL if trains else ())):
        with contextlib.suppress(ImportError):
            import_module(library)
    if any(WARM_FOR_MONITOR in rooms_of(script) for script in scripts):
        from tiltmeter.monitor.panel import InstrumentPanel
        from tiltmeter.monitor.parts import Config

        InstrumentPanel(Config.standard()).warm_up()


def _options(text: str, name: str, places: Mapping[str, Path]) -> list[str]:
    words = shlex.split(text)
    return [str(places[word]).format(name) if word in places else word for word in words]


def _small_model(folder: Path) -> None:
    """A random model that can be chatted with, in place of a real one of 135 million parameters."""
    from trl_model import SMALL, make_model

    make_model(folder, SMALL)
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    (folder / "chat_template.jinja").write_text(template)


def _untaught_policy(folder: Path) -> None:
    """The base policy of the tiny language model after a few of its lessons: to teach it takes a minute."""
    from tiltmeter_lab.tiny import model

    lessons, steps = model.LESSONS, model.STEPS
    model.LESSONS, model.STEPS = 6, 4
    model.base_policy(folder)
    model.LESSONS, model.STEPS = lessons, steps


def _run_one(name: str, options: list[str], work: Path) -> Done:
    (work / name).mkdir()
    if any(option.endswith(f"/{name}/work") for option in options):
        shutil.copytree(work / "policy", work / name / "work")
    log = work / f"{name}.log"
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.setsid()  # with all that it starts, it can be ended
        signal.alarm(LIMIT_SECONDS)
        _as_script(name, options, work, log)
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    told = log.read_text(errors="replace")
    is_absent = told.startswith("not measured: ") and not PUBLIC_SETS.is_dir()
    error = "" if code == 0 or is_absent else f"exit {code}: {told[-2000:]}"
    return Done(name, error, code == 0, round(usage.ru_utime + usage.ru_stime, 2))


def _as_script(name: str, options: list[str], work: Path, log: Path) -> None:
    """Run it as `python NAME.py OPTIONS` would, its output into a file; never returns."""
    code = 0
    with log.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        try:
            os.chdir(work)
            sys.argv = [str(HERE / f"{name}.py"), *options]
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
            if isinstance(ended.code, str):
                print(ended.code)
        except BaseException:  # noqa: BLE001  # told by the exit code and the log
            traceback.print_exc()
            code = 1
        if not code and not sys.modules["record"].RECORDED:
            print("no figures were recorded")
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="without any: all that CI runs")
    parser.add_argument("--campaign", action="store_true", help="also those that are too dear for CI")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables = plan()
    done = []
    for one in run(options.names or [*tables["run"], *(tables["campaign"] if options.campaign else ())]):
        done.append(one)
        if not options.json:
            end = one.error or ("ran" if one.is_measured else "needs the public data sets")
            print(f"{one.cpu_seconds:7.2f} s  {one.name:24} {end}", flush=True)
    if options.json:
        print(json.dumps([asdict(one) for one in done]))
    else:
        print(f"{sum(one.cpu_seconds for one in done):7.2f} s  in all, {sum(bool(one.error) for one in done)} failed")
    return 1 if any(one.error for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
