"""What a redacted report keeps: our own words and figures, and nothing that anybody else wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tiltmeter.view.report.redact import mark_text, redact_texts


@pytest.mark.parametrize(
    "sentence",
    [
        "91 % say 'it's SECRET' now",
        'they say "don\'t SECRET" now',
        "they say “it’s SECRET” now",
        "they say ‘it’s SECRET’ now",
        "they say 'the dogs' SECRET' now",
        "they say `SECRET` and «SECRET»",
        "they say 'S\nSECRET'",
        "they say 'a SECRET that was cu…",
        "they say '$SECRET'",
    ],
)
def test_what_a_sentence_quotes_goes_whatever_marks_are_inside_it(sentence: str) -> None:
    told = redact_texts({"summary": sentence, "cause": sentence, "text": sentence, "tried": sentence})
    assert "SECRET" not in json.dumps(told)
    assert all(line.startswith(("91 % say [", "they say [")) for line in told.values())


def test_our_own_apostrophes_are_no_quotation() -> None:
    told = "balance the reward model's data, the judges' too"
    assert redact_texts({"summary": told}) == {"summary": told}


def test_errors_and_what_operators_wrote_go_and_what_they_are_about_stays() -> None:
    answer: dict[str, Any] = {
        "entries": [
            {"kind": "fault", "text": "checks.py: ValueError: no number in SECRET (switched off)"},
            {"kind": "note", "text": "Called false: gold.slope: SECRET is fine"},
            {"kind": "note", "text": "Approved: beta 0.04 → 0.08"},
        ],
        "asides": [
            "Off: checks.py (ValueError: SECRET)",
            "Not measured: 3, the last: SECRET",
            "The reference could not be read: SECRET",
            "Labels of 3 steps are still to come.",
        ],
        "alarms": [{"said": "called false: SECRET"}, {"said": "muted until step 90: SECRET"}, {"said": "acknowledged"}],
    }
    told = redact_texts(answer)
    assert "SECRET" not in json.dumps(told)
    assert told["entries"][0]["text"].startswith("checks.py: [")
    assert told["entries"][1]["text"].startswith("Called false: gold.slope: [")
    assert told["entries"][2] == answer["entries"][2]
    assert told["asides"][3] == answer["asides"][3]
    assert told["alarms"][1]["said"].startswith("muted until step 90: [")
    assert told["alarms"][2] == {"said": "acknowledged"}


def test_equal_texts_are_equal_inside_a_report_and_cannot_be_guessed_from_another() -> None:
    row = [{"prompt": "2 + 2?"}, {"prompt": "2 + 2?"}, {"prompt": "2 + 3?"}]
    one, two, three = redact_texts(row)
    assert one == two != three
    assert redact_texts(row)[0] != one, "a key of its own in each report"
    assert mark_text("2 + 2?", b"one") != mark_text("2 + 2?", b"two")
