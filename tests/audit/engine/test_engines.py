"""The same answer wherever steps are measured; and whoever dies on the way, nothing is lost or counted twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.audit.engine.runs import STEPS, columns, told, twice, write_run

from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.audit import audit
from tiltmeter.audit.engine.engine import Engine
from tiltmeter.audit.engine.open_engine import open_engine
from tiltmeter.audit.engine.processes import Processes
from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.maintenance import pack, purge
from tiltmeter.rundir.store import RunDirectory

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a real monitor watched while it was written."""
    return write_run(tmp_path_factory.mktemp("live") / "run", monitor=True)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("stored") / "run")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tiltmeter[ray]'")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # Ray warns of a change of its own, and warnings are errors
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    yield ray
    ray.shutdown()


def audited(run: Path, home: Path, engine: Engine | None, plugin: str | None = None) -> list[tuple[object, ...]]:
    config = Config.standard([plugin] if plugin else ())
    (found,) = audit(run, home, ReadOptions(), config, engine=engine, forced=engine is not None)
    assert not twice(found.run.path / "events")
    return told(found.run.path / "events")


def test_live_replay_one_process_and_many_say_the_same(watched: Path, tmp_path: Path) -> None:
    live = told(watched / "events")
    assert {"reading", "alarm", "finding", "step_done"} <= {row[0] for row in live}
    again = [
        (e.kind, e.attempt, e.step, e.id, dict(e.data)) for e in replay(RunDirectory(watched), Config.standard()).events
    ]
    assert again == live
    assert audited(watched, tmp_path / "one", None) == live
    assert audited(watched, tmp_path / "many", Processes(2)) == live


def test_a_run_nobody_watched_is_measured_as_a_monitor_would(watched: Path, unwatched: Path, tmp_path: Path) -> None:
    def measured(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        return [row for row in rows if row[0] in ("reading", "alarm", "finding")]

    found = audited(unwatched, tmp_path / "audit", Processes(2))
    assert measured(found) == measured(told(watched / "events"))
    assert not (unwatched / "events" / "0.jsonl").exists(), "an audit writes nothing into the run"


@pytest.mark.filterwarnings("ignore")
def test_ray_says_the_same_though_a_worker_dies(watched: Path, cluster: Any, deadly: Path, tmp_path: Path) -> None:
    assert audited(watched, tmp_path / "ray", open_engine("ray")) == told(watched / "events")
    alone = audited(watched, tmp_path / "alone", None, f"{deadly}:Deadly")
    assert audited(watched, tmp_path / "killed", open_engine("ray"), f"{deadly}:Deadly") == alone
    assert (deadly.parent / "spent").exists(), "no worker died: the test shows nothing"


@pytest.fixture
def deadly(tmp_path: Path) -> Path:
    """The deadly plug-in, armed."""
    (tmp_path / "plugin").mkdir()
    shutil.copy(HERE / "deadly.py", tmp_path / "plugin" / "deadly.py")
    (tmp_path / "plugin" / "driver").write_text(str(os.getpid()))
    return tmp_path / "plugin" / "deadly.py"


def test_a_worker_that_dies_is_replaced_and_its_work_done_again(unwatched: Path, deadly: Path, tmp_path: Path) -> None:
    alone = audited(unwatched, tmp_path / "alone", None, f"{deadly}:Deadly")
    many = audited(unwatched, tmp_path / "many", Processes(2), f"{deadly}:Deadly")
    assert (deadly.parent / "spent").exists(), "no worker died: the test shows nothing"
    assert many == alone


def test_a_worker_that_dies_while_nobody_waits_for_it_is_replaced(tmp_path: Path) -> None:
    results = []
    for result in Processes(1).map(dies_once, str(tmp_path / "died"), range(6)):
        results.append(result)
        time.sleep(0.3)  # what the driver does with a result takes its time
    assert results == [0, 1, 2, 3, 4, 5] and (tmp_path / "died").exists()


def dies_once(marker: str, item: int) -> int:
    if item == 2 and not Path(marker).exists():
        Path(marker).touch()
        os._exit(9)
    return item


def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.audit.engine.test_engines import sleeps\n"
        "from tiltmeter.audit.engine.processes import Processes\n"
        "next(Processes(2).map(sleeps, sys.argv[1], range(4)))"
    )
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=HERE.parents[2])
    _until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [int(file.name) for file in tmp_path.iterdir()]
    driver.kill()
    driver.wait()
    _until(lambda: not any(Path(f"/proc/{worker}/cmdline").exists() and _alive(worker) for worker in workers), 20.0)


