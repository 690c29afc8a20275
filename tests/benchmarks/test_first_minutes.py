"""Every mistake of `docs/first-mistakes.md` is run and answered with cause and fix, in the words of the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.shared_fixtures import BENCHMARKS, Bench

sys.path.insert(0, str(BENCHMARKS))

from first_mistakes import GOLD, REWARDS

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")

RECORDED = json.loads((BENCHMARKS / "results" / "first_minutes.json").read_text())


def test_every_mistake_is_answered_with_its_cause_and_the_fix(bench: Bench) -> None:
    figures = bench("first_minutes", "--part", "mistakes")
    answers = {(one["about"], one["what"]): one for one in figures["mistakes"]}
    assert len(answers) == len(GOLD) + len(REWARDS) and len(GOLD) >= 12 and len(REWARDS) >= 12
    assert [one for one in answers.values() if not one["named"]] == []
    assert figures["gold_mistakes_named"] == len(GOLD) and figures["reward_mistakes_named"] == len(REWARDS)
    for one in RECORDED["mistakes"]:
        said = answers[one["about"], one["what"]]
        assert (said["said"], said["where"]) == (one["said"], one["where"]), (
            "run first_minutes.py --part mistakes --write"
        )


def test_a_mistake_that_is_not_answered_is_counted(tmp_path: Path) -> None:
    """What is looked for is not found everywhere: the cause and the fix of one are not those of another."""
    for one, other in zip(GOLD, (*GOLD[1:], GOLD[0]), strict=True):
        said = next(
            case["said"] for case in RECORDED["mistakes"] if case["what"] == one.what and case["about"] == "gold"
        )
        assert not (other.cause in said and other.fix in said)
