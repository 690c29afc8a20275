"""The proving ground from the command line: a slice, a score, a report, and worlds of one's own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from tests.pages import DOCS, render, render_page
from typer.testing import CliRunner

from macros.detectors import in_its_unit
from tiltmeter.cli import app, main
from tiltmeter_lab import campaign_records

ROOT = Path(__file__).parents[3]
NAMED = {
    *("false_alarm_upper95", "benign_runs", "detection_min_smooth", "detection_min_cliff", "detection_by_family"),
    *("regret_median", "regret_p90", "labels_to_alarm_median", "labels_to_alarm_p90", "forecast_error_median"),
    *("labels_share", "baselines"),
}


def lab(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "tiltmeter", "lab", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Two families, one run each, as the slice that anybody may ask for."""
    folder = tmp_path_factory.mktemp("lab")
    options = ("--split", "dev", "--families", "length,accurate", "--runs", 1, "--seed", 5, "--jobs", 1)
    done = lab("run", *options, "--out", "c", "--record", "c.jsonl.gz", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return folder, figures


def test_a_slice_prints_every_figure_that_is_published(kept: tuple[Path, dict[str, Any]]) -> None:
    _, figures = kept
    assert set(figures) >= NAMED
    assert figures["runs"] == 2
    assert {"ma_trend", "slope_z", "kl_cusum", "oracle"} <= set(figures["baselines"])
    for settings in figures["baselines"].values():
        assert set(settings) == {"published", "0.01", "0.05", "null"}
    assert figures["facts"]["commands"] == [
        "tiltmeter lab run --split dev --families length,accurate --runs 1 --seed 5"
    ]


def test_the_folder_and_the_record_score_as_the_slice_did(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, figures = kept
    for place in ("c", "c.jsonl.gz"):
        done = lab("score", place, "--json", folder=folder)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        # A record has the thresholds of its own runs; a slice of a split that is recorded has those of the record.
        assert all(told[name] == figures[name] for name in NAMED - {"baselines"})
        assert told["thresholds"] != figures["thresholds"] or told == figures
    shown = lab("score", "c.jsonl.gz", folder=folder).stdout
    assert "Methods on the same runs" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_a_report_has_tables_and_plots_that_a_browser_can_read(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = kept
    done = lab("report", "c.jsonl.gz", "--out", "report", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "| method |" in (folder / "report" / "report.md").read_text()
    assert {path.name for path in (folder / "report").iterdir()} >= {"report.md", "runs.svg"}
    for path in (folder / "report").glob("*.svg"):
        assert ElementTree.fromstring(path.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
        assert set(re.findall(r"https?://[^']+", path.read_text())) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("run", "--split", "none"), "choose one of"),
        (("run", "--split", "dev", "--families", "lenght"), "which has length"),
        (("run", "--worlds", "nowhere.py:X"), "path/to/file.py:NAME"),
        (("run", "--split", "dev", "--worlds", "x.py:X"), "not both"),
        (("score",), "name one campaign"),
        (("score", "--split", "none"), "there are:"),
        (("score", "nowhere"), "neither"),
    ],
)
def test_wrong_usage_says_the_fix_and_exits_2(
    words: tuple[str, ...], fix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiltmeter", "lab", *words])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr()
    assert (left.value.code, told.out) == (2, "")
    assert fix in told.err


def test_the_held_out_score_has_networks_beside_tables_and_what_a_rollback_loses() -> None:
    figures = json.loads(CliRunner().invoke(app, ["lab", "score", "--split", "heldout", "--json"]).output)
    assert figures["rollback_gap_median"] <= 0.03 and figures["rollback_gap_p90"] <= 0.06
    assert figures["rollback_labels"] <= 200 <= 2 * figures["rollback_runs"]
    assert figures["floor_median"] < figures["regret_median"] and figures["flat_false_alarms"] <= 2
    networks = set(figures["network"]["families"])
    assert networks and not networks & set(figures["families"])


@pytest.mark.parametrize("verb", ["run", "score", "report"])
def test_help_has_an_example_of_each_verb(verb: str) -> None:
    assert f"Example: tiltmeter lab {verb}" in CliRunner().invoke(app, ["lab", verb, "--help"]).output


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_about_detectors_runs_from_top_to_bottom(tmp_path: Path) -> None:
    pages = load(ROOT / "tests" / "docs" / "test_docs.py")
    pages.execute(pages.script(ROOT / "docs" / "detectors.md"), tmp_path)


def test_the_page_about_detectors_is_rendered_without_a_mark_left() -> None:
    page = render_page("detectors.md")
    assert "<!--" not in page
    assert "| `length` | dev | hack |" in page
    assert "| `forgetting` | network | hack |" in page
    assert "| `ma_trend` | level | yes |" in page


def test_a_record_fills_the_page(kept: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, figures = kept
    (folder / "heldout.jsonl.gz").write_bytes((folder / "c.jsonl.gz").read_bytes())
    monkeypatch.setattr(campaign_records, "RECORDED", folder)
    page = render((DOCS / "detectors.md").read_text())
    assert f"median {figures['regret_median']:.3f}" in page
    assert f"{figures['false_alarms']} of {figures['benign_runs']:,} benign runs alarmed" in page
    assert "| method | false alarms |" in page
    assert "2 runs by `tiltmeter lab run --split dev --families length,accurate --runs 1 --seed 5`" in page


def test_results_are_tables_whatever_their_shape(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps([{"variant": "a", "dev": {"regret": 0.25}}, {"note": "x|y"}]))
    assert render('<!-- results("log") -->', tmp_path).splitlines() == [
        "| variant | dev.regret | note |",
        "|---|---|---|",
        "| a | 0.25 |  |",
        "|  |  | x\\|y |",
    ]
    (tmp_path / "nested.json").write_text(json.dumps({"runs": 2, "rows": [{"file": "f"}], "seed": 1}))
    nested = render('<!-- results("nested") -->', tmp_path)
    assert "| `runs` | 2 |" in nested
    assert "| file |\n|---|\n| f |" in nested


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("false_alarm_upper95", 0.0072, "0.72 %"),
        ("detection_min_smooth", 0.95, "95 %"),
        ("cliff.regret_median", 0.1234, "0.123"),
        ("labels_to_alarm_median", 1234.0, "1,234"),
        ("forecast.smooth.coverage80", None, "–"),
    ],
)
def test_a_figure_in_a_sentence_has_the_unit_that_its_name_implies(name: str, value: float | None, shown: str) -> None:
    nested: Any = value
    for part in reversed(name.split(".")):
        nested = {part: nested}
    assert in_its_unit(nested, name) == shown
