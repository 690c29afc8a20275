"""`tiltmeter data preferences` on small files whose biases are known, because they were written here."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows, write_rows

WORDS = ("river", "stone", "window", "letter", "garden", "winter", "bridge", "market", "summer", "engine", "valley")
HOSTILE = "</td><script>alert(1)</script>\x1b[2J\u202e=1+1"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "preferences", *map(str, arguments)])


def text(rng: random.Random, words: int, known: Sequence[str] = WORDS) -> str:
    return " ".join(rng.choice(known) for _ in range(words)) + "."


def written(path: Path, n: int, longer: float, seed: int = 0, prefix: str = "question") -> Path:
    """Pairs in TRL's form in which the longer answer is chosen with chance `longer`."""
    rng = random.Random(f"{seed}/{path.name}")
    rows = []
    for number in range(n):
        short, long = text(rng, rng.randint(8, 20)), text(rng, rng.randint(21, 60))
        chosen, rejected = (long, short) if rng.random() < longer else (short, long)
        rows.append({"prompt": f"{prefix} {number}: {text(rng, 6)}", "chosen": chosen, "rejected": rejected})
    write_rows(path, rows)
    return path


@pytest.fixture
def long(tmp_path: Path) -> Path:
    return written(tmp_path / "long.jsonl", 300, 0.9)


def said(result: Result) -> str:
    """What a refusal says, without the frame around it."""
    return re.sub(r"[│\s]+", " ", result.stderr)


