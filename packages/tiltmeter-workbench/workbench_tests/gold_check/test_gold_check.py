"""`tiltmeter gold`: drafts that work as they are, trials that tell a good check from a bad one, labels of a person."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner, Result

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import FunctionSource
from tiltmeter.models.judge import read_judge
from tiltmeter.monitor.parts import load_gold
from tiltmeter_workbench.gold_check.drafts import draft_check
from tiltmeter_workbench.gold_check.person_labels import PersonAgreement, ScoredPair, choose_pairs, label_pairs

SUMS = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(2, 8) for b in range(3, 8)]
TESTED = [
    {"prompt": "Write add(a, b).", "test_list": ["assert add(1, 2) == 3", "assert add(2, 5) == 7"], "code": "x"}
    for _ in range(3)
]
TAGGED = [
    {"prompt": f"<think> first, then <answer>. The capital of {land}?", "answer": town}
    for land, town in (("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"))
]
ESSAYS = [
    {"prompt": f"Write a poem about {what}.", "response": f"A poem of {what}."} for what in ("rain", "snow", "sun")
]


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scores(name: str, rows: list[tuple[str, dict[str, Any]]]) -> list[GoldAnswer]:
    source = load_gold(name)
    requests = [CompletionToLabel(str(at), 0, 0, at, "try", "", text, row) for at, (text, row) in enumerate(rows)]
    return list(source.label(requests))


@pytest.mark.parametrize(
    ("rows", "kind", "cases"),
    [
        (SUMS, "mathematics", {r"so \boxed{5}": 1.0, "5": 1.0, r"\boxed{5} or \boxed{6}": 0.0, "": 0.0}),
        (TESTED, "tests", {"```python\ndef add(a, b): return a + b\n```": 1.0, "def add(a, b): return 3": 0.0}),
        (
            TAGGED,
            "format",
            {
                "<think>Hm.</think><answer>Paris</answer>": 1.0,
                "<answer>Paris</answer>": 0.0,
                "<think>Hm.</think><answer>Rome</answer>": 0.0,
                "<think>Hm.</think><answer>Paris</answer> I am sure.": 0.0,
            },
        ),
    ],
)
def test_a_draft_is_of_the_kind_that_the_rows_allow_and_works_as_it_is(
    rows: list[dict[str, Any]], kind: str, cases: dict[str, float], tmp_path: Path
) -> None:
    draft = draft_check(rows, "train.jsonl")
    assert draft.kind == kind and draft.file == "checks.py"
    (tmp_path / "checks.py").write_text(draft.text)
    columns = {name: value for name, value in rows[0].items() if name != "prompt"}
    assert scores(f"{tmp_path / 'checks.py'}:score", [(text, columns) for text in cases]) == list(cases.values())


def test_rows_without_a_key_get_a_judge_with_canaries_of_their_own(tmp_path: Path) -> None:
    draft = draft_check(ESSAYS, "train.jsonl")
    assert draft.kind == "judge" and draft.file == "judge.toml"
    (tmp_path / "judge.toml").write_text(draft.text)
    assert {one["expect"] for one in tomllib.loads(draft.text)["canaries"]} == {"high", "low"}
    assert "Length, politeness" in read_judge(str(tmp_path / "judge.toml")).guide
    with pytest.raises(AttachError, match=r"no row of train\.jsonl has a short answer"):
        draft_check([{"prompt": "Write a poem."}], "train.jsonl", "format")
    with pytest.raises(AttachError, match="choose one of mathematics, tests, format, judge"):
        draft_check(SUMS, "train.jsonl", "poem")


def invoke(*words: object, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["gold", *map(str, words)], input=typed)


def test_the_draft_is_tried_beside_the_reward(tmp_path: Path) -> None:
    data = written(tmp_path, SUMS)
    (tmp_path / "rewards.py").write_text(
        "def right(completions, answer, **kwargs):\n"
        "    return [float(one in text) for text, one in zip(completions, answer)]\n"
    )
    done = invoke("draft", data, "--out", tmp_path / "mine.py", "--reward", f"{tmp_path / 'rewards.py'}:right")
    assert done.exit_code == 0, done.output
    lines = {line.split("  ")[0].strip(): line.split()[-2:] for line in done.output.splitlines()}
    assert lines["the row's own answer"] == ["1.00", "1.00"]
    assert lines["the right answer among others"] == ["0.00", "1.00"], "which is what gold is for"
    assert 'gold="mine.py:score"' in (tmp_path / "mine.py").read_text()
    assert isinstance(invoke("draft", data, "--out", tmp_path / "mine.py").exception, AttachError)
    tried = invoke("try", f"{tmp_path / 'mine.py'}:score", data, "--json")
    assert tried.exit_code == 0 and json.loads(tried.output)["texts"][0]["check"] == [1.0] * 16


def test_a_check_that_tells_nothing_apart_is_said(tmp_path: Path) -> None:
    data = written(tmp_path, SUMS)
    (tmp_path / "checks.py").write_text(
        "def lenient(completion): return 1.0\ndef none(completion): return None\ndef ten(completion): return 10\n"
    )
    lenient = invoke("try", f"{tmp_path / 'checks.py'}:lenient", data)
    assert lenient.exit_code == 1 and "too lenient" in lenient.output
    assert invoke("try", f"{tmp_path / 'checks.py'}:none", data).exit_code == 2
    refused = invoke("try", f"{tmp_path / 'checks.py'}:ten", data).exception
    assert isinstance(refused, AttachError) and "divide by the most" in str(refused)


ROLLOUTS = [
    {"prompt": f"What is {a} + 1?", "completion": text, "answer": str(a + 1)}
    for a in range(40)
    for text in (f"It is {a + 1}", f"It is {a + 2}", f"\x1b[2J Surely {a + 2}!")
]


def last_word(completion: str, answer: str) -> float:
    return float(completion.split()[-1] == answer)


def contrary(completion: str, answer: str) -> float:
    return 1.0 - last_word(completion, answer)


def honest(pair: ScoredPair, number: int, count: int) -> Any:
    """A person who knows the answer."""
    right = f"It is {int(pair.prompt.split()[2]) + 1}"
    return "first" if pair.first == right else "second" if pair.second == right else "tie"


@pytest.mark.parametrize(("check", "agreed", "code"), [(last_word, 30, 0), (contrary, 0, 1)])
def test_a_person_finds_out_whether_a_check_measures_what_is_meant(
    check: Callable[..., float], agreed: int, code: int, tmp_path: Path
) -> None:
    pairs = choose_pairs(FunctionSource("checks.py:check", check), ROLLOUTS)
    assert len(pairs) == 30 and len({pair.prompt for pair in pairs}) == 30
    assert 5 < sum(pair.check_prefers_first for pair in pairs) < 25, "sides are random"
    result = label_pairs(pairs, honest, tmp_path / "labels.jsonl")
    assert (result.agreed, result.decided, result.exit_code) == (agreed, 30, code)
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) == 30


@pytest.mark.parametrize(("agreed", "decided"), [(30, 30), (27, 30), (15, 30), (0, 7), (1, 1)])
def test_the_interval_is_exact(agreed: int, decided: int) -> None:
    exact = binomtest(agreed, decided).proportion_ci(0.95, "exact")
    assert PersonAgreement(agreed, decided, 0, 0).interval == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_labels_are_given_in_the_terminal_where_what_a_model_wrote_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "def score(completion, answer): return float(completion.split()[-1] == answer)\n"
    )
    data = written(tmp_path, ROLLOUTS)
    out = tmp_path / "labels.jsonl"
    done = invoke("label", f"{tmp_path / 'checks.py'}:score", data, "--pairs", 4, "--out", out, typed="x\na\nb\nt\nq\n")
    assert "\x1b" not in done.output and "1 ties and 0 skipped" in done.output and "(exact, 95 %)" in done.output
    assert [json.loads(line)["person"] for line in out.read_text().splitlines()] == ["first", "second", "tie"]
    assert done.exit_code == 2 and "label more pairs" in done.output


def test_what_has_no_pairs_is_said() -> None:
    source = FunctionSource("checks.py:score", last_word)
    with pytest.raises(AttachError, match="no prompt with two different ones"):
        choose_pairs(source, [{"prompt": "2 + 2?", "completion": "4"}])
    with pytest.raises(AttachError, match="gives all answers to a prompt the same"):
        choose_pairs(source, [{"prompt": "p", "completion": text, "answer": "c"} for text in "ab"])


def test_pairs_are_labelled_in_a_browser_and_the_page_knows_no_score(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    (tmp_path / "checks.py").write_text(
        "def score(completion, answer): return float(completion.split()[-1] == answer)\n"
    )
    hostile = [{"prompt": "</script><img src=x onerror=document.title='HACKED'>", "completion": t, "answer": "<b>4</b>"}
               for t in ("<script>document.title='HACKED'</script> <b>4</b>", "5")]  # fmt: skip
    data, page, answers = (
        written(tmp_path, [*hostile, *ROLLOUTS[:3]]),
        tmp_path / "pairs.html",
        tmp_path / "answers.jsonl",
    )
    check = f"{tmp_path / 'checks.py'}:score"
    assert invoke("label", check, data, "--pairs", 2, "--html", page).exit_code == 0
    assert "check" not in page.read_text().partition('id="pairs">')[2].partition("</script>")[0]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.as_uri())
        for _ in range(2):
            texts = [tab.text_content(f"#{side}") for side in ("first", "second")]
            right = next(at for at, text in enumerate(texts) if text and (text == "It is 1" or "<b>" in text))
            tab.keyboard.press("ab"[right])
        assert tab.text_content("#count") == "2 of 2 labelled" and tab.title() == "Which answer is better?"
        with tab.expect_download() as download:
            tab.click("#save")
        download.value.save_as(answers)
        browser.close()
    done = invoke("label", check, data, "--pairs", 2, "--labels", answers)
    assert "in 2 of 2 pairs" in done.output and done.exit_code == 2
    assert isinstance(invoke("label", check, data, "--seed", 9, "--pairs", 1, "--labels", data).exception, AttachError)
