"""What the pages show of results is what the results say; and text that a model wrote does nothing there."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def hooks(name: str = "hooks") -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_come_from_the_results_and_their_absence_is_said(tmp_path: Path) -> None:
    page = (DOCS / "figures.md").read_text()
    empty = hooks().rendered(page, tmp_path)
    assert "not measured yet" in empty
    result = {"kills": 1000, "lost": 0, "command": "python benchmarks/crash.py", "seed": 7, "cpu": "a | b", "new": 1.5}
    (tmp_path / "crash.json").write_text(json.dumps(result))
    (tmp_path / "later.json").write_text(json.dumps({"figure": 2, "seed": 1}))
    (tmp_path / "torn.json").write_text('{"figure": ')
    full = hooks().rendered(page, tmp_path)
    assert "| `kills` | 1,000 |" in full
    assert "| `figure` | 2 |" in full
    assert "`python benchmarks/crash.py`" in full
    assert "a | b" not in full
    assert "could not be read" in full


def test_one_figure_in_a_sentence_and_the_warning_that_fails_a_strict_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page, module = "costs <!-- figure: overhead_trl cpu.ratio --> times as much", hooks()
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert module.on_page_markdown(page) == f"costs {module.PENDING} times as much"
    assert [record.name for record in caplog.records] == ["mkdocs.hooks"]
    (tmp_path / "overhead_trl.json").write_text(json.dumps({"cpu": {"ratio": 1.00412}, "pairs": [0.5] * 80}))
    assert module.on_page_markdown(page) == "costs 1.004 times as much"
    assert "0.5" not in module.table(tmp_path / "overhead_trl.json")


HOSTILE = "</pre><script>alert(1)</script>\n```\n# head | *bold* [link](javascript:x) <!-- tiny: figures --> \x1b[2J"


def test_what_a_real_model_wrote_is_shown_and_does_nothing(tmp_path: Path) -> None:
    told = {"first": 1.25, "last": 2.0}
    found = {
        "steps": 40,
        "rollouts": 640,
        "labels": 160,
        "alarm_step": 30,
        "state": "ACT",
        "sentence": HOSTILE,
        "command": "python benchmarks/real_model.py",
        "cpu": "a | b",
        "revision": "abc",
        "completions": [{"prompt": HOSTILE, "before": HOSTILE, "after": HOSTILE}],
        "readings": {"reward.mean": told},
        "findings": [{"step": 9, "failure": "length_hacking", "confidence": 0.5, "summary": HOSTILE}],
        "screen": ["ACT  x", "reward.mean       1 ->     2", HOSTILE],
    }
    (tmp_path / "real_model.json").write_text(json.dumps(found))
    page = hooks("hooks_runs").rendered((DOCS / "real-model.md").read_text(), tmp_path)
    assert "not measured" not in page
    assert "| `reward.mean` | 1.25 | 2 |" in page
    assert "reward.mean       1 ->" not in page
    assert "\x1b" not in page
    fenced = re.findall(r"^(`{3,})text\n(.*?)^\1$", page, re.M | re.S)
    assert sum("<script>" in text for _, text in fenced) == 4  # sentence, before, after, screen
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", page, flags=re.M | re.S)
    assert "<script" not in outside
    assert "](javascript" not in outside


def test_watched_runs_become_tables_by_scenario(tmp_path: Path) -> None:
    def run(scenario: str, mode: str, seed: int, **changes: Any) -> dict[str, Any]:
        told: dict[str, Any] = {
            "scenario": scenario,
            "kind": "hack",
            "expected": "length_hacking",
            "seed": seed,
            "mode": mode,
            "gold_start": 0.4,
            "gold_peak": 0.5,
            "gold_end": 0.1,
            "proxy_start": 0.5,
            "proxy_end": 1.0,
            "alarm": {"step": 140},
            "warnings": [],
            "findings": [[0, 150, "length_hacking", 0.8, []]],
            "last_findings": {"length_hacking": 0.8},
            "actions": [],
            "outcomes": [],
            "advice": {"word": "stop", "best": None},
            "kept": {"advised": 0.45, "last": 0.1, "best_proxy": 0.12, "best": 0.5},
        }
        return told | changes

    quiet = {"kind": "benign", "expected": "", "alarm": None, "warnings": ["policy.kl.k3"], "findings": []}
    acted = {"gold_end": 0.48, "actions": [[0, 150, "rollback", 150.0, 60.0, "applied", ""]]}
    runs = [
        *(run("length_hacking", "advise", seed) for seed in range(3)),
        run("length_hacking", "act", 0, **acted, outcomes=[["0-150-rollback", "better", ""]]),
        run("healthy", "advise", 0, **quiet, last_findings={}),
    ]
    (tmp_path / "tiny_watched.json").write_text(json.dumps({"share": 0.1, "runs": runs}))
    module = hooks("hooks_runs")
    parts = {name: module.rendered(f"<!-- watched: {name} -->", tmp_path) for name in module.WATCHED}
    row = "| `length_hacking` | hack | 3 | 0.4 → 0.5 → 0.1 | 0.5 → 1 | 3, step 140 | `length_hacking` in 3 |"
    assert row in parts["scenarios"]
    assert "| an alarm | 0 | 1 |\n| a warning of `policy.kl.k3` | 1 | 1 |" in parts["benign"]
    assert "| `length_hacking` | 3 | stop 3 | 0.45 | 0.1 | 0.12 | 0.5 |" in parts["advice"]
    assert "| `length_hacking` | 0 | rollback 150 → 60 | better | 0.5 | 0.48 | 0.1 |" in parts["act"]


def test_the_suite_of_the_small_language_model_becomes_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    suite = {
        "runs": 40,
        "detection": 0.95,
        "redraws": {"draws": 10},
        "not_ahead_of": {"null": []},
        "scenarios": {"healthy": {"runs": 5, "onset": -1, "alarm_step_median": None, "drops": [0.1]}},
    }
    module = hooks("hooks_runs")
    monkeypatch.setattr(module, "scored", lambda: suite)
    tables = "<!-- tiny: figures -->\n\n<!-- tiny: scenarios -->"
    page = f"{tables}\n\nfound <!-- tiny: =detection -->, <!-- tiny: =not_ahead_of.null -->"
    made = module.rendered(page, tmp_path)
    assert "| `detection` | 0.95 |" in made
    assert "| `redraws.draws` | 10 |" in made
    assert "| `healthy` | 5 | – | – |" in made
    assert made.endswith("found 0.95, none")


def test_guarded_and_unguarded_runs_become_tables(tmp_path: Path) -> None:
    arms = {
        f"{arm}_{what}{end}": 0.5
        for arm in ("unguarded", "guarded")
        for what in ("gold", "diversity", "kl")
        for end in ("", "_low", "_high")
    }
    gain = {"gold_gain": 0.25, "gold_gain_low": 0.125, "gold_gain_high": 0.375}
    row = {"scenario": "healthy", "kind": "benign", **arms, **gain, "unguarded_words": 7.0, "guarded_words": 5.0}
    start = {"scenario": "healthy", "gold": 0.75, "diversity": 0.3, "words": 6.0}
    (tmp_path / "defences.json").write_text(json.dumps({"start": [start], "scenarios": [row]}))
    page = hooks("hooks_guarded").rendered((DOCS / "guarded.md").read_text(), tmp_path)
    assert "| `healthy` | benign | 0.75 | 0.5 [0.5, 0.5] | 0.5 [0.5, 0.5] | 0.25 [0.125, 0.375] |" in page
    assert "| 7 | 5 |" in page


def test_every_mark_of_a_page_is_one_that_a_hook_knows() -> None:
    """A misspelt mark would be an invisible comment in the page."""
    known = re.compile(
        r"<!-- (figures: [a-z0-9_]+|figure: [a-z0-9_]+ [a-z0-9_.]+|lab: [a-z_]+ =?[a-z0-9_.]+|lab (families|baselines)"
        r"|instruments|derived|semantic|real model: (summary|completions|readings|findings|screen)"
        r"|verifiers: (forgeries|catalogue)|defences: =?[a-z_.]+|scale: (sizes|plan)"
        r"|try: (data|table)|lint (rules|versions)|guarded: (gold|rest|start)"
        r"|pipeline: (recipe|stages|watched|verdict|priced|not_asked|examples|origin)"
        r"|audits: (=?[a-z_.]+|[a-z_]+ command)"
        r"|watched: (scenarios|benign|advice|act)|tiny: (figures|scenarios|budgets|best_baselines|=[a-z0-9_.]+)) -->"
    )
    for page in DOCS.rglob("*.md"):
        for mark in re.findall(r"<!-- .*? -->", FENCE.sub("", page.read_text())):
            assert known.fullmatch(mark), f"{page.name}: {mark}"


def test_no_figure_is_typed() -> None:
    """Outside the markers the figures page has no number that could be a result."""
    text = (DOCS / "figures.md").read_text()
    assert not re.search(r"\d[\d,.]* ?(ms|s|MB|kB|rows|files|%)\b", text)
