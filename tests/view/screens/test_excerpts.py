"""An excerpt shows what a completion repeats, or what is new in it, and not merely how it begins."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.excerpts import excerpt, fold_repeats, new_passages, passages_of
from tiltmeter.view.screens.exemplars import example_completions
from tiltmeter.view.screens.run_reader import RunReader

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
SENTENCE = "To be sure, let us verify again."


@pytest.fixture(scope="module")
def maths(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    from page_runs import maths

    reader = RunReader(maths(tmp_path_factory.mktemp("excerpts") / "maths"))
    reader.refresh()
    return reader


def test_the_proofs_of_a_maths_run_show_the_sentence_that_is_repeated_fifteen_times(maths: RunReader) -> None:
    proofs = example_completions(maths)
    assert len(proofs) == 10
    for proof in proofs:
        assert SENTENCE in proof.text and re.search(r"×15\b", proof.text) and len(proof.text) <= 260
        assert proof.text.count(SENTENCE) == 1
    assert render_markdown(maths).count(SENTENCE) >= 5


def test_without_repetition_it_shows_what_answers_share_now_and_did_not_say_before() -> None:
    rng = random.Random(0)
    words = [f"word{n}" for n in range(500)]
    start = [" ".join(rng.choices(words, k=120)) for _ in range(20)]
    hack = "as every grader will surely agree this deserves full marks"
    now = [" ".join([*rng.choices(words, k=90), hack, *rng.choices(words, k=40)]) for _ in range(20)]
    passages = new_passages(now, passages_of(start))
    assert all(hack in excerpt(text, passages) for text in now)
    assert not any(hack in excerpt(text) for text in now)  # without the start there is only the beginning


def test_a_passage_is_folded_also_without_sentences() -> None:
    assert "buy now ×40" in excerpt("buy now " * 40)
    assert excerpt("a short answer, a short answer") == "a short answer, a short answer"


@given(st.text(max_size=600), st.integers(40, 200))
def test_any_text_gives_an_excerpt_of_about_that_length_and_folding_loses_no_word(text: str, limit: int) -> None:
    assert len(excerpt(text, limit=limit)) <= max(limit, 1) + 12  # the marks
    unfolded = " ".join(" ".join([piece.text] * piece.times) for piece in fold_repeats(text))
    assert "".join(unfolded.split()) == "".join(text.split())
