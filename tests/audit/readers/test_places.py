"""Where files lie, what JSON lines may hold, and that no folder, however large, costs more than its names."""

from __future__ import annotations

import gzip
import json
import random
import time
from pathlib import Path

import pytest

from tiltmeter.audit.readers import folders, jsonl
from tiltmeter.audit.readers.described import AREAL, NEMO, OPEN_INSTRUCT, SKYRL
from tiltmeter.audit.readers.external_run import FormatReader, ReadOptions
from tiltmeter.audit.readers.folders import StepFiles, bundle_steps, list_folders, pickle_refusal
from tiltmeter.audit.readers.table_files import TableFile
from tiltmeter.audit.readers.trl import TrlReader
from tiltmeter.audit.readers.verifiers import VerifiersReader
from tiltmeter.audit.readers.verl import VerlReader
from tiltmeter.errors import StoreError

READERS: tuple[FormatReader, ...] = (
    TrlReader(),
    VerlReader(),
    VerifiersReader(),
    NEMO,
    SKYRL,
    OPEN_INSTRUCT,
    AREAL,
)


def test_a_line_too_many_brackets_deep_or_a_number_of_5000_digits_is_told_from_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": ' + "9" * 5000 + '}\n{"a": NaN, "b": -Infinity}\n')
    read = list(jsonl.read_rows(path))
    assert read[0]["a"] == float("inf") and read[1]["a"] != read[1]["a"]
    for damage in ('{"a": ' + "[" * 100_000, "[1]", "null", "{'a': 1}", '{"a": 1} trailing', "\ufeff{", "\x00"):
        path.write_text('{"a": 1}\n' + damage + '\n{"a": 2}\n')
        with pytest.raises(StoreError, match=r"a[.]jsonl: line 2 is not a JSON object.*mend or remove"):
            list(jsonl.read_rows(path))
    path.write_bytes(b'{"a": 1}\n{"a": "\xff\xfe"}\n')
    with pytest.raises(StoreError, match="line 2"):
        list(jsonl.read_rows(path))


def test_a_last_line_without_a_line_break_counts_if_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}')
    assert len(list(jsonl.read_rows(path))) == 2 and not jsonl.unfinished(path)
    path.write_text('{"a": 1}\n{"a": ')
    assert jsonl.unfinished(path) and len(list(jsonl.read_rows(path, growing=True))) == 1
    with pytest.raises(StoreError, match="the last, is cut off"):
        list(jsonl.read_rows(path))


def test_a_small_packed_file_that_unpacks_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "FILE_LIMIT", 1 << 20)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 500_000))
    assert path.stat().st_size < 50_000
    with pytest.raises(StoreError, match="unpacked"):
        list(jsonl.read_rows(path))


@pytest.mark.parametrize("value", [-1, 1.5, None, "3", True, float("nan"), 2**60])
def test_a_step_is_a_whole_number(tmp_path: Path, value: object) -> None:
    with pytest.raises(StoreError, match="step"):
        jsonl.step_of({"step": value}, tmp_path)


def test_pieces_hold_every_step_once_and_in_order() -> None:
    steps = [StepFiles(step, (Path(f"{step}"),), 10 << 20) for step in range(50)]
    pieces = bundle_steps(steps)
    assert [step for piece in pieces for step in piece.steps] == list(range(50))
    assert all(piece.size <= 50 << 20 for piece in pieces) and len(pieces) > 5
    assert bundle_steps([]) == ()


def test_folders_of_one_step_are_not_walked_and_too_many_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/rollouts/step_1/train", "a/checkpoint-5", ".git/objects", "b/global_step_3_evals"):
        (tmp_path / name).mkdir(parents=True)
    found = {place.folder.relative_to(tmp_path).as_posix() for place in list_folders(tmp_path)}
    assert found == {".", "a", "a/rollouts", "b"}
    monkeypatch.setattr(folders, "FOLDERS", 3)
    with pytest.raises(StoreError, match="more than 3 folders; name the run's own folder"):
        list_folders(tmp_path)


@pytest.mark.parametrize("name", ["global_step_3_training_input.pkl", "rollout_5.pt", "dump.pth", "pytorch_model.bin"])
def test_pickles_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / "dumped_data").mkdir()
    file = tmp_path / "dumped_data" / name
    file.write_bytes(b"\x80\x04K\x01.")
    for path in (tmp_path, file):
        assert all(reader.find(path, ReadOptions()) == [] for reader in READERS)
        assert (
            name in pickle_refusal(path)
            and "runs whatever code" in pickle_refusal(path)
            and "JSON lines or Parquet" in pickle_refusal(path)
        )
    assert pickle_refusal(tmp_path / "absent") == ""


