"""Tables beside a run are read by the ending of their names, and what cannot be read is said with the fix."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows, read_splits, write_rows

ROWS = [{"prompt": "2 + 2?", "chosen": "4"}, {"prompt": "é\u2028", "chosen": "\ud83d"}]


def test_each_form_gives_the_same_rows(tmp_path: Path) -> None:
    plain = [{"prompt": "2 + 2?", "chosen": "4"}, {"prompt": "é", "chosen": "a,\n b"}]
    lines = "".join(json.dumps(row) + "\n" for row in plain)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.json").write_text(json.dumps(plain))
    (tmp_path / "d.csv").write_text('prompt,chosen\n2 + 2?,4\né,"a,\n b"\n')
    pq.write_table(pa.Table.from_pylist(plain), tmp_path / "e.parquet")
    for file in sorted(tmp_path.iterdir()):
        assert read_rows(file) == plain, file.name


@pytest.mark.parametrize("name", ["bomb.parquet", "bomb.jsonl.gz"])
def test_a_small_file_that_would_fill_memory_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(b" " * (200 << 20), 1))
    else:
        pq.write_table(pa.table({"prompt": ["x" * (1 << 20)] * 400}), path, compression="zstd")
    assert path.stat().st_size < 3 << 20
    with pytest.raises(AttachError, match="beyond the limit"):
        read_rows(path)


def test_what_is_written_is_read_back_whatever_a_model_wrote(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", ROWS)
    assert read_rows(tmp_path / "a.jsonl") == ROWS


def test_a_folder_of_datasets_keeps_its_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    kept = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list([{"a": 1}, {"a": 2}]), "test": datasets.Dataset.from_list([{"a": 3}])}
    )
    kept.save_to_disk(str(tmp_path / "both"))
    assert read_splits(tmp_path / "both") == {"train": [{"a": 1}, {"a": 2}], "test": [{"a": 3}]}
    kept["train"].save_to_disk(str(tmp_path / "one"))
    assert read_splits(tmp_path / "one") == {"": [{"a": 1}, {"a": 2}]}


def test_shards_of_a_hub_are_one_split(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for shard in range(2):
        table = pa.table({"a": [shard]})
        pq.write_table(table, tmp_path / "data" / f"train-{shard:05d}-of-00002.parquet")
    (tmp_path / "data" / "test.jsonl").write_text('{"a": 9}\n')
    (tmp_path / "dataset_infos.json").write_text("{}")
    assert read_splits(tmp_path) == {"test": [{"a": 9}], "train": [{"a": 0}, {"a": 1}]}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", "x", "must end in"),
        ("a.jsonl", "{", "not what its name says"),
        ("a.jsonl", "", "has no rows; one looks like ROW"),
        ("a.jsonl", "[1]\n", "has no rows"),
        ("a.parquet", "x", "not what its name says"),
        ("a.jsonl.gz", "x", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AttachError, match=told):
        read_rows(tmp_path / name, "ROW")
    with pytest.raises(AttachError, match="cannot be read"):
        read_rows(tmp_path / "absent.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AttachError, match="holds no table"):
        read_rows(tmp_path / "empty")