def sleeps(folder: str, item: int) -> int:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)
    return item


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_work_that_always_ends_its_worker_is_named(unwatched: Path, deadly: Path, tmp_path: Path) -> None:
    (deadly.parent / "always").touch()
    with pytest.raises(StoreError, match=r"ended its worker 3 times.*memory"):
        audited(unwatched, tmp_path / "audit", Processes(2), f"{deadly}:Deadly")


def test_a_killed_driver_goes_on_where_it_stopped(unwatched: Path, tmp_path: Path) -> None:
    whole = audited(unwatched, tmp_path / "whole", None)
    home = tmp_path / "kept"
    command = [sys.executable, "-m", "tiltmeter", "audit", str(unwatched), "--engine", "processes", "--jobs", "2"]
    command += ["--keep", str(home), "--json"]
    journal = home / "run" / "events" / "0.jsonl"
    for lines in (3, 20):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
                os.killpg(child.pid, signal.SIGKILL)
            time.sleep(0.001)
        assert child.wait() == -signal.SIGKILL, "it was done before it could be killed"
    assert len(told(home / "run" / "events")) < len(whole)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=300)
    assert told(home / "run" / "events") == whole
    assert not twice(home / "run" / "events")


@pytest.mark.filterwarnings("ignore")
def test_the_monitor_as_an_actor_survives_being_killed(cluster: Any, unwatched: Path, tmp_path: Path) -> None:
    from tiltmeter.audit.engine.ray import watch_on_ray

    folder = tmp_path / "run"
    with open_run(folder, monitor=False, options=Options(on_full="wait", strict=True)) as run:
        actor = watch_on_ray(folder)
        first = cluster.get(actor.state.remote())["pid"]
        for step in range(STEPS):
            run.observe(**columns(step))
            if step % 20 == 19:
                run.evaluate(step, 0.5 - 0.002 * step, 200, "held_out")
            if step == 30:
                _until(lambda: (folder / "events" / "0.jsonl").exists())
                os.kill(first, signal.SIGKILL)
    again = watch_on_ray(folder)
    assert run.verdict(timeout=120).state == "ACT"
    second = cluster.get(again.state.remote())
    assert second["pid"] != first and not second["error"]
    cluster.kill(again)
    found, whole = told(folder / "events"), audited(unwatched, tmp_path / "whole", None)
    kinds = ("reading", "alarm")
    assert [row[4] for row in found if row[0] in kinds] == [row[4] for row in whole if row[0] in kinds]
    assert not twice(folder / "events")


def test_what_an_audit_borrows_is_not_its_own_to_delete(unwatched: Path, tmp_path: Path) -> None:
    audited(unwatched, tmp_path, None)
    before = sorted(file.name for file in (unwatched / "rollouts" / "0").iterdir())
    for verb in (purge, pack):
        with pytest.raises(StoreError, match="belong to that run"):
            verb(RunDirectory(tmp_path / "run"))
    assert sorted(file.name for file in (unwatched / "rollouts" / "0").iterdir()) == before


def test_no_cluster_is_said_with_the_fix() -> None:
    with pytest.raises(AttachError, match="processes or ray"):
        open_engine("dask")
    pytest.importorskip("ray", reason="Ray is not installed")
    # Another cluster may be at work on this machine, and Ray would find it: its own refusal is played.
    code = (
        "import ray\n"
        "def refuse(**_): raise ConnectionError('Could not find any running Ray instance')\n"
        "ray.init = refuse\n"
        "from tiltmeter.audit.engine.open_engine import open_engine\n"
        "open_engine('ray')"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "no Ray cluster at" in asked.stderr and "ray start --head" in asked.stderr


def _until(true: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
