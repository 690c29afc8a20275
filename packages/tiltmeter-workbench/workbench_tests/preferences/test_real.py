"""The whole command on public preference data: what is known about each set is in its report."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter_workbench.common.table_files import read_rows, write_rows

DATA = Path(__file__).parents[5] / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def reported(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["data", "preferences", *map(str, arguments), "--json"], catch_exceptions=False)
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == found["exit_code"]
    return {"report": found, **{finding["name"]: finding for finding in found["findings"]}}


def test_pandalm_agrees_as_published_and_longer_answers_win() -> None:
    found = reported(DATA / "pandalm_multi_rater" / "testset.jsonl.gz")
    assert (found["report"]["items"], found["report"]["raters"]) == (999, 3)
    assert found["agreement"]["facts"]["fleiss_kappa"] == pytest.approx(0.864, abs=5e-4)
    assert found["raters"]["state"] == "clear"
    assert found["length"]["state"] == found["shallow"]["state"] == "found"
    assert found["length"]["low"] > 0.0
    assert found["position"]["state"] == "cannot tell"


def test_hh_has_one_label_each_and_no_love_of_length() -> None:
    found = reported(DATA / "hh_rlhf_harmless_filtered" / "pairs.jsonl.gz")
    assert (found["report"]["items"], found["report"]["raters"]) == (235, 1)
    assert found["length"]["state"] == "clear"
    assert found["agreement"]["state"] == found["raters"]["state"] == "cannot tell"


def test_llmbar_pairs_were_written_against_judges_that_like_long_answers() -> None:
    found = reported(DATA / "llmbar" / "pairs.jsonl.gz")
    assert found["report"]["items"] == 934
    assert found["length"]["state"] == "found" and found["length"]["high"] < 0.0


def test_judges_of_llmbar_follow_the_order_as_often_as_published(tmp_path: Path) -> None:
    """Order-consistent verdicts on the adversarial part: GPT-4 0.92, ChatGPT 0.64."""
    with gzip.open(DATA / "llmbar" / "judge_decisions.csv.gz", "rt", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    part = [
        row
        for row in table
        if row["subset"].startswith("LLMBar/Adversarial")
        and row["prompting"] == "Vanilla"
        and row["judge"] in ("GPT-4", "ChatGPT")
    ]
    write_rows(tmp_path / "judges.jsonl", part)
    found = reported(tmp_path / "judges.jsonl")
    judges = {row["rater"].split(" / ")[0]: row for row in found["position"]["rows"]}
    assert round(judges["GPT-4"]["same_in_both_orders"], 2) == 0.92
    assert round(judges["ChatGPT"]["same_in_both_orders"], 2) == 0.64
    assert found["position"]["state"] == "found" and judges["ChatGPT"]["state"] == "found"
    assert found["length"]["state"] == "cannot tell"  # the file has no texts


def tulu(path: Path) -> Path:
    """Votes with the answers they were about, which the set keeps in two files."""
    texts: dict[tuple[str, str], str] = {}
    prompts: dict[str, str] = {}
    for row in read_rows(DATA / "tulu_human_eval" / "instances.jsonl.gz"):
        prompts[row["id"]] = row["prompt"]
        texts |= {(row["id"], each["model"]): each["completion"] for each in row["completions"]}
    rows = []
    for vote in read_rows(DATA / "tulu_human_eval" / "annotations.csv.gz"):
        item = vote["instance_id"]
        first, second = (texts.get((item, vote[side])) for side in ("model_a", "model_b"))
        if first is not None and second is not None:
            pair = {"prompt": prompts[item], "response_a": first, "response_b": second}
            rows.append({**pair, "preference": vote["preference"], "rater": vote["evaluator"]})
    write_rows(path, rows)
    return path


def test_tulu_raters_agree_too_little_to_rely_on(tmp_path: Path) -> None:
    found = reported(tulu(tmp_path / "tulu.jsonl"))
    assert found["report"]["raters"] == 16 and found["report"]["items"] > 900
    assert 0.2 < found["agreement"]["estimate"] < 0.5
    assert found["agreement"]["high"] < 0.667
    assert "review" in found["agreement"]["fix"]


def test_labels_of_five_crowd_workers_agree_as_published() -> None:
    found = reported(DATA / "bbq_worker_labels" / "labels.csv.gz")
    assert [finding["name"] for finding in found["report"]["findings"]] == ["agreement", "raters", "groups"]
    assert found["agreement"]["facts"]["fleiss_kappa"] == pytest.approx(0.863, abs=5e-4)
    # Published for the 2154 items with five answers; one more has five once a worker's second answer is left out.
    assert found["agreement"]["facts"]["fleiss_items"] == 2155


def test_every_form_of_the_report_can_be_made_of_every_set(tmp_path: Path) -> None:
    for name in ("pandalm_multi_rater/testset.jsonl.gz", "hh_rlhf_harmless_filtered/pairs.jsonl.gz"):
        page, notes, kept, again = (tmp_path / file for file in ("a.html", "a.md", "kept.jsonl", "again.jsonl"))
        options = ["--html", page, "--md", notes, "--balanced", kept, "--review", again]
        result = CliRunner().invoke(
            app, ["data", "preferences", *map(str, (DATA / name, *options))], catch_exceptions=False
        )
        assert result.exit_code in (0, 1)
        assert page.stat().st_size < 200_000 and notes.stat().st_size < 60_000
        assert all({"prompt", "chosen", "rejected"} == set(row) for row in read_rows(kept))
