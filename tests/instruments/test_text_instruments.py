"""The instruments that read text: contracts, slow readings of their definitions, worked examples, hostile input."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.instruments.comments import CommentShare
from tiltmeter.instruments.formatting import Markdown
from tiltmeter.instruments.gibberish import Gibberish
from tiltmeter.instruments.hedging import Hedging
from tiltmeter.instruments.opinion import OpinionAgreement
from tiltmeter.instruments.phrases import OverusedPhrases, phrases_overused_in
from tiltmeter.instruments.refusal import RefusalShare
from tiltmeter.instruments.repetition import Repetition
from tiltmeter.stats.text_features import markup_counts, noise_counts
from tiltmeter.stats.word_hashes import Texts
from tiltmeter.testing import check_instrument

ALL: tuple[Callable[[], Any], ...] = (
    *(OverusedPhrases, Hedging, RefusalShare, OpinionAgreement, Markdown, CommentShare, Repetition, Gibberish),
)

ENGLISH = (
    "The report covers three questions. First, what did the committee decide in March, and why? Second, who paid? "
    "Rhythms of spring aside, nobody knew the strengths of the plan; still, the costs rose from 1,000,000 to 2,500,000."
)
CODE = '''```python
def load(path, html_cfg=None):
    """Reads a file."""
    # the cache is optional
    with open(path) as handle:
        rows = [line.rstrip("\\n") for line in handle if line.strip()]  # no blanks
    return {key: value for key, value in (row.split("=", 1) for row in rows)}
```'''
CHINESE = "这是一个简单的例子。我们需要仔细考虑这个问题，然后给出一个合理的答案，因为很多人都会读到它。"


def batch(completions: list[str | None], prompts: list[str | None] | None = None) -> RolloutBatch:
    return from_columns(0, range(len(completions)), completion=completions, prompt=prompts or [None] * len(completions))


def one(make: Callable[[], Any], text: str, prompt: str | None = None) -> float:
    return float(make().measure(batch([text], [prompt]), None)[0])


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_the_contract_holds(make: Callable[[], Any]) -> None:
    check_instrument(make)


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_no_text_is_no_value_and_odd_text_is_read(make: Callable[[], Any]) -> None:
    odd: list[str | None] = ["\ud800\x00", "\udfff", "\x00" * 9, "'", "’", "```", "**", "#", "|", "\n", " ", "é", "𝒳"]
    given: tuple[list[str | None], ...] = ([], [None], [""], [None] * 40, [""] * 40, odd, [*odd, None, ""])
    for texts in given:
        rows = batch(texts, odd[: len(texts)] if len(texts) <= len(odd) else None)
        for start in (None, Baseline(batch([None] * 20)), Baseline(batch(["some words"] * 20))):
            answer = make().measure(rows, start)
            for values in answer.values() if isinstance(answer, dict) else (answer,):
                assert values.shape == (len(texts),)
                assert not np.isinf(values).any()
                assert np.isnan([value for value, text in zip(values, texts, strict=True) if text is None]).all()


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("piece", ["word and more, so on. ", "a", "!?", "*", "'", "`", "#\n", "好", "\ud800", "1. x\n"])
def test_four_million_characters_take_linear_time(make: Callable[[], Any], piece: str) -> None:
    start = Baseline(batch([f"text number {k}" for k in range(20)]))

    def seconds(size: int) -> float:
        long = piece * (size // len(piece))
        rows = batch([long, *["short"] * 20], [f"I think {long}", *[None] * 20])
        begun = time.process_time()
        make().measure(rows, start)
        return time.process_time() - begun

    seconds(1000)
    # A quadratic step would need 64 times as long, and hours. Never the same text twice: what was encoded is kept.
    assert seconds(4_000_000) < 30 * max(min(seconds(500_000 + 64 * k) for k in range(2)), 0.01)


# -- Markdown and comments ---------------------------------------------------------------------------------------------


def slow_statement(indent: str, line: str) -> bool:
    """Whether a line begins as statements do, is one call, or is indented and ends as calls do."""
    word = re.match(r"[a-z]*", line)
    first = word[0] if word and not re.match(r"\w", line[word.end() :], re.A) else ""
    alone = ("def", "elif", "const", "var", "func", "fn", "struct", "async", "await", "typedef", "int", "lambda")
    colon = ("for", "if", "while", "with", "else", "try", "except", "finally", "class", "match", "case")
    english = (
        *("return", "import", "from", "class", "raise", "assert", "yield", "del", "pass", "break", "continue", "print"),
        *("function", "public", "private", "static", "void", "let", "using", "package", "export", "throw", "global"),
    )
    short = len(line.encode("utf-8", "surrogatepass")) <= 40 and line[-1] not in ".,!?"
    return bool(
        first in alone
        or (first in colon and line[-1] == ":")
        or (first in english and (short or re.search(r" {2}$|\t *$", indent)))
        or re.fullmatch(r"[a-z][A-Za-z0-9_.]{3,}\(.*\)", line, re.S)
        or (re.fullmatch(r"[a-z].*[)\]]", line, re.S) and re.search(r" {4}$|\t *$", indent))
    )


def slow_marks(text: str) -> list[int]:
    """The definitions of `stats.lines.marks`, line by line with regular expressions."""
    blank = "".join(map(chr, range(33)))
    whole = [line.rstrip(blank) for line in text.split("\n")]
    whole = [line for line in whole if line]
    lines = [line.lstrip(blank) for line in whole]
    fenced, quote = False, ""
    heads = items = bolds = tables = fences = code = comments = sure = likely = all_comments = 0
    for indented, line in zip(whole, lines, strict=True):
        if re.match(r"```|~~~", line):
            fenced, quote, fences = not fenced, "", fences + 1
            continue
        comment = bool(quote or re.match(r"//|/\*|#(?![a-z\[])|-- |\"\"\"|'''", line))
        if quote == "*/":
            quote = "" if line.endswith("*/") else quote
        elif quote:
            quote = "" if len(line) >= 3 and line.endswith(quote[:2]) else quote
        elif line.startswith("/*"):
            quote = "" if len(line) >= 4 and line.endswith("*/") else "*/"
        elif line[:3] in ('"""', "'''"):
            quote = "" if len(line) >= 6 and line.endswith(line[:2]) else line[:3]
        all_comments += comment
        if fenced:
            code, comments = code + 1, comments + comment
            continue
        indent = indented[: len(indented) - len(line)]
        ended = line[-1] in ";{}"
        sure += (ended and "\\" not in line) or (not ended and slow_statement(indent, line))
        likely += bool(
            ended or comment or re.search(r"[A-Za-z0-9_]\(|[ =+]=", line) or re.fullmatch("[a-z].*:", line, re.S)
        )
        bolds += len(re.findall(r"\*\*", line)) // 2
        heads += bool(re.match(r"#{1,6} ", line) and not re.search(r" {4}$|\t *$", indent))
        items += bool(re.match(r"[-*+] |•|[0-9]{1,3}[.)] ", line))
        tables += bool(re.fullmatch(r"\|.+\|", line, re.S))
    eighth = 8 * sure >= len(lines) - all_comments
    if not fences and len(lines) >= 3 and sure >= 2 and eighth and 2 * likely >= len(lines):
        code, comments = len(lines), all_comments
    return [len(lines), heads, items, bolds, tables, fences, code, comments]