def told(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def state(found: dict[str, Any], name: str) -> str:
    return str(next(each["state"] for each in found["findings"] if each["name"] == name))


def test_labels_that_say_the_longer_one_are_found_in_every_form(long: Path, tmp_path: Path) -> None:
    page, notes = tmp_path / "r.html", tmp_path / "r.md"
    shown = run(long, "--html", page, "--md", notes)
    assert shown.exit_code == 1, shown.output
    assert shown.stdout.startswith("FOUND")
    for part in ("length", "●", "What to do", "What was read", "chosen and rejected"):
        assert part in shown.stdout
    machine = run(long, "--json")
    assert machine.exit_code == 1
    found = told(machine)
    assert found["state"] == "found" and state(found, "length") == state(found, "shallow") == "found"
    assert re.match(r"\d\d % of the labels are predicted by length", found["headline"])
    assert page.read_text("utf-8").startswith("<!doctype html>") and "<svg" in page.read_text("utf-8")
    assert notes.read_text("utf-8").startswith("## Found: ")


def test_labels_that_do_not_care_for_length_are_cleared_of_it(tmp_path: Path) -> None:
    found = told(run(written(tmp_path / "fair.jsonl", 2000, 0.5), "--json"))
    assert state(found, "length") == "clear" and state(found, "shallow") == "clear"
    assert not [each["name"] for each in found["findings"] if each["state"] == "found"]
    assert found["exit_code"] == 0


def test_rows_that_could_not_be_used_are_counted_and_told(tmp_path: Path) -> None:
    path = written(tmp_path / "some.jsonl", 40, 0.5)
    write_rows(path, [*read_rows(path), {"prompt": "x", "chosen": "y", "rejected": None}])
    found = told(run(path, "--json"))
    assert (found["items"], found["left_out"]) == (40, 1)
    assert any("left out" in line for line in found["read"])


def test_a_few_comparisons_are_not_judged(tmp_path: Path) -> None:
    small = run(written(tmp_path / "few.jsonl", 5, 1.0))
    assert small.exit_code == 2 and small.stdout.startswith("CANNOT TELL")


def test_two_files_are_two_splits_and_copies_between_them_are_seen(tmp_path: Path) -> None:
    train = written(tmp_path / "train.jsonl", 80, 0.5)
    clean = written(tmp_path / "test.jsonl", 80, 0.5, prefix="another question")
    assert state(told(run(train, clean, "--json")), "copies") != "found"
    write_rows(clean, [*read_rows(clean), *read_rows(train)[:20]])
    leaked = told(run(train, clean, "--json"))
    assert leaked["source"] == "train, test" and leaked["items"] == 180
    assert state(leaked, "copies") == "found" and leaked["exit_code"] == 1


def test_the_balanced_subset_and_the_review_queue_are_written_as_trl_reads_them(long: Path, tmp_path: Path) -> None:
    kept, again = tmp_path / "kept.jsonl", tmp_path / "again.jsonl"
    result = run(long, "--balanced", kept, "--review", again)
    assert result.exit_code == 1, result.output
    assert "kept.jsonl: " in result.stderr and "again.jsonl: " in result.stderr
    rows = read_rows(kept)
    assert 0 < len(rows) < 300 and all(list(row) == ["prompt", "chosen", "rejected"] for row in rows)
    longer = sum(len(row["chosen"]) > len(row["rejected"]) for row in rows) / len(rows)
    assert abs(longer - 0.5) < 0.1
    assert {"prompt", "chosen", "rejected"} <= set(read_rows(again)[0])
    # What was balanced is no longer found to be long.
    assert state(told(run(kept, "--json")), "length") != "found"


def test_a_balanced_subset_of_conversations_has_conversations(long: Path, tmp_path: Path) -> None:
    def turn(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    rows = [
        {"prompt": [turn("system", "Be brief."), turn("user", row["prompt"])]}
        | {side: [turn("assistant", row[side])] for side in ("chosen", "rejected")}
        for row in read_rows(long)
    ]
    write_rows(tmp_path / "chat.jsonl", rows)
    assert run(tmp_path / "chat.jsonl", "--most", 200, "--balanced", tmp_path / "kept.jsonl").exit_code == 1
    kept = read_rows(tmp_path / "kept.jsonl")
    assert kept and all(row in rows for row in kept)


def test_a_balanced_subset_of_several_splits_names_them(long: Path, tmp_path: Path) -> None:
    test = written(tmp_path / "test.jsonl", 60, 0.7, prefix="other")
    result = run(long, test, "--balanced", tmp_path / "kept.jsonl")
    assert {row["split"] for row in read_rows(tmp_path / "kept.jsonl")} == {"long", "test"}
    assert "do not train on all of them" in result.stderr


def test_nothing_is_written_over_what_is_read_or_written(long: Path, tmp_path: Path) -> None:
    before = long.read_bytes()
    folder = tmp_path / "data"
    folder.mkdir()
    written(folder / "train.jsonl", 40, 0.5)
    for arguments in (
        (long, "--balanced", long),
        (long, "--html", tmp_path / "data" / ".." / long.name),
        (folder, "--review", folder / "again.jsonl"),
        (long, "--md", tmp_path / "r", "--html", tmp_path / "r"),
    ):
        refused = run(*arguments)
        assert refused.exit_code == 2 and "give another" in said(refused), refused.output
    assert long.read_bytes() == before and not (tmp_path / "r").exists()


def test_pairs_without_prompts_are_judged_each_by_itself(long: Path, tmp_path: Path) -> None:
    bare = [{side: row[side] for side in ("chosen", "rejected")} for row in read_rows(long)]
    write_rows(tmp_path / "bare.jsonl", bare)
    assert state(told(run(tmp_path / "bare.jsonl", "--json")), "length") == "found"


def test_columns_of_other_names_are_mapped_and_a_wrong_map_says_the_names(tmp_path: Path) -> None:
    rows = [
        {"q": f"{number}?", "left": f"one {number}", "right": f"two {number}", "ann": 1, "bob": 2, "eve": 1}
        for number in range(40)
    ]
    write_rows(tmp_path / "votes.jsonl", rows)
    names = "prompt=q,first=left,second=right,votes=ann+bob+eve"
    assert told(run(tmp_path / "votes.jsonl", "--map", names, "--json"))["raters"] == 3
    commas = ("--map", "prompt=q,first=left,second=right", "--map", "votes=ann,bob")
    assert told(run(tmp_path / "votes.jsonl", *commas, "--json"))["raters"] == 2
    for given, expected in (("question=q", "the names are"), ("prompt", "form name=column"), ("prompt=", "form name=")):
        wrong = run(tmp_path / "votes.jsonl", "--map", given)
        assert wrong.exit_code == 2 and expected in said(wrong), wrong.stderr


def test_wrong_usage_says_what_to_give(tmp_path: Path, long: Path) -> None:
    nothing = run()
    assert nothing.exit_code == 2 and "--guide" in said(nothing)
    assert run(long, "--seed", "-1").exit_code == 2
    no_model = run(long, "--base", tmp_path / "none")
    assert no_model.exit_code == 2 and "--base" in said(no_model) and "no model" in said(no_model)
    with pytest.raises(AttachError, match="cannot be read"):
        CliRunner().invoke(app, ["data", "preferences", str(tmp_path / "gone.jsonl")], catch_exceptions=False)
    with pytest.raises(AttachError, match="cannot be written"):
        CliRunner().invoke(
            app, ["data", "preferences", str(long), "--html", str(tmp_path / "no" / "r.html")], catch_exceptions=False
        )


def test_a_part_is_drawn_by_seed_and_said(long: Path) -> None:
    first, again = told(run(long, "--most", 100, "--json")), told(run(long, "--most", 100, "--json"))
    other = told(run(long, "--most", 100, "--seed", 7, "--json"))
    assert first == again and first["items"] == 100 and other["findings"] != first["findings"]
    assert any("100 of 300 comparisons" in line for line in first["read"])


def test_the_guide_is_printed_alone_and_says_what_matters() -> None:
    result = run("--guide")
    assert result.exit_code == 0
    for part in ("Helpful", "Honest", "Harmless", "Coherent", "Three raters or more", "at random", "Tie", "expert",
                 "Never drop it silently", "Length is no merit", "Calibration", "How many"):  # fmt: skip
        assert part in result.stdout


def test_hostile_text_in_a_csv_file_acts_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "chosen", "rejected"])
        rng = random.Random(1)
        for number in range(120):
            table.writerow([f"{HOSTILE} {number}", f"{HOSTILE} {text(rng, 40)}", f"{HOSTILE} {text(rng, 5)}"])
    page, notes, again = tmp_path / "r.html", tmp_path / "r.md", tmp_path / "again.jsonl"
    shown = run(path, "--html", page, "--md", notes, "--review", again, "--balanced", tmp_path / "b.jsonl")
    assert shown.exit_code == 1
    for made in (shown.stdout, page.read_text("utf-8"), notes.read_text("utf-8"), again.read_text("ascii")):
        assert "\x1b" not in made and "\u202e" not in made
    assert "<script" not in page.read_text("utf-8")
    assert read_rows(again)[0]["prompt"].startswith(HOSTILE)  # whole again for whoever reads it


