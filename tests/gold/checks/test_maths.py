"""Final answers are read in the notations people use, compared exactly, and cannot be hedged."""

from __future__ import annotations

import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.sizes import size

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.gold.checks.math_answers import LONGEST_TEXT, equal, extract_answers, read_answer
from tiltmeter.gold.checks.math_terms import BITS, UnreadableTerm, evaluate, parse_term
from tiltmeter.rewards import maths
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.forgeries import forgeries_for

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
has_data = pytest.mark.skipif(not DATA.exists(), reason="GSM8K and MATH-500 are not on this machine")


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def says(given: str, gold: str, **how: Any) -> bool:
    return maths(**how).score(f"so \\boxed{{{given}}}.", gold) == 1.0


SAME = [
    ("1/2", "\\frac{1}{2}"), ("0.5", "\\frac12"), (".5", "1/2"), ("\\dfrac{1}{2}", "0.50"), ("-\\frac{3}{4}", "-3/4"),
    ("1\\frac{4}{5}", "\\frac{9}{5}"), ("1 4/5", "9/5"), ("137 \\frac{1}{2}", "137.5"), ("50\\%", "50"),
    ("50\\%", "0.5"), ("50", "50\\%"), ("1,000,000", "1000000"), ("10{,}000", "10000"), ("10\\,000", "10000"),
    ("10 000", "10000"), ("\\$18.90", "18.9"), ("$18$", "18"), ("18 dollars", "18"), ("5.4 \\text{ cents}", "5.4"),
    ("15", "15\\mbox{ cm}^2"), ("15 cm^2", "15"), ("90^\\circ", "90"), ("90^{\\circ}", "90"), ("90°", "90"),
    ("\\frac{270}7", "\\frac{270}7\\text{ degrees}"), ("2\\sqrt{3}", "\\sqrt{12}"),
    ("\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"), ("2\\pi", "2 \\pi"), ("2pi", "2\\pi"),
    ("x=5", "5"), ("5", "x=5"), ("y=2x+3", "2x+3"), ("y = 3+2x", "y = 2x + 3"), ("2y - 4x = 6", "y = 2x + 3"),
    ("(3,4]", "\\left( 3, 4 \\right]"), ("[-2,7]", "x \\in [-2,7]"), ("-2 \\le x \\le 7", "[-2,7]"),
    ("x > 3", "3 < x"), ("(-\\infty, 2) \\cup (3, \\infty)", "(-\\infty,2)\\cup(3,\\infty)"),
    ("(2,4)", "\\left(2, 4\\right)"), ("-2, 1", "1,-2"), ("-2 \\text{ or } 1", "1,-2"), ("\\{1, -2\\}", "1,-2"),
    ("1 \\pm \\sqrt{19}", "1+\\sqrt{19}, 1-\\sqrt{19}"),
    ("\\begin{bmatrix} 1 \\\\ 2 \\end{bmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"), ("52_{8}", "52_8"),
    ("Evelyn", "\\text{Evelyn}"), ("\\text{east}", "East"), ("C", "\\text{(C)}"), ("(C)", "\\text{(C)}"),
    ("p-q", "p - q"), ("(b+2)(a+5)", "(a+5)(b+2)"), ("3+x^2", "x^2+3"), ("6.72 \\times 10^{-5}", ".0000672"),
    ("9i+6", "6+9i"), ("\\frac{\\cos x}{\\sin x}", "\\cot x"), ("\\frac{9a+11}{20}", "\\frac{11+9a}{20}"),
    ("\\frac{\\pi}{2} \\approx 1.57", "\\pi/2"), ("11(1+\\sqrt{5})", "11\\sqrt{5}+11"), ("\\sqrt{2}+1", "1+\\sqrt2"),
    ("17+25=42", "42"), ("42.0", "42"), ("3 \\cdot 10^{8}", "300000000"), ("15cm", "15"), ("15 lbs", "15"),
    ("18dollars", "18"), ("7 men", "7"), ("6ba", "6ab"), ("5 million", "5 \\text{ million}"),
    ("\\frac{\\sqrt2}{2}+\\frac{\\sqrt2}{2}i", "\\frac{1+i}{\\sqrt2}"), ("|x|", "|-x|"),
]  # fmt: skip

