"""The files for clusters name gauges, verbs, options and extras that exist; the rules fire where promtool is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
import yaml

from tiltmeter.cli import app
from tiltmeter.cli.verb_table import all_verbs
from tiltmeter.verdict.states import State
from tiltmeter.view.trackers.prometheus import PrometheusSink
from tiltmeter.view.trackers.sink import MetricPoint, RunIdentity, RunStatus

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "cluster"
RULES: list[dict[str, Any]] = yaml.safe_load((FILES / "prometheus-rules.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((FILES / "grafana-dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def gauges() -> set[str]:
    """The names that a tracker shows."""
    pytest.importorskip("prometheus_client")
    sink = _sink()
    with urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/metrics") as page:
        names = set(re.findall(r"^(tiltmeter_\w+)", page.read().decode(), re.M))
    sink.close()
    return names


def _sink() -> PrometheusSink:
    """A tracker of a run with an open alarm."""
    sink = PrometheusSink("0", RunIdentity("0" * 16, "tonight"))
    sink.log_point(MetricPoint(0, 0, 1, 0.0, {"reward.mean": 0.5}))
    sink.set_status(RunStatus("ACT", "", 1, 1, 0, frozenset(), 0, 0, agreement=0.4, level=-0.3))
    return sink


def test_rules_and_dashboard_use_gauges_and_states_that_there_are(gauges: set[str]) -> None:
    expressions = [*(rule["expr"] for rule in RULES), *QUERIES]
    used = {name for text in expressions for name in re.findall(r"tiltmeter_\w+", text)}
    assert used and used <= gauges
    states = {name for text in expressions for name in re.findall(r'state="(\w+)"', text)}
    assert states <= set(get_args(State))
    assert set(re.findall(r'state="(\w+)"', QUERIES[0])) == set(get_args(State))


def test_every_state_but_ok_has_a_rule_and_silence_has_one() -> None:
    text = " ".join(rule["expr"] for rule in RULES)
    assert {"HOLLOW", "WATCH", "STALE", "BLIND"} <= set(re.findall(r'state="(\w+)"', text))
    assert "tiltmeter_alarms_open > 0" in text and 'up{job="tiltmeter"} == 0' in text
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in RULES)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's prometheus")
def test_the_rules_fire_when_they_should() -> None:
    for words in (["check", "rules", "prometheus-rules.yml"], ["test", "rules", "prometheus-rules-test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=FILES, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus")
def test_prometheus_scrapes_a_tracker_and_fires(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    sink = _sink()
    scrape = {"job_name": "tiltmeter", "static_configs": [{"targets": [f"127.0.0.1:{sink.port}"]}]}
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FILES / "prometheus-rules.yml")],
        "scrape_configs": [scrape],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    files = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command = ["prometheus", *files, f"--web.listen-address={place}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    firing: set[tuple[str, str]] = set()
    try:
        deadline = time.monotonic() + 60.0
        while not firing and time.monotonic() < deadline:
            time.sleep(0.5)
            try:
                with urllib.request.urlopen(f"http://{place}/api/v1/alerts") as page:
                    alerts = json.load(page)["data"]["alerts"]
            except OSError:
                continue  # not up yet
            firing = {(one["labels"]["alertname"], one["labels"]["run"]) for one in alerts if one["state"] == "firing"}
    finally:
        process.kill()
        process.wait()
        sink.close()
    assert firing == {("TiltmeterAlarm", "tonight")}


def test_panels_have_places_of_their_own() -> None:
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_verbs_options_and_extras_of_the_files_exist() -> None:
    job = yaml.safe_load((FILES / "kubernetes.yaml").read_text())["spec"]["template"]["spec"]
    (sidecar,) = job["initContainers"]
    lines = [sidecar["args"]]
    lines += [line.split() for line in re.findall(r"^tiltmeter (.+)$", (FILES / "slurm.sh").read_text(), re.M)]
    assert len(lines) == 3
    for words in lines:
        name = " ".join(words[:2]) if " ".join(words[:2]) in all_verbs().verbs else words[0]
        verb: Any = typer.main.get_command(app)
        for word in name.split():
            verb = verb.get_command(None, word)
        options = {option for parameter in verb.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(
        r"\[([a-z,]+)\]", (ROOT / "packaging" / "Containerfile").read_text() + (FILES / "kubernetes.yaml").read_text()
    )
    assert {one for group in named for one in group.split(",")} <= extras.keys()
    mounts = {mount["name"] for part in (sidecar, *job["containers"]) for mount in part["volumeMounts"]}
    assert mounts == {volume["name"] for volume in job["volumes"]}


def test_the_slurm_script_uploads_and_ends_with_the_trainers_code(tmp_path: Path) -> None:
    for name, text in {"srun": 'exec "$@"', "python": "exit 7", "tiltmeter": 'echo "$@" >> said'}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "42"}
    done = subprocess.run(
        ["bash", str(FILES / "slurm.sh")], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "said").read_text().splitlines() == [
        "upload s3://bucket/runs/42 --minutes 4",
        "show s3://bucket/runs/42 --plain",
    ]