def test_labels_without_answers_are_judged_by_agreement_alone(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = []
    for item in range(60):
        truth = rng.choice(["good", "bad"])
        for rater in ("ann", "bob", "eve"):
            given = truth if rng.random() < 0.9 else rng.choice(["good", "bad"])
            rows.append({"item": item, "rater": rater, "label": given})
    write_rows(tmp_path / "labels.jsonl", rows)
    found = told(run(tmp_path / "labels.jsonl", "--json"))
    assert [each["name"] for each in found["findings"]] == ["agreement", "raters", "groups"]
    assert found["items"] == 60 and found["findings"][0]["estimate"] > 0.5
    refused = run(tmp_path / "labels.jsonl", "--balanced", tmp_path / "b.jsonl")
    assert refused.exit_code == 2 and "no two answers" in said(refused)


def test_a_base_model_is_asked_about_typicality(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="a language model is read by transformers")
    transformers = pytest.importorskip("transformers", reason="a language model is read by transformers")
    from tiltmeter_lab.tiny.model import tokenizer

    language = tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        size = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = transformers.LlamaConfig(
            vocab_size=len(language), max_position_embeddings=128, bos_token_id=None, **size
        )
        transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    language.save_pretrained(tmp_path / "base")
    rng = random.Random(0)
    known = sorted(word for word in language.get_vocab() if word.isalpha())
    answers = [[text(rng, rng.randint(3, 9), known) for _ in range(2)] for _ in range(60)]
    rows = [{"prompt": f"{number}?", "chosen": a, "rejected": b} for number, (a, b) in enumerate(answers)]
    write_rows(tmp_path / "toy.jsonl", rows)
    shown = run(tmp_path / "toy.jsonl", "--base", tmp_path / "base", "--balanced", tmp_path / "even.jsonl", "--json")
    assert "; the likelier one at equal length in" in said(shown) and (tmp_path / "even.jsonl").stat().st_size
    found = told(shown)
    (asked,) = [each for each in found["findings"] if each["name"] == "typicality"]
    assert asked["state"] != "not asked" and asked["estimate"] is not None and asked["low"] < asked["high"]
