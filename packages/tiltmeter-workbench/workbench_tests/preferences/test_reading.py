"""Files of every form that people keep preferences in, read without being told what is what; and those refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import write_rows
from tiltmeter_workbench.preferences.reading.reader import PreferenceData, read_preferences

DATA = Path(__file__).parents[5] / "shared" / "data"
shared = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def given(folder: Path, *rows: dict[str, Any], **columns: str) -> PreferenceData:
    write_rows(folder / "pairs.jsonl", rows)
    return read_preferences(folder / "pairs.jsonl", columns)


def said(reading: PreferenceData) -> str:
    return " | ".join(reading.input_notes)


def turn(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def test_trl_with_a_prompt_of_its_own(tmp_path: Path) -> None:
    pairs = given(tmp_path, {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}).pairs
    assert (pairs.prompts, pairs.first, pairs.second) == (["2 + 2?"], ["4"], ["5"])
    assert pairs.votes.tolist() == [[1.0]]
    assert not pairs.order_known


def test_trl_with_messages_and_an_implicit_prompt(tmp_path: Path) -> None:
    asked = [turn("system", "Be brief."), turn("user", "2 + 2?")]
    row = {"chosen": [*asked, turn("assistant", "4")], "rejected": [*asked, turn("assistant", "5")]}
    pairs = given(tmp_path, row).pairs
    assert pairs.prompts == ["system: Be brief.\n\nuser: 2 + 2?"]
    assert (pairs.first, pairs.second) == (["4"], ["5"])


def test_messages_that_repeat_the_prompt_of_a_column_are_cut(tmp_path: Path) -> None:
    ask = turn("user", "2 + 2?")
    row = {"prompt": "2 + 2?", "chosen": [ask, turn("assistant", "4")], "rejected": [ask, turn("assistant", "5")]}
    pairs = given(tmp_path, row).pairs
    assert (pairs.prompts, pairs.first, pairs.second) == (["2 + 2?"], ["4"], ["5"])


def test_equal_conversations_still_have_answers(tmp_path: Path) -> None:
    talk = [turn("user", "2 + 2?"), turn("assistant", "4")]
    pairs = given(tmp_path, {"chosen": talk, "rejected": talk}).pairs
    assert (pairs.prompts, pairs.first, pairs.second) == (["2 + 2?"], ["4"], ["4"])


def test_dialogues_as_text_are_cut_at_the_last_turn_they_share(tmp_path: Path) -> None:
    begin = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: 2 + 2?\n\nAssistant:"
    late = {"chosen": begin + " 4", "rejected": begin + " 5"}
    early = {
        "chosen": "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: More\n\nAssistant: Sure",
        "rejected": "\n\nHuman: Hi\n\nAssistant: Go away\n\nHuman: Why\n\nAssistant: So",
    }
    found = given(tmp_path, late, early, {"chosen": "no turns", "rejected": "none here"})
    assert found.pairs.prompts == ["Human: Hi\n\nAssistant: Hello\n\nHuman: 2 + 2?", "Human: Hi", ""]
    assert found.pairs.first[:2] == ["4", "Hello\n\nHuman: More\n\nAssistant: Sure"]
    assert "could not be told from the answers: 1" in said(found)


def test_scores_beside_the_answers_are_their_quality(tmp_path: Path) -> None:
    row = {"prompt": "?", "chosen": "a", "rejected": "b", "score_chosen": 8.5, "score_rejected": "4"}
    found = given(tmp_path, row, {**row, "score_rejected": None})
    assert found.pairs.quality is not None
    np.testing.assert_array_equal(found.pairs.quality, [[8.5, 4.0], [8.5, np.nan]])
    assert "quality of each answer: score_chosen and score_rejected" in said(found)


def test_several_raters_in_columns(tmp_path: Path) -> None:
    row = {"instruction": "Add", "input": "2, 2", "response1": "4", "response2": "5"}
    found = given(
        tmp_path,
        {**row, "annotator1": 1, "annotator2": 2, "annotator3": 0},
        {**row, "input": "", "annotator1": 1, "annotator2": None, "annotator3": 1},
    )
    assert found.pairs.prompts == ["Add\n\n2, 2", "Add"]
    assert found.pairs.raters == ("annotator1", "annotator2", "annotator3")
    np.testing.assert_array_equal(found.pairs.votes, [[1.0, 0.0, 0.5], [1.0, np.nan, 1.0]])
    assert "1 is the first answer, 2 the second, 0 a tie" in said(found)
    assert "nothing is said about position" in said(found)


@pytest.mark.parametrize(
    ("values", "votes"),
    [
        (["A", "b", "tie"], [1.0, 0.0, 0.5]),
        (["a-is-clearly-better", "b-is-slightly-better", "tie"], [1.0, 0.0, 0.5]),
        (["model_a", "model_b", "tie (bothbad)"], [1.0, 0.0, 0.5]),
        (["first", "Second", "same"], [1.0, 0.0, 0.5]),
        ([2.0, 1, 0], [0.0, 1.0, 0.5]),
        (["output_2", "output_1", None], [0.0, 1.0, np.nan]),
    ],
)
def test_words_and_numbers_for_a_side(tmp_path: Path, values: list[object], votes: list[float]) -> None:
    rows = [{"input": str(at), "output_1": "x", "output_2": "y", "label": value} for at, value in enumerate(values)]
    np.testing.assert_array_equal(given(tmp_path, *rows).pairs.votes[:, 0], votes)


def test_zero_and_one_are_refused_unless_it_is_plain_or_said(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "response_1": "x", "response_2": "y", "label": value} for value in (0, 1, 1)]
    with pytest.raises(AttachError, match=r"0 and 1 can be read in more than one way.*--map answers="):
        given(tmp_path, *rows)
    with pytest.raises(AttachError, match=r"1 can be read in more than one way"):
        given(tmp_path, *rows[1:])
    assert given(tmp_path, *rows, answers="0/1").pairs.votes[:, 0].tolist() == [1.0, 0.0, 0.0]
    from_zero = [{"prompt": "?", "response_0": "x", "response_1": "y", "label": value} for value in (0, 1, 1)]
    assert given(tmp_path, *from_zero).pairs.votes[:, 0].tolist() == [1.0, 0.0, 0.0]


def test_the_sign_of_a_number_tells_the_side_when_that_is_said(tmp_path: Path) -> None:
    strengths = (-3, -1, 0, 2)
    rows = [{"prompt": "?", "response_1": "x", "response_2": "y", "preference_strength": k} for k in strengths]
    with pytest.raises(AttachError, match="answers=-/\\+ if negative"):
        given(tmp_path, *rows)
    assert given(tmp_path, *rows, answers="-/+").pairs.votes[:, 0].tolist() == [1.0, 1.0, 0.5, 0.0]
    assert given(tmp_path, *rows, answers="+/-").pairs.votes[:, 0].tolist() == [0.0, 0.0, 0.5, 1.0]


def test_conversations_of_two_models_and_who_won(tmp_path: Path) -> None:
    ask = turn("user", "2 + 2?")
    row = {"model_a": "m", "model_b": "n", "winner": "model_b", "judge": "ann", "turn": 1}
    talks = {"conversation_a": [ask, turn("assistant", "4")], "conversation_b": [ask, turn("assistant", "5")]}
    pairs = given(tmp_path, {**row, **talks}, {**row, **talks, "winner": "tie", "judge": None}).pairs
    assert (pairs.prompts, pairs.first, pairs.second) == (["2 + 2?"], ["4"], ["5"])
    assert (pairs.votes.tolist(), pairs.raters) == ([[0.0, 0.5]], ("ann", "?"))


def test_votes_that_mean_nothing_are_counted_or_refused(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "output_1": "x", "output_2": "y", "label": value} for value in [1, 2] * 10 + ["garbage"]]
    found = given(tmp_path, *rows)
    assert "neither answer nor a tie, counted as none: 1" in said(found)
    assert np.isnan(found.pairs.votes[-1, 0])
    with pytest.raises(AttachError, match="'4' are neither answer"):
        given(tmp_path, *({**row, "label": 4} for row in rows))


def test_one_row_per_vote_becomes_items_by_raters(tmp_path: Path) -> None:
    row = {"prompt": "?", "completion_a": "x", "completion_b": "y"}
    turned = {"prompt": "?", "completion_a": "y", "completion_b": "x"}
    found = given(
        tmp_path,
        {**row, "preference": "a", "evaluator": "ann"},
        {**turned, "preference": "a", "evaluator": "bob"},
        {**row, "preference": "tie", "evaluator": "eve"},
        {**row, "preference": "b", "evaluator": "ann"},
        {**row, "prompt": "another", "preference": "b", "evaluator": "bob"},
    )
    assert found.pairs.raters == ("ann", "bob", "eve")
    np.testing.assert_array_equal(found.pairs.votes, [[1.0, 0.0, 0.5], [np.nan, 0.0, np.nan]])
    assert found.pairs.rows == [1, 5]
    assert "on the same item again, of which the first counts: 1 (1 not the same)" in said(found)
    assert "in the other order, turned round: 1" in said(found)
    assert not found.pairs.order_known


def test_judges_asked_in_both_orders(tmp_path: Path) -> None:
    row = {"subset": "s", "idx": 0, "judge": "big", "prompting": "plain", "label": 1}
    found = given(
        tmp_path,
        {**row, "winner_unswapped": 1, "winner_swapped": 1},
        {**row, "judge": "small", "winner_unswapped": 1, "winner_swapped": 2},
    )
    assert found.pairs.raters == ("big / plain", "small / plain")
    assert found.pairs.swapped is not None
    assert (found.pairs.votes.tolist(), found.pairs.swapped.tolist()) == ([[1.0, 1.0]], [[1.0, 0.0]])
    assert found.pairs.order_known
    assert "no texts" in said(found)


def test_judges_asked_in_both_orders_about_answers_that_stand_the_other_way_round(tmp_path: Path) -> None:
    """Both judges prefer whatever is shown first."""
    votes = {"winner_unswapped": 1, "winner_swapped": 2}
    rows = [
        {"prompt": "?", "response_1": "x", "response_2": "y", "judge": "ann", **votes},
        {"prompt": "?", "response_1": "y", "response_2": "x", "judge": "bob", **votes},
    ]
    pairs = given(tmp_path, *rows).pairs
    assert pairs.swapped is not None and pairs.first == ["x"]
    assert (pairs.votes.tolist(), pairs.swapped.tolist()) == ([[1.0, 1.0]], [[0.0, 0.0]])


def test_votes_in_both_orders_are_said_to_tell_nothing_about_position(tmp_path: Path) -> None:
    rows = [
        {"prompt": "?", "first": "x", "second": "y", "rater": "ann", "vote": "first"},
        {"prompt": "?", "first": "y", "second": "x", "rater": "bob", "vote": "first"},
    ]
    reading = given(tmp_path, *rows)
    assert reading.pairs.votes.tolist() == [[1.0, 0.0]] and not reading.pairs.order_known
    assert "in both orders" in said(reading) and "--map first=" not in said(reading)


def test_a_map_names_what_names_do_not_tell(tmp_path: Path) -> None:
    row = {"q": "?", "left": "x", "right": "y", "who": "ann", "says": "right", "part": "dev", "l": 1, "r": 2}
    columns = {"prompt": "q", "first": "left", "second": "right", "rater": "who", "votes": "says", "split": "part"}
    found = given(tmp_path, row, {**row, "part": "test"}, **columns, first_quality="l", second_quality="r")
    assert found.pairs.votes.tolist() == [[0.0], [0.0]]
    assert found.pairs.splits == ["dev", "test"]
    assert found.pairs.order_known
    assert found.pairs.quality is not None
    assert found.pairs.quality.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert given(tmp_path, row, chosen="left", rejected="right", prompt="q").pairs.first == ["x"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"frist": "left"}, "not frist"),
        ({"first": "lft", "second": "right"}, "no column 'lft'"),
        ({"first": "left"}, "must name both"),
        ({}, "no votes that are recognised"),
        ({"chosen": "left", "rejected": "right", "first": "left", "second": "right"}, "not both"),
        ({"first": "left", "second": "right", "votes": "v", "answers": "1"}, "answers must be"),
    ],
)
def test_a_map_that_cannot_work_says_why(tmp_path: Path, columns: dict[str, str], message: str) -> None:
    with pytest.raises(AttachError, match=message):
        given(tmp_path, {"left": "x", "right": "y", "v": 1}, **columns)


def test_rows_that_lack_an_answer_are_counted(tmp_path: Path) -> None:
    found = given(
        tmp_path,
        {"prompt": "?", "chosen": "x", "rejected": None},
        {"prompt": "?", "chosen": "", "rejected": "y"},
    )
    assert (len(found.pairs), found.left_out, found.pairs.rows) == (1, 1, [2])
    assert "rows left out because chosen or rejected is missing: 1" in said(found)
    with pytest.raises(AttachError, match="no row has both"):
        given(tmp_path, {"prompt": "?", "chosen": "x", "rejected": None})


def test_a_cell_that_is_not_a_number_is_a_missing_one(tmp_path: Path) -> None:
    nothing = float("nan")
    rows = [{"prompt": nothing, "chosen": "4", "rejected": "5"}, {"prompt": "a?", "chosen": "4", "rejected": nothing}]
    reading = given(tmp_path, *rows)
    assert (reading.pairs.prompts, reading.pairs.second, reading.left_out) == ([""], ["5"], 1)
    assert "each counts as a prompt of its own" in said(reading)


def test_messages_in_parts_say_what_their_texts_say(tmp_path: Path) -> None:
    def parts(role: str, text: str) -> list[dict[str, Any]]:
        return [{"role": role, "content": [{"type": "image"}, {"type": "text", "text": text}]}]

    row = {"prompt": parts("user", "2 + 2?"), "chosen": parts("assistant", "4"), "rejected": parts("assistant", "5")}
    pairs = given(tmp_path, row).pairs
    assert (pairs.prompts, pairs.first) == (["[image]\n2 + 2?"], ["[image]\n4"])


def test_what_a_file_has_is_kept_as_it_has_it(tmp_path: Path) -> None:
    asked, four, five = turn("user", "2 + 2?"), turn("assistant", "4"), turn("assistant", "5")
    assert given(tmp_path, {"chosen": [asked, four], "rejected": [asked, five]}).raw_rows == [
        {"first": [asked, four], "second": [asked, five]}
    ]


def test_a_mark_at_the_beginning_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    (tmp_path / "sheet.csv").write_text("prompt,chosen,rejected\n2 + 2?,4,5\n", "utf-8-sig")
    assert read_preferences(tmp_path / "sheet.csv").pairs.prompts == ["2 + 2?"]


def test_numbered_files_are_of_the_split_that_their_folder_is_called(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        write_rows(tmp_path / split / "0000.jsonl", [{"prompt": split, "chosen": "4", "rejected": "5"}])
    assert read_preferences(tmp_path).pairs.splits == ["test", "train"]


def test_the_splits_of_a_folder_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train", "test"):
        write_rows(folder / f"{name}.jsonl", [{"prompt": name, "chosen": "x", "rejected": "y"}] * 2)
    assert read_preferences(folder).pairs.splits == ["test", "test", "train", "train"]


def test_labels_without_answers_are_ratings(tmp_path: Path) -> None:
    row = {"batch": "b", "uid": 1, "worker": "ann", "answer": 2, "gold": 0}
    found = given(tmp_path, row, {**row, "worker": "bob", "answer": 0}, {**row, "uid": 2}, {**row, "answer": ""})
    assert found.labels is not None
    np.testing.assert_array_equal(found.labels.codes, [[1.0, 0.0], [1.0, np.nan]])
    assert (found.labels.categories, found.labels.items) == (("0", "2"), ("b / 1", "b / 2"))
    assert (len(found.pairs), found.left_out) == (0, 1)


def test_texts_are_not_taken_for_labels(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="no comparisons that are recognised"):
        given(tmp_path, *({"question": "?", "answer": str(at)} for at in range(60)))


def test_cells_of_a_csv_and_strange_characters(tmp_path: Path) -> None:
    text = "ناقص \ud800 \x00 🏳️‍🌈"
    found = given(tmp_path, {"prompt": text, "chosen": "é" * 100_000, "rejected": ""})
    assert found.pairs.prompts == [text]
    out = io.StringIO()
    table = csv.DictWriter(out, ["prompt", "output_1", "output_2", "label"])
    table.writeheader()
    table.writerows({"prompt": "?", "output_1": "x", "output_2": "y", "label": label} for label in ("1.0", "2.0", ""))
    (tmp_path / "pairs.csv").write_text(out.getvalue())
    np.testing.assert_array_equal(read_preferences(tmp_path / "pairs.csv").pairs.votes[:, 0], [1.0, 0.0, np.nan])


@shared
def test_real_files_are_recognised_without_a_map() -> None:
    sizes = {
        "pandalm_multi_rater/testset.jsonl.gz": (999, 3),
        "llmbar/pairs.jsonl.gz": (934, 1),
        "llmbar/judge_decisions.csv.gz": (934, 77),
        "tulu_human_eval/annotations.csv.gz": (996, 16),
        "hh_rlhf_harmless_filtered/pairs.jsonl.gz": (235, 1),
    }
    assert {name: read_preferences(DATA / name).pairs.votes.shape for name in sizes} == sizes


@shared
def test_files_without_comparisons_are_refused_in_words() -> None:
    for name in ("gsm8k/test.jsonl.gz", "hh_rlhf_harmless_filtered/all_pair_stats.csv.gz"):
        with pytest.raises(AttachError, match="--map"):
            read_preferences(DATA / name)
