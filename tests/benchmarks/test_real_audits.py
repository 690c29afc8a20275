"""What is published about audits of real logs: the small pieces by hand, the page, and one set where it is present."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.pages import DOCS, ROOT, render

from macros.tables import PENDING

DATA = ROOT.parent / "shared" / "data"


@cache
def script(where: str) -> ModuleType:
    path = ROOT / where
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        del sys.modules[path.stem]
    return module


def run(**changes: Any) -> dict[str, Any]:
    told = {"run": "a/0", "steps": 20, "evaluations": 20, "proxy": [0.2, 0.6], "truth": [0.5, 0.4], "truth_most": 0.5}
    told |= {"entropy": [2.0, 1.0], "leash": False, "state": "BLIND", "alarm": None, "warnings": [], "faults": 0}
    return {**told, "sentence": "no completions", "why": "", **changes}


def test_ends_of_a_series_are_means_where_it_is_long_and_values_where_it_is_not() -> None:
    edges = script("benchmarks/real_audits.py").edges
    assert edges([1.0] * 5 + [2.0] * 5) == [1.0, 2.0]
    assert edges([float(value) for value in range(10)]) == [2.0, 7.0]
    assert edges([0.4, 9.0, 1.0]) == [0.4, 1.0]
    assert edges([3.0]) == [3.0, 3.0]
    assert edges([]) is None


def test_the_reason_is_one_that_the_figures_bear_out() -> None:
    module = script("benchmarks/real_audits.py")
    alarm = {"name": "eval.x", "step": 30, "onset": 20, "summary": ""}
    assert module.why(run(alarm=alarm)) == "the truth fell: alarm at step 30"
    assert module.why(run()) == "no fall that the alarm can tell from chance"
    assert "nothing that could be lost" in module.why(run(truth_most=0.01))
    assert "nothing to compare" in module.why(run(evaluations=1))
    assert module.why(run(evaluations=6)) == "6 values, and no fall that the alarm can tell from chance"
    assert [module.rose(run(proxy=ends)) for ends in ([0.2, 0.6], [0.2, 0.25], None)] == [True, False, False]


def test_the_page_shows_each_run_and_names_do_nothing(tmp_path: Path) -> None:
    page = (DOCS / "real-audits.md").read_text()
    assert render(page, tmp_path).count(PENDING) == page.count("<!-- ")
    nasty = "<script>x</script> | [a](javascript:b) `c`"
    alarm = {"name": "eval.x", "step": 30, "onset": 20, "summary": ""}
    counts = dict.fromkeys(("alarms", "runs", "proxy_rose", "nothing_to_lose", "short", "leashed", "warnings"), 7)
    sets = [
        {
            "name": name,
            "command": f"tiltmeter audit {name}.csv",
            **counts,
            "table": [run(run=nasty, alarm=alarm), run()],
        }
        for name in ("entropy", "grpo", "grpo_careful")
    ]
    sets[1]["table"] = [run(entropy=None, state="ACT", alarm=alarm, why="the truth fell")]
    (tmp_path / "real_audits.json").write_text(json.dumps({"tolerance": 0.01, "alpha": 0.01, "sets": sets}))
    made = render(page, tmp_path)
    assert "<!--" not in made
    assert PENDING not in made
    assert "| a/0 | 20 | 0.2 → 0.6 | 0.5 → 0.4 | ACT | 20 | the truth fell |" in made
    assert "| a/0 | 20 | 0.2 → 0.6 | 0.5 → 0.4 | 2 → 1 | BLIND | – |" in made
    assert "tiltmeter audit grpo.csv\n```" in made
    assert "<script" not in made
    assert "](javascript" not in made


@pytest.mark.skipif(not (DATA / "grpo_reward_vs_eval").exists(), reason="the public logs are not beside the repository")
def test_the_run_that_pays_for_format_alone_is_the_one_that_alarms() -> None:
    module = script("benchmarks/real_audits.py")
    found = module.audited(module.known(DATA)[1], DATA)
    assert (found["runs"], found["exit_code"], found["faults"], found["leashed"]) == (6, 1, 0, 0)
    alarmed = [(told["run"], told["alarm"]["onset"]) for told in found["table"] if told["alarm"]]
    assert alarmed == [("failure_mode/format_only", 20)]
    assert module.least(DATA / "rl_logs_reward_hacking_entropy" / "run_configs.csv.gz") == 64