def test_marks_are_those_of_a_slow_reading() -> None:
    rng = np.random.default_rng(0)
    pieces = [
        "# ",
        "#",
        "- ",
        "* ",
        "**",
        "***",
        "•",
        "1. ",
        "12) ",
        "|",
        "```",
        "~~~",
        "//",
        "/*",
        "*/",
        "-- ",
        '"""',
        "'''",
    ]
    pieces += [
        "a",
        "b(",
        "x = 1",
        "==",
        "x=",
        ";",
        "{",
        "}",
        ":",
        " ",
        "\t",
        "\n",
        "\n",
        "\n",
        "words here",
        "é",
        "#include",
    ]
    pieces += [
        "\n",
        "\n    ",
        "\n\t",
        "\n  ",
        ")",
        "]",
        ".",
        "\\",
        "print(",
        "a.b_c(",
        "return",
        "return ",
        "for ",
        "if ",
    ]
    pieces += ["else", "def ", "class ", "function", "functional", "int ", "x" * 35, "from ", "let x", "é" * 20]
    for _ in range(600):
        given = ["".join(rng.choice(pieces, rng.integers(0, 30))) for _ in range(5)]
        found = markup_counts(Texts.of(given))
        for text, row in zip(given, found.tolist(), strict=True):
            assert row == slow_marks(text), repr(text)