DIFFERENT = [
    ("41", "42"), ("4.5", "45"), ("1/3", "0.333"), ("\\frac{1}{23}", "\\frac{12}{3}"), ("1 2", "12"),
    ("12 or 13", "12"), ("12 or 13", "13"), ("12, 13", "12"), ("12 \\text{ or } 13", "12"),
    ("12 \\text{ (perhaps 13)}", "12"), ("12 or thirteen", "12"), ("\\{12, 13\\}", "12"), ("12 \\pm 1", "13"),
    ("41 = 42", "42"), ("42 = 41", "42"), ("x = 41 = 42", "42"), ("42 \\approx 50", "42"), ("17+25", "42"),
    ("6 \\cdot 7", "42"), ("84/2", "42"), ("2^{10}", "1024"), ("\\sqrt{16}", "4"), ("5!", "120"), ("2/4", "1/2"),
    ("|{-3}|", "3"), ("3x+2x", "5x"), ("(x+1)(x+2)", "x^2+3x+2"), ("ab+2a+5b+10", "(a+5)(b+2)"), ("x", "5"),
    ("x+0", "x+5"), ("0=0", "y = 2x + 3"), ("y=2x+3", "y=2x+4"), ("y=5", "x=5"), ("nan", "42"), ("\\infty", "42"),
    ("0/0", "0"), ("1/0", "\\infty"), ("52", "52_8"), ("42", "52_8"), ("(4,2)", "(2,4)"), ("[2,4]", "(2,4)"),
    ("2,4", "(2,4)"), ("(2,4)", "2,4"), ("1,-2,3", "1,-2"), ("1", "1,-2"), ("1,1", "1,-2"), ("500\\%", "5.5"),
    ("west", "\\text{east}"), ("A", "\\text{(C)}"), ("3R^2", "3r^2"), ("x < 3", "x > 3"), ("x \\le 3", "x < 3"),
    ("\\begin{pmatrix} 1 \\\\ 3 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"), ("3.14", "\\pi"),
    ("__import__('os')", "42"), ("type('A',(),{'__eq__':lambda s,o:True})()", "42"), ("42; 43", "42"),
    ("42 43", "42"), ("9^{9^{9^9}}", "1"), ("", "42"), (" ", "42"), ("\\phantom{42}", "42"),
    ("\\text{42 or 43}", "42"), ("4\\,2 3", "42"), ("--42", "-42"),
    # letters are not units, and words may be numbers or doubts
    ("6", "6ab"), ("6xy", "6ab"), ("6xyz", "6"), ("3", "3ab^2"), ("x^2+2ab", "x^2+2"), ("42 million", "42"),
    ("42 \\text{ million}", "42"), ("42 plus one", "42"), ("42 unless wrong", "42"), ("42 \\text{ or forty}", "42"),
    # the question, asked again
    ("\\ln(e^{42})", "42"), ("42\\cos 0", "42"), ("\\arctan 1", "\\frac{\\pi}{4}"), ("\\frac{\\pi}{\\pi}42", "42"),
    ("i^2", "-1"), ("\\sqrt{-4}", "2i"), ("\\sqrt{180}", "6\\sqrt{5}"), ("\\sqrt{2}\\sqrt{3}", "\\sqrt{6}"),
    ("x", "|x|"), ("|x|", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "gold"), SAME)
def test_the_same_answer_in_another_notation_is_paid(given: str, gold: str) -> None:
    assert says(given, gold)


@pytest.mark.parametrize(("given", "gold"), DIFFERENT)
def test_another_answer_a_hedge_or_unfinished_work_is_not_paid(given: str, gold: str) -> None:
    assert not says(given, gold)


