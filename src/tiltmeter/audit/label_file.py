"""Reads a file of gold labels and joins them to rollouts by their text, or by step and row."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq

from tiltmeter.data.batches import plain_text, with_gold
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.decoded_size import rows_at_once

SUFFIXES = (".csv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz")
LONGEST = 1 << 24  # characters of one cell
NEEDED = "`completion` (and `prompt`, where an answer may occur twice), or `step` and `row`"


@dataclass(frozen=True)
class GoldLabels:
    """Gold by rollout: by the text of prompt and completion, by the completion alone, or by step and row.

    A label is a number from 0 to 1 from a judge that training never sees. Rows without a label are missing, not 0.

    >>> labels = {GoldLabels.key("p", "c"): 1.0}
    >>> GoldLabels("x", labels).lookup("p", "c", 0, 0), GoldLabels("x", {}).lookup("p", "c", 0, 0)
    (1.0, None)
    """

    name: str
    gold: Mapping[bytes, float]
    digest: str = ""  # of the file

    @staticmethod
    def key(*parts: object) -> bytes:
        text = json.dumps(parts, ensure_ascii=False)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()

    def lookup(self, prompt: str | None, completion: str | None, step: int, row: int) -> float | None:
        for key in (self.key(prompt, completion), self.key(completion), self.key(int(step), int(row))):
            if key in self.gold:
                return self.gold[key]
        return None

    def add_gold(self, batch: RolloutBatch) -> RolloutBatch:
        """The batch with these labels as its gold. Rows count from 0 in the order in which they were written."""
        return with_gold(batch, list(self._row_labels(batch)))

    def count(self, batch: RolloutBatch) -> int:
        return sum(label is not None for label in self._row_labels(batch))

    def _row_labels(self, batch: RolloutBatch) -> Iterator[float | None]:
        none = (None,) * len(batch)
        for row, pair in enumerate(zip(batch.prompt or none, batch.completion or none, strict=True)):
            yield self.lookup(*pair, batch.step, row)


def read_labels(path: Path) -> GoldLabels:
    """The labels in a CSV, JSONL or Parquet file. Raises `StoreError`, with the fix, for one that cannot be joined."""
    if not path.name.endswith(SUFFIXES):
        raise StoreError(f"{path}: a labels file is one of {', '.join(SUFFIXES)}")
    labels: dict[bytes, float] = {}
    try:
        for number, row in enumerate(table_rows(path), start=1):
            value = row.get("gold")
            if value is None or value == "" or math.isnan(gold := float(value)):
                continue
            if not 0.0 <= gold <= 1.0:
                raise StoreError(f"{path}, row {number}: gold is {gold}; labels go from 0 to 1: rescale them")
            key = _key(row, path, number)
            if labels.setdefault(key, gold) != gold:
                raise StoreError(
                    f"{path}, row {number}: this rollout has another label before; keep one, or give prompts"
                )
    except (OSError, ValueError, TypeError, OverflowError, RecursionError, EOFError, csv.Error, zlib.error) as error:
        raise StoreError(f"{path} cannot be read as labels: {type(error).__name__}: {str(error)[:200]}") from error
    if not labels:
        raise StoreError(f"{path} has no labels: it needs a column `gold` from 0 to 1, and {NEEDED}")
    return GoldLabels(path.name, labels, blake2b(path.read_bytes(), digest_size=12).hexdigest())


def _key(row: Mapping[str, Any], path: Path, number: int) -> bytes:
    if row.get("completion") is not None:
        completion = plain_text(row["completion"])
        return (
            GoldLabels.key(plain_text(row["prompt"]), completion) if row.get("prompt") else GoldLabels.key(completion)
        )
    if row.get("step") not in (None, "") and row.get("row") not in (None, ""):
        return GoldLabels.key(int(row["step"]), int(row["row"]))
    raise StoreError(f"{path}, row {number}: nothing says which rollout it labels: give {NEEDED}")


def table_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a CSV, JSONL or Parquet file, one by one."""
    if path.name.endswith(".parquet"):
        table = pq.ParquetFile(path)
        for batch in table.iter_batches(rows_at_once(path, table)):
            yield from batch.to_pylist()
        return
    with _open_text(path) as lines:
        if ".csv" in path.name:
            before = csv.field_size_limit(LONGEST)  # of the whole process: others read tables too
            try:
                yield from csv.DictReader(lines)
            finally:
                csv.field_size_limit(before)
            return
        for line in lines:
            if line.strip():
                row = json.loads(line)
                yield row if isinstance(row, dict) else {}


def _open_text(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("r", encoding="utf-8-sig", newline="")  # spreadsheets put a mark before the first column