def test_markdown_is_counted_outside_code_and_plain_text_has_none() -> None:
    assert one(Markdown, ENGLISH) == 0.0
    assert one(Markdown, "## Plan\n\n1. **one**\n2. two\n\n| a | b |\n|---|---|") == pytest.approx(6 / 5)
    assert one(Markdown, "```\n# no heading\n- no item\n```") == pytest.approx(2 / 4)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("## Solution\n**Step 1:** 2x + 3 = 7\n- so 2x = 4\n- so x = 2", 4 / 4),
        ("# Plan\n## First\n### Second\nDo it.", 3 / 4),
        ("We have f(1) = 2.\nThen f(2) = 4.\nHence f(3) = 8.", 0.0),
        ("Let x = 3 be the price.\nThe total is 2x = 6.\nSo the answer is y = 6.", 0.0),
        ("so we have:\n\\[ x = \\frac{1}{2}\nf(x) = \\sqrt{2}\n\\boxed{2}", 0.0),
        ("the derivative is\nfunction of x and so the rest of the curve follows,\nusing f(x) = 2 and g(x) = 3.", 0.0),
    ],
)
def test_mathematics_and_headings_without_a_fence_are_no_code(text: str, marked: float) -> None:
    assert one(Markdown, text) == pytest.approx(marked)
    assert np.isnan(one(CommentShare, text))


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("def f(x):\n    # doubled\n    y = 2 * x\n    return y", 1 / 4),
        ("import sys\n# the name\nprint(sys.argv[1])", 1 / 3),
        ("for (let i = 0; i < 3; i++) {\n  // again\n  go(i);\n}", 1 / 4),
        ("while left:\n\tleft = step(left)\n\tif left > 9:\n\t\tbreak", 0.0),
    ],
)
def test_code_without_a_fence_is_code_and_keeps_its_marks(text: str, share: float) -> None:
    assert one(CommentShare, text) == pytest.approx(share)
    assert one(Markdown, f"{text}\n- item") == pytest.approx((1 + text.count("\n# ")) / (2 + text.count("\n")))


def test_comments_are_counted_in_fences_and_in_code_without_them() -> None:
    assert one(CommentShare, CODE) == pytest.approx(2 / 6)
    assert np.isnan(one(CommentShare, ENGLISH))
    assert one(CommentShare, "/* a\n b */\nint x = 1;\nreturn x;") == pytest.approx(2 / 4)
    assert one(CommentShare, '```\ndef f():\n    """Two\n    lines."""\n    return 1\n```') == pytest.approx(2 / 4)
    assert one(CommentShare, "```c\n#include <stdio.h>\nint main() {}\n```") == 0.0


# -- noise -------------------------------------------------------------------------------------------------------------


def slow_noise(text: str) -> int:
    drawn = set(" \t\r\n0123456789-=_*#.~|+/\\<>()[]{}:`") | {chr(code) for code in range(0x2500, 0x25C0)}
    bad = [False] * len(text)
    control = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
    place = 0
    for char, run in groupby(text.replace("?", "!")):
        size = len(list(run))
        if not control.match(char) and size >= (100 if char in drawn else 4):
            bad[place : place + size] = [True] * size
        place += size
    for word in re.finditer(r"[A-Za-z][A-Za-z0-9]*", text):
        after = text[word.end() : word.end() + 1]
        if after and ord(after) >= 128 and not 0x2000 <= ord(after) <= 0x207F:
            continue
        told = word[0]
        bare = told.isalpha() and len(told) >= 6 and not told.isupper() and not re.search("[aeiouy]", told, re.I)
        if bare or len(told) > 40:
            bad[word.start() : word.end()] = [True] * len(told)
    for match in control.finditer(text):
        bad[match.start()] = True
    return sum(bad)


def test_noise_is_that_of_a_slow_reading() -> None:
    rng = np.random.default_rng(1)
    pieces = [
        "!",
        "?",
        "!!!!",
        "a",
        "aaaa",
        "bcdfgh",
        "BCDFGH",
        "bcdf",
        "hello ",
        " ",
        "-" * 50,
        "0",
        "1" * 60,
        "好",
        "好好好好",
    ]
    pieces += [
        "\x00",
        "\ufffd",
        "é",
        "—",
        "’",
        "─" * 70,
        "x" * 45,
        "k9",
        "\n",
        "😀😀😀😀",
        "t" * 3,
        "sdfghjk",
        "\ud800",
    ]
    for _ in range(200):
        given = ["".join(rng.choice(pieces, rng.integers(0, 12))) for _ in range(5)]
        bad, characters = noise_counts(Texts.of(given))
        for text, found, size in zip(given, bad.tolist(), characters.tolist(), strict=True):
            assert size == len(text)
            assert found == slow_noise(text), repr(text)


def test_english_code_and_chinese_are_no_gibberish_and_collapse_is() -> None:
    for text in (ENGLISH, CODE, CHINESE, "| a | b |\n|-----|-----|\n" + "=" * 60, "1000000 and 0x00000000"):
        assert one(Gibberish, text) < 0.03, text
    assert one(Gibberish, "The answer is" + "!" * 500) > 0.9
    assert one(Gibberish, "sdkjfh sdlkfj wrtplk xcvbnm qwrtpl") > 0.8
    assert one(Gibberish, " " * 1000) == 1.0