def test_every_reader_leaves_an_empty_folder_and_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n')
    (tmp_path / "log.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollout").mkdir()
    for reader in READERS:
        assert reader.find(tmp_path, ReadOptions()) == []


def test_each_reader_says_what_it_leaves_to_another(tmp_path: Path) -> None:
    verl = tmp_path / "dump"
    verl.mkdir()
    (verl / "1.jsonl").write_text(json.dumps({"input": "q", "output": "a", "score": 1.0, "step": 1}) + "\n")
    (tmp_path / "train_data_step1.jsonl").write_text(json.dumps({"content": ["x"], "rewards": [1.0]}) + "\n")
    for reader, other in ((VerlReader(), "nemo"), (NEMO, "verl")):
        (run,) = reader.find(tmp_path, ReadOptions())
        assert any(f"--format {other}" in line for line in run.notes)


def test_a_folder_of_many_steps_is_found_by_its_names(tmp_path: Path) -> None:
    line = json.dumps({"input": "q", "output": "a", "score": 1.0, "step": 1, "uid": "a_0_0"}) + "\n"
    folder = tmp_path / "rollouts"
    folder.mkdir()
    for step in range(20_000):
        (folder / f"{step}.jsonl").touch()
    for step in (0, 1, 19_999):
        (folder / f"{step}.jsonl").write_text(line)
    opened: list[Path] = []
    real = TableFile.lines

    def watched(table: TableFile) -> object:
        opened.append(table.path)
        return real(table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableFile, "lines", watched)
        began = time.perf_counter()
        (run,) = VerlReader().find(tmp_path, ReadOptions())
        assert time.perf_counter() - began < 20.0
    assert sum(len(piece.steps) for piece in run.pieces) == 20_000
    assert len(opened) < 10


def test_whatever_is_broken_in_a_file_only_a_store_error_comes_out(tmp_path: Path) -> None:
    """Bytes of good files are changed at random; every reader must answer or name the file."""
    made = Path(__file__).parent / "fixtures" / "verl-0.9.1" / "v0"
    good = {
        "dump/rollouts/1.jsonl": (made / "rollouts/1.jsonl").read_bytes(),
        "dump/validation/1.jsonl": (made / "validation/1.jsonl").read_bytes(),
        "prime/rollouts/step_1/train/all/traces.jsonl": json.dumps(
            {
                "id": "a",
                "env": {"name": "e"},
                "task": {"key": "k"},
                "group": {"id": "g"},
                "traces": [
                    {
                        "nodes": [{"sampled": True, "message": {"content": "x"}, "token_ids": [1], "mask": [True]}],
                        "rewards": {"r": {"score": 1.0, "weight": 1.0}},
                    }
                ],
            }
        ).encode(),
        "nemo/train_data_step1.jsonl": b'{"content": ["x"], "rewards": [1.0], "token_ids": [[1]]}\n',
        "oi/r_rollouts_000000.jsonl": b'{"step": 1, "prompt_idx": 0, "reward": 1.0, "response_tokens": [1]}\n',
        "areal/rollout/1/2.jsonl": b'{"task_id": "2", "reward": 1.0, "completion": "x", "seqlen": 3}\n',
        "trl/trainer_state.json": b'{"log_history": [{"step": 1, "loss": 0.5}], "global_step": 1}',
    }
    random_ = random.Random(7)
    answered = 0
    for round_ in range(120):
        home = tmp_path / str(round_)
        for name, data in good.items():
            changed = bytearray(data)
            for _ in range(random_.choice([0, 1, 3, 12])):
                changed[random_.randrange(len(changed))] = random_.choice(b'{}[]",:0e.\\tnul\xff\x00\n-')
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                bytes(changed[: random_.choice([len(changed), len(changed), random_.randrange(len(changed))])])
            )
        for reader in READERS:
            for folder in sorted(home.iterdir()):
                try:
                    for run in reader.find(folder, ReadOptions()):
                        for piece in run.pieces:
                            answered += sum(1 for _ in reader.read(run, piece))
                except StoreError as error:
                    assert str(tmp_path) in str(error)
    assert answered > 100


def test_the_files_of_a_tracker_beside_the_rollouts_are_said(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1.host.0").write_bytes(b"")
    state = {"global_step": 1, "log_history": [{"step": 1, "loss": 1.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (run,) = TrlReader().find(tmp_path, ReadOptions())
    assert any("tracker's files" in line and "--format tensorboard" in line for line in run.notes)