def test_work_left_to_the_reader_is_paid_only_if_asked_for() -> None:
    for given, gold in (
        ("17+25", "42"),
        ("2/4", "1/2"),
        ("(x+1)(x+2)", "x^2+3x+2"),
        ("\\sqrt[3]{-8}", "-2"),
        ("\\sqrt{180}", "6\\sqrt{5}"),
        ("\\arctan 1", "\\pi/4"),
    ):
        assert not says(given, gold) and says(given, gold, worked=False)


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        ("\\boxed{41} no, \\boxed{42}", False),
        ("\\boxed{42} and again \\boxed{42}", True),
        ("\\boxed{42}, that is \\boxed{42.0}", True),
        ("\\boxed{42} \\boxed{}", True),
        ("\\boxed{}", False),
        ("\\boxed{42", False),
        ("\\boxed 7 is not it", False),
        ("\\boxed{\\boxed{42}}", False),
        ("#### 42", True),
        ("#### 41\n#### 42", False),
        ("####", False),
        ("Answer: 42", True),
        ("**Final Answer:** 42", True),
        ("The answer is 42.", True),
        ("Answer: 41\nAnswer: 42", False),
        ("It is 42", False),
        ("\\boxed{41}\n#### 42", False),
        ("", False),
    ],
)
def test_one_final_answer_counts(text: str, paid: bool) -> None:
    assert maths().score(text, "42") == float(paid)


def test_the_last_of_several_and_the_last_number_count_only_if_asked_for() -> None:
    assert maths(several="last").score("\\boxed{41} no, \\boxed{42}", "42") == 1.0
    assert maths(several="last").score("\\boxed{42} no, \\boxed{41}", "42") == 0.0
    assert maths(forms=("boxed", "number")).score("First 41, then 42 in all.", "42") == 1.0
    with pytest.raises(ValueError, match="no such form"):
        maths(forms=("box",))  # type: ignore[arg-type]


def test_several_boxes_are_an_answer_if_the_reference_is_that_list() -> None:
    assert maths().score("\\boxed{1} and \\boxed{-2}", "1,-2") == 1.0
    assert maths().score("\\boxed{1} and \\boxed{2}", "1,-2") == 0.0
    assert maths().score("\\boxed{1} and \\boxed{-2} and \\boxed{3}", "1,-2") == 0.0


def test_a_row_without_a_reference_is_none_and_not_0() -> None:
    reward = maths()
    scores = reward(completions=["\\boxed{42}"] * 4, answer=["42", None, "", ["42"]])
    assert scores == [1.0, None, None, None] and reward.infra == [False, True, True, True]
    with pytest.raises(ValueError, match="column"):
        reward(completions=["\\boxed{42}"], solution=["42"])


def test_the_fingerprint_changes_with_settings_and_not_with_what_was_graded() -> None:
    reward = maths()
    reward(completions=["\\boxed{1}"], answer=["1"])
    assert fingerprint([reward]) == fingerprint([maths()]) != fingerprint([maths(worked=False)])


def test_a_call_that_cannot_be_right_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="'answer' has 1 rows for 2 completions"):
        maths()(completions=["a", "b"], answer=["1"])
    with pytest.raises(TypeError, match="without completions"):
        maths()(answer=["1"])


def test_chat_messages_and_numbers_are_read() -> None:
    chat = [[{"role": "assistant", "content": "It is \\boxed{42}."}]]
    assert maths("gold")(prompts=["?"], completions=chat, gold=[42], trainer_state=None) == [1.0]


def hostile() -> list[str]:
    size = LONGEST_TEXT
    parts = [
        *(
            "\\boxed{",
            "{",
            "}",
            "\\boxed{1}",
            "#### ",
            "answer: ",
            "answer is ",
            "(",
            "1,",
            "\\frac",
            "\\frac{1}{",
            "^",
        ),
        *("-", "1 ", "|", "\\text{", "9^", "!", "\\sqrt", "x_", "±", " or ", "\ud800", "a", ",\u200b", "1,234"),
    ]
    return [(part * size)[:size] for part in parts]


def test_hostile_texts_of_a_million_characters_are_read_in_time() -> None:
    reward = maths(forms=("boxed", "hashes", "answer", "number"))
    for text in hostile():
        began = time.process_time()
        assert reward.score(text, "42") == 0.0
        assert reward.score(f"\\boxed{{{text[:500]}}}", "42") == 0.0
        assert time.process_time() - began < 3.0, text[:20]
    assert reward.score("x" * (LONGEST_TEXT + 1) + "\\boxed{42}", "42") == 0.0