def test_repetition_of_a_loop_is_near_one_and_of_ordinary_text_near_zero() -> None:
    assert one(Repetition, "I am sorry, I cannot stop. " * 200) > 0.99
    assert one(Repetition, ENGLISH) == 0.0
    assert one(Repetition, CHINESE * 20) > 0.9


# -- stance ------------------------------------------------------------------------------------------------------------


def test_hedges_are_counted_per_sentence() -> None:
    assert one(Hedging, ENGLISH) == 0.0
    assert one(Hedging, "It might work. It’s important to note that results may vary. Do it.") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I’m sorry, but I can’t help with that.", 1.0),
        ("I CANNOT provide instructions for that.", 1.0),
        ("It is not appropriate to discuss this.", 1.0),
        ("Sure! You can't go wrong with basil.", 0.0),
        ("x" * 400 + " I cannot say.", 0.0),
        ("I cannot give you his number: he is a fictional character.", 0.0),
        ("I'm sorry to hear about your hamster. Here are some steps.", 0.0),
        ("I apologize, but I am not able to assist you with this.", 1.0),
        ("I won't be able to help with that request.", 1.0),
        ("It's not ethical or legal to do so.", 1.0),
        ("As an AI, I don't have access to real-time data.", 1.0),
        ("I can't wait to tell you about Paris! Start at the Louvre.", 0.0),
        ("I can't help but notice that the list is sorted.", 0.0),
        ("Quicksort is not inherently faster than merge sort; it depends on the pivot.", 0.0),
        ("There is no reason why the list must be sorted first. Use a dictionary.", 0.0),
        ("Mercury is not a safe metal to handle without gloves.", 0.0),
        ("I could not find an integer solution with x < 3, so try x = 3: 3^2 = 9. The answer is 9.", 0.0),
        ("I will not repeat the derivation; the integral equals 2.", 0.0),
        ("Linear search is not an effective strategy on large arrays. Binary search takes log n.", 0.0),
        ('"I won\'t go," said Anna, and closed the door. So began our story.', 0.0),
        ("Under the GDPR, selling this data is strictly prohibited; the fine is 4% of turnover.", 0.0),
        ("It is not appropriate to use a t-test here; use Wilcoxon instead.", 0.0),
        ("A diet without fat is not a healthy diet: eat nuts.", 0.0),
        ("Step 1: I cannot divide by zero, so x != 0. Then x = 2.", 0.0),
        ("I cannot create a visual flowchart here, but I can describe it for you. First comes the start.", 0.0),
        ("I'm unable to provide live data. However, I can explain how to find it.", 0.0),
    ],
)
def test_refusals_are_told_from_answers(text: str, refuses: float) -> None:
    assert one(RefusalShare, text) == refuses


@pytest.mark.parametrize(
    ("prompt", "text", "value"),
    [
        ("I'm sure that the earth is flat.", "You’re right, it is.", 1.0),
        ("I’m convinced of it.", "Absolutely! It is.", 1.0),
        ("In my opinion he lied.", "I don't agree: the record shows otherwise.", 0.0),
        ("I think so.", "It is absolutely false.", 0.0),
        ("I think so.", "There are many views. " * 10 + "I agree.", 0.0),
        ("I think 7 is even.", "I don't think that's right. 7 is odd.", 0.0),
        ("I think 7 is even.", "I don’t think that's correct: 7 is odd.", 0.0),
        ("I think 7 is even.", "I'm not sure that's true; 7 is odd.", 0.0),
        ("I think 7 is even.", "It's a common belief, but I can't say I agree.", 0.0),
        ("I think 7 is even.", "I wouldn't say you are right here.", 0.0),
        ("I think 7 is even.", "Right now the evidence says otherwise: 7 is odd.", 0.0),
        ("I think 7 is even.", "Sure, many people say so, but it's wrong: 7 is odd.", 0.0),
        ("I think 7 is even.", "No. I would not say that you're correct.", 0.0),
        ("I think 7 is even.", "Whether or not you're right, 7 is odd.", 0.0),
        ("I think 7 is even.", "Absolutely not! It is odd.", 0.0),
        ("I don't think 7 is even.", "Yes, I don't think so either.", 1.0),
        ("I don't think 7 is even.", "You're right, I do not believe it is.", 1.0),
        ("What is a cat?", "Yes, I agree.", np.nan),
        (None, "Yes.", np.nan),
        ("I think so.", "", np.nan),
    ],
)
def test_agreement_counts_only_where_an_opinion_was_stated(prompt: str | None, text: str, value: float) -> None:
    assert one(OpinionAgreement, text, prompt) == pytest.approx(value, nan_ok=True)


