"""Constitutions, prompts and ledgers: what is read, what is refused, and what a crash leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.constitution.item_log import ItemLog, lock_folder
from tiltmeter_workbench.constitution.principles import COMPARE, EXAMPLE, read_constitution
from tiltmeter_workbench.constitution.prompts import read_prompts

SHARED = Path(__file__).parents[5] / "shared" / "data" / "constitutions" / "principles.jsonl.gz"


def saved(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_ours_has_eight_principles_that_ask_for_all_three_things() -> None:
    ours = read_constitution()
    assert len(ours.principles) == 8
    assert all(principle.critique and principle.revise for principle in ours.principles)
    assert all(principle.compare.startswith("Which answer") for principle in ours.principles)
    assert {"helpful", "honest", "harmless", "not_sycophantic", "not_verbose"} < {one.name for one in ours.principles}


def test_another_wording_is_another_constitution(tmp_path: Path) -> None:
    one = read_constitution(saved(tmp_path / "a.toml", EXAMPLE))
    other = read_constitution(saved(tmp_path / "b.toml", EXAMPLE.replace("false or invented", "false")))
    assert one.mark != other.mark
    assert one == read_constitution(tmp_path / "a.toml")


def test_a_principle_is_drawn_by_the_item_alone_and_all_have_their_turn() -> None:
    ours = read_constitution()
    drawn = [ours.draw_principle(0, "revision", f"item {number}", 1).name for number in range(400)]
    assert drawn == [ours.draw_principle(0, "revision", f"item {number}", 1).name for number in range(400)]
    counts = [drawn.count(principle.name) for principle in ours.principles]
    assert min(counts) > 20, counts
    assert drawn != [ours.draw_principle(1, "revision", f"item {number}", 1).name for number in range(400)]


@pytest.mark.skipif(not SHARED.exists(), reason=f"the public constitutions are not at {SHARED}")
def test_critic_and_revision_as_others_write_them_are_read() -> None:
    found = read_constitution(SHARED)
    assert len(found.principles) > 10
    first = found.principles[0]
    assert first.name == "anthropic-0"
    assert first.critique.startswith("Did the response include anything")
    assert first.revise.startswith("Please rewrite the response")
    assert first.compare == COMPARE.format(critique=first.critique)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[principles]", "not TOML.*looks like this"),
        ("a = 1\n", "holds .*principles.* and nothing else"),
        ("principles = []\n", "nothing else"),
        (EXAMPLE.replace("revise =", "revis ="), "principle 1 has no revise"),
        (EXAMPLE.replace('"Say which claims of the last answer are false or invented."', '" "'), "has no critique"),
        (EXAMPLE * 2, "'honest' stands there twice"),
        ("principles = [1]\n", "principle 1 is no table"),
    ],
)
def test_what_is_no_constitution_is_refused_with_the_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AttachError, match=f"(?s){message}"):
        read_constitution(saved(tmp_path / "c.toml", text))
    with pytest.raises(AttachError, match="cannot be read"):
        read_constitution(tmp_path / "none.toml")


def test_prompts_are_texts_or_messages_and_the_same_one_is_asked_once(tmp_path: Path) -> None:
    rows = [{"prompt": "a"}, {"prompt": [{"role": "user", "content": "b"}]}, {"prompt": "a", "more": 1}]
    found, twice = read_prompts(saved(tmp_path / "p.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert ([prompt.text for prompt in found], twice) == (["a", "b"], 1)
    assert found[0].id == "ac8d8342bbb2", "a name that depends on the text alone: files of another day fit"
    lines, _ = read_prompts(saved(tmp_path / "p.txt", "a\n\nb\n"))
    assert [prompt.content for prompt in lines] == ["a", "b"]
    assert lines[0].id == found[0].id


@pytest.mark.parametrize(
    "row",
    [{"prompt": ""}, {"prompt": 3}, {"prompt": []}, {"prompt": [{"role": "assistant", "content": "x"}]},
     {"prompt": [{"role": "nobody", "content": "x"}]}, {"question": "x"}],
)  # fmt: skip
def test_what_is_no_prompt_is_refused(tmp_path: Path, row: dict[str, object]) -> None:
    with pytest.raises(AttachError, match="prompt"):
        read_prompts(saved(tmp_path / "p.jsonl", json.dumps(row) + "\n"))


def test_a_line_that_is_there_is_kept_and_a_torn_one_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    ledger = ItemLog(path)
    ledger.add({"id": "a", "text": "one\n\u2028\x1b[2J"})
    ledger.add({"id": "b", "text": "two"})
    ledger.close()
    whole = path.read_bytes()
    assert whole.isascii()
    for cut in range(1, len(whole) - whole.index(b"\n") - 1):
        path.write_bytes(whole[: len(whole) - cut])
        again = ItemLog(path)
        assert list(again.rows) == ["a"], cut
        again.add({"id": "b", "text": "two"})
        again.close()
        assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_named_and_not_skipped(tmp_path: Path) -> None:
    path = saved(tmp_path / "answers.jsonl", '{"id": "a"}\n{"id": \n{"id": "c"}\n')
    with pytest.raises(AttachError, match="line 2, is damaged"):
        ItemLog(path)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(AttachError, match="another process"), lock_folder(tmp_path):
        raise AssertionError("the second one came in")
    with lock_folder(tmp_path):
        assert (tmp_path / ".lock").exists()