def test_hostile_terms_are_refused_or_small() -> None:
    for text in (
        "9^{9^9}",
        "((9^{99})^{99})^{99}",
        "500!^{500!}",
        "2^{-99999}",
        "(" * 300,
        "-" * 500,
        "1" * 599 + "!",
        "\\sqrt[99999]{2}",
        "9!!!!",
        "10^{10^{10}}",
    ):
        began = time.process_time()
        try:
            found = evaluate(parse_term(text))
        except UnreadableTerm:
            found = 0.0
        assert not hasattr(found, "numerator") or found.numerator.bit_length() <= BITS
        assert time.process_time() - began < 0.5, text[:20]


def test_random_garbage_is_never_paid_and_never_raises() -> None:
    for seed in range(size(1, 3)):
        rng = random.Random(seed)
        for _ in range(700):
            text = "".join(
                rng.choice("0123456789+-*/^_(){}[]|,.=<>\\ frac sqrt pi text or x%!±∪∞\ud800")
                for _ in range(rng.randrange(30))
            )
            assert maths().score(f"\\boxed{{{text}}}", "\\frac{355}{113}") == 0.0


@pytest.mark.parametrize(
    "gold", ["42", "\\frac{1}{2}", "3\\sqrt{13}", "(6,31,-1)", "1,-2", "p-q", "\\text{Evelyn}", "x \\in [-2,7]"]
)
def test_no_forgery_is_paid_and_the_honest_answer_is(gold: str) -> None:
    for form in ("\\boxed{%s}", "so\n#### %s", "Answer: %s"):
        task = AuditTask("?", form % gold, form % "977", {"answer": gold}, "math")
        assert maths().score(task.right, gold) == 1.0 and maths().score(task.wrong, gold) == 0.0
        for forgery in forgeries_for(task):
            assert maths().score(forgery.make(task), gold) == 0.0, forgery.name


def test_a_verifier_that_looks_for_the_answer_in_the_text_is_caught() -> None:
    """The control: the forgeries above must be able to succeed."""
    task = AuditTask("?", "\\boxed{42}", "\\boxed{41}", {"answer": "42"}, "math")
    paid = [forgery.name for forgery in forgeries_for(task) if "42" in forgery.make(task)]
    assert "every candidate in one place" in paid and "every candidate, each in its own place" in paid


@has_data
def test_every_reference_of_gsm8k_and_math_500_is_paid_and_only_its_own() -> None:
    school, contest = rows("gsm8k/test.jsonl.gz"), rows("math500/math500.jsonl.gz")
    reward = maths()
    assert all(reward.score(row["answer"], row["answer"]) == 1.0 for row in school)
    assert all(reward.score(row["solution"], row["answer"]) == 1.0 for row in contest)
    golds = [row["answer"] for row in contest]
    rng = random.Random(1)
    others = [(gold, other) for gold in golds for other in rng.sample(golds, 20) if _bare(gold) != _bare(other)]
    read = {gold: read_answer(gold) for gold in golds}
    wrongly = {(one, other) for one, other in others if equal(read[one], read[other])}  # type: ignore[arg-type]
    assert wrongly <= {("x=5", "5"), ("5", "x=5"), ("1,-2", "-2,1"), ("-2,1", "1,-2")}


def _bare(gold: str) -> str:
    """Without units and spaces: those answers are the same."""
    for part in ("^\\circ", "\\$", "\\mbox{ cm}^2", " ", ",\\!", "{", "}"):
        gold = gold.replace(part, "")
    return gold


@has_data
def test_the_verifier_agrees_with_labels_that_came_with_model_solutions() -> None:
    reward = maths()
    samples = rows("math_group_samples_rm/samples.jsonl.gz")
    differ = [row for row in samples if (reward.score(row["response"], row["gold"]) == 1.0) != row["correct"]]
    # The label of this one is wrong: it is the same number.
    assert [(row["gold"], row["pred"]) for row in differ] == [("10{,}000", "10000")]


def test_boxes_are_found_with_their_own_brackets() -> None:
    assert extract_answers("\\boxed{\\frac{1}{2}} and \\boxed{ {x} }", ("boxed",)) == ["\\frac{1}{2}", "{x}"]
