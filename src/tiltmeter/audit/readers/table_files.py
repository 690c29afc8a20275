"""Reads table files row by row: CSV or JSON lines, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from tiltmeter.data.rows import as_number
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

TableRow = dict[str, Any]

#: A longer line is no row of metrics or rollouts, and is not read into memory.
LINE_LIMIT = 256 << 20
#: Never loaded: loading a pickle runs code that its author put into it.
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
_KINDS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def file_kind(path: Path) -> str | None:
    """What a file is by its name: csv, jsonl or parquet; None for any other.

    >>> file_kind(Path("a/metrics.csv.gz")), file_kind(Path("notes.txt"))
    ('csv', None)
    """
    name = path.name.lower()
    return _KINDS.get(Path(name.removesuffix(".gz")).suffix)


def list_tables(path: Path, kinds: tuple[str, ...], excluded: Collection[str] = ()) -> list[Path]:
    """The file itself, or the files of a folder that are tables of these kinds, by name; numbers by their value.

    `excluded`: files of the folder that are left out. Names that begin with a dot are left out too.
    """
    if path.is_file():
        return [path] if file_kind(path) in kinds else []
    skipped = {Path(name).resolve() for name in excluded}
    named = [item for item in path.iterdir() if not item.name.startswith(".")] if path.is_dir() else []
    files = [item for item in named if file_kind(item) in kinds and item.is_file()]
    return sorted((item for item in files if not skipped or item.resolve() not in skipped), key=natural_key)


def refuse_copies(files: Iterable[Path]) -> None:
    """Raises `StoreError` where a file lies beside its own packed copy: every row would count twice."""
    by_name: dict[str, Path] = {}
    for file in files:
        other = by_name.setdefault(str(file).removesuffix(".gz"), file)
        if other != file:
            raise StoreError(f"{other} and {file.name} hold the same rows twice: move one away")


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts `9.jsonl` before `10.jsonl`."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), 0, "") if part.isascii() and part.isdecimal() else (-1, 0, part) for part in parts]


def refuse_pickles(path: Path) -> None:
    """A pickle is refused, with the reason."""
    if path.is_file() and path.suffix.lower() in PICKLES:
        raise StoreError(
            f"{path}: a pickle is not read, because loading one runs code that its author put there; "
            "write the rows as JSON lines or Parquet"
        )


def number(cell: object) -> float | None:
    """The number in a cell, or None: an empty cell is absent, `nan` is a logged NaN.

    >>> number("1e-3"), number(""), number("12_000"), number(True), number(10**400)
    (0.001, None, None, 1.0, inf)
    """
    if isinstance(cell, str):
        if not cell or not cell.isascii() or "_" in cell:  # Python would read digits of any script, and 12_000
            return None
        try:
            return float(cell)
        except ValueError:
            return None
    return float(cell) if isinstance(cell, bool) else as_number(cell)


def flatten(row: TableRow) -> TableRow:
    """A row without nested objects: `{"a": {"b": 1}}` becomes `a/b`; keys under `data` get no prefix.

    >>> flatten({"step": 3, "data": {"actor/entropy": 1.5}, "a": {"b": {"c": 2}}})
    {'step': 3, 'actor/entropy': 1.5, 'a/b/c': 2}
    """
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    result: TableRow = {}
    for name, value in row.items():
        if not isinstance(value, dict):
            result[name] = value
        elif name == "data":
            result |= flatten(value)
        else:
            result |= {f"{name}/{inner}": deep for inner, deep in flatten(value).items()}
    return result


@dataclass
class TableFile:
    """One file of rows. `torn` is set where its last line is incomplete, as in a file that is still being written.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = path.write_text('{"step": 1}\\n{"step": 2}\\n{"ste')
    >>> table = TableFile(path)
    >>> [(line, row["step"]) for line, row in table.rows()], table.torn
    ([(1, 1), (2, 2)], True)
    """

    path: Path
    torn: bool = field(default=False, init=False)

    def rows(self) -> Iterator[tuple[int, TableRow]]:
        """Each row with the number of its line. Raises `StoreError` for a damaged file, with the line."""
        parsed_rows = self._csv() if file_kind(self.path) == "csv" else self._jsonl()
        try:
            yield from parsed_rows
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise StoreError(f"{self.path}: the gzip file is damaged or cut short ({error}); copy it again") from error
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.path}: this is not UTF-8 text ({error}); write it as UTF-8") from error
        except OSError as error:
            raise StoreError(f"{self.path}: it could not be read: {error}") from error

    def columns(self, first: int = 50) -> list[str]:
        """Names of the columns, as far as the first rows show them."""
        names: dict[str, None] = {}
        for (_, row), _ in zip(self.rows(), range(first), strict=False):
            names |= dict.fromkeys(flatten(row))
        return list(names)

    def _open(self) -> IO[bytes]:
        if self.path.name.lower().endswith(".gz"):
            return cast(IO[bytes], gzip.open(self.path, "rb"))
        return self.path.open("rb")

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line with its number, line break kept."""
        with self._open() as stream:
            count = 0
            while line := stream.readline(LINE_LIMIT):
                count += 1
                if len(line) == LINE_LIMIT:
                    raise StoreError(f"{self.path}:{count}: a line of more than {LINE_LIMIT >> 20} MB is no row")
                yield count, line

    def _jsonl(self) -> Iterator[tuple[int, TableRow]]:
        for count, line in self.lines():
            if not line.strip():
                continue
            row = self.row(count, line)
            if row is not None:
                yield count, row

    def row(self, count: int, line: bytes) -> TableRow | None:
        """A line of JSON as a row; None for a last line that is cut short."""
        row = parse_object(line)
        if isinstance(row, dict):
            return row
        if line.endswith(b"\n"):
            raise StoreError(f"{self.path}:{count}: not a JSON object ({row}); mend or remove that line")
        self.torn = True
        return None

    def _csv(self) -> Iterator[tuple[int, TableRow]]:
        ended = True

        def text() -> Iterator[str]:
            nonlocal ended
            for count, line in self.lines():
                ended = line.endswith(b"\n")
                yield line.decode("utf-8-sig" if count == 1 else "utf-8")

        cells = csv.reader(text(), strict=True)
        try:
            header = next(cells, [])
            if twice := sorted({name for name in header if header.count(name) > 1}):
                raise StoreError(f"{self.path}: two columns are called {log_line(twice[0], 80)!r}; rename one")
            for row in cells:
                if len(row) == len(header):
                    yield cells.line_num, dict(zip(header, row, strict=True))
                elif row and len(row) < len(header) and not ended:
                    self.torn = True
                elif row:
                    message = f"{self.path}:{cells.line_num}: {len(row)} cells, the header has {len(header)}"
                    raise StoreError(f"{message}; quote cells that hold commas or line breaks")
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                self.torn = True
                return
            raise StoreError(f"{self.path}:{cells.line_num}: not CSV: {error}") from error


def parse_object(line: bytes) -> TableRow | str:
    """A JSON object, or why it could not be parsed. A number too large for a float is infinite, not an error."""
    try:
        row = json.loads(line.decode("utf-8-sig"), parse_int=_whole)
    except RecursionError:
        return "nested too deep"
    except ValueError as error:
        return f"{error}"[:100]
    return row if isinstance(row, dict) else f"it holds a {type(row).__name__}"


def _whole(text: str) -> int | float:
    return int(text) if len(text) < 400 else float(text)