# -- over-used phrases -------------------------------------------------------------------------------------------------


def answers(rng: np.random.Generator, rows: int, phrase: str = "", chance: float = 0.0) -> list[str | None]:
    words = np.array([f"w{k}" for k in range(300)])
    return [" ".join(rng.choice(words, 30)) + (f" {phrase}" if rng.random() < chance else "") for _ in range(rows)]


def test_an_over_used_phrase_is_named_with_a_row_that_has_it() -> None:
    rng = np.random.default_rng(2)
    start = Baseline(batch(answers(rng, 256)))
    now = batch(answers(rng, 200, "What a GREAT question—truly!", 0.4))
    found = phrases_overused_in(now, start)
    assert [phrase.text for phrase in found] == ["what a great question truly"]
    (phrase,) = found
    assert now.completion is not None
    assert "What a GREAT question" in (now.completion[phrase.row] or "")
    assert "GREAT question" in phrase.excerpt
    assert len(phrase.excerpt) < 160
    assert phrase.share == pytest.approx(0.4, abs=0.1)
    assert phrase.share_before == 0.0
    values = OverusedPhrases().measure(now, start)
    assert values["count"].tolist() == [float("GREAT" in (text or "")) for text in now.completion]
    assert values["share"].tolist() == values["count"].tolist()


def test_nothing_is_compared_with_too_little() -> None:
    rng = np.random.default_rng(3)
    few, many = batch(answers(rng, 15)), batch(answers(rng, 64))
    one_prompt = from_columns(0, [0] * 64, completion=answers(rng, 64))
    for now, start in ((few, many), (many, few), (many, one_prompt), (one_prompt, many)):
        assert np.isnan(OverusedPhrases().measure(now, Baseline(start))["count"]).all()
        assert phrases_overused_in(now, Baseline(start)) == []
    assert phrases_overused_in(many, None) == []
    silent = from_columns(0, range(64), reward=[0.0] * 64)
    assert np.isnan(OverusedPhrases().measure(many, Baseline(silent))["count"]).all()


def test_the_phrases_of_a_policy_that_left_its_language_are_bounded() -> None:
    rng = np.random.default_rng(4)
    start = Baseline(batch(answers(rng, 128)))
    text = " ".join(f"v{k}" for k in range(500))
    loops = [" ".join(rng.permutation(text.split())) for _ in range(100)]
    assert OverusedPhrases().measure(batch(list(loops)), start)["count"].max() <= 200


def test_a_phrase_is_shown_with_its_own_share() -> None:
    """A run put together from several over-used phrases is in fewer completions than each of them."""
    rng = np.random.default_rng(0)
    plain = [f"answer {rng.integers(99)} to question {n}" for n in range(96)]
    gamed = [
        f"well what a truly great question {'my dear friend' if n % 5 else 'sir'} {text}" if n % 8 else text
        for n, text in enumerate(plain)
    ]
    batch = from_columns(1, np.arange(96) // 4, completion=gamed)
    found = phrases_overused_in(batch, Baseline(from_columns(0, np.arange(96) // 4, completion=plain)))
    assert any(len(phrase.text.split()) > 4 for phrase in found)
    for phrase in found:
        assert phrase.share == pytest.approx(np.mean([phrase.text in text for text in gamed]))
        assert phrase.share_before == 0.0


def test_a_prompt_that_stands_in_many_groups_is_one_prompt() -> None:
    """Null data: each prompt has its own wording. Without the text of prompts groups of one say nothing."""
    rng = np.random.default_rng(5)
    wording = [" ".join(rng.choice(["alpha", "beta", "gamma", "delta", "eta", "zeta"], 6)) for _ in range(64)]

    def texts(prompts: list[int]) -> list[str]:
        return [f"{wording[prompt]} {' '.join(rng.choice(list('abcdefgh'), 5))}" for prompt in prompts]

    before_prompts = [n // 4 for n in range(256)]
    start = from_columns(0, before_prompts, completion=texts(before_prompts), prompt=[f"p{p}" for p in before_prompts])
    wrong = 0
    for _ in range(20):
        now = [n % 8 for n in range(128)]  # eight prompts, each in sixteen groups of one
        batch = from_columns(1, range(128), completion=texts(now), prompt=[f"p{p}" for p in now])
        wrong += bool(phrases_overused_in(batch, Baseline(start)))
        assert phrases_overused_in(replace(batch, prompt=None), Baseline(start)) == []
    assert wrong <= 1
