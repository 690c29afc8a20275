"""A run as a folder of files for any web server: the report as `index.html`, and its tables as Parquet beside it."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.data.records import TEXT_COLUMNS
from tiltmeter.errors import StoreError
from tiltmeter.rundir.remote.outgoing import secrets_in_column
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.secret_scan import SecretScan, scan_environment
from tiltmeter.version import __version__
from tiltmeter.view.report.answers import ROLLOUTS
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.redact import mark_text, redact_texts
from tiltmeter.view.run_tables import RunTables
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.without_secrets import without_secrets

MANIFEST = "bundle.json"
#: Of rollouts and labels, what somebody else wrote; `facts` and `turns` hold it as JSON.
FOREIGN_COLUMNS = frozenset({*TEXT_COLUMNS, "task", "why"})
#: Beside a text: its bytes, its length and an unkeyed hash, from which short texts can be guessed.
_TEXT_TRACES = ("_raw", "_chars", "_sha256")


def write_bundle(
    run: RunDirectory, target: Path, *, redact: bool = False, all_rollouts: bool = False, replace: bool = False,
    rollouts: int = ROLLOUTS,
) -> list[Path]:  # fmt: skip
    """Write the bundle; the files that it has. The folder appears whole or not at all.

    Raises `StoreError` if there is something at the target that is no bundle, or that `replace` does not allow to go.
    """
    _check_target(target, replace)
    part = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    part.mkdir(parents=True)
    try:
        _write_files(run, part, redact, all_rollouts, rollouts)
        if target.exists():
            aside = part.with_name(f"{part.name}-old")
            target.rename(aside)
            part.rename(target)
            shutil.rmtree(aside)
        else:
            part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return sorted(target.iterdir())


def _check_target(target: Path, replace: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not (target / MANIFEST).is_file() or target.is_symlink():
        raise StoreError(f"{target} is there and is no bundle: name a folder that does not exist")
    if not replace:
        raise StoreError(f"{target} holds a bundle: add --replace, or name another folder")


def _write_files(run: RunDirectory, folder: Path, redact: bool, all_rollouts: bool, rollouts: int) -> None:
    tables, key = RunTables(run), secrets.token_bytes(16)
    for name in ("readings", "alarms", "findings", "labels", "actions"):
        arrow = _replace_secrets(getattr(tables, name)().arrow)
        pq.write_table(_redact_table(arrow, key) if redact else arrow, folder / f"{name}.parquet", compression="zstd")
    if all_rollouts:
        _write_rollouts(tables, folder / "rollouts.parquet", key if redact else b"")
    names = sorted(path.name for path in folder.iterdir())
    reader = RunReader(run)
    page = render_html(reader, rollouts=rollouts, redact=redact, files=names)
    (folder / "index.html").write_text(page, "utf-8")
    manifest: dict[str, Any] = {
        "tiltmeter": __version__,
        "run": reader.name,
        "state": reader.verdict.state,
        "step": reader.run_facts.last_step,
        "redacted": redact,
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in sorted(folder.iterdir())
        },
    }
    (folder / MANIFEST).write_text(json.dumps(without_secrets(manifest), indent=1) + "\n", "utf-8")


def _write_rollouts(tables: RunTables, path: Path, key: bytes) -> None:
    """Every rollout, step by step: two passes, because a later step may have columns that an earlier one has not."""
    schemas = [table.arrow.schema for table in tables.rollouts_by_step(skip=True)]
    if not schemas:
        return
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    if key:
        schema = _redact_table(schema.empty_table(), key).schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables.rollouts_by_step(skip=True):
            arrow = _replace_secrets(table.arrow, forms=False)  # in a model's text only what is really ours
            rows = _redact_table(arrow, key) if key else arrow
            missing = pa.Table.from_batches([], schema)
            writer.write_table(pa.concat_tables([missing, rows], promote_options="permissive").select(schema.names))


def _replace_secrets(table: pa.Table, *, forms: bool = True) -> pa.Table:
    """The same table without this process's secrets; `forms`: also without known forms of others."""
    scan = scan_environment()
    for index, column in enumerate(table.columns):
        if secrets_in_column(scan, column, forms=forms):
            texts = [_replace_secret(scan, text, forms) for text in column.to_pylist()]
            table = table.set_column(index, table.schema.field(index), [pa.array(texts, column.type)])
    return table


def _replace_secret(scan: SecretScan, text: str | bytes | None, forms: bool) -> str | bytes | None:
    """A text without its secrets; the bytes of one that is no whole Unicode are left out with theirs."""
    if isinstance(text, bytes):
        return None if scan.find(text, forms=forms) else text
    return text and scan.replace(text, forms=forms)


def _redact_table(table: pa.Table, key: bytes) -> pa.Table:
    """The same table with every text of others as its length and a hash, and quotations in our sentences likewise."""
    for name in table.column_names:
        if any(name == f"{text}{end}" for text in FOREIGN_COLUMNS for end in _TEXT_TRACES):
            table = table.drop_columns(name)
        elif pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type):
            texts = [_redact_text(name, text, key) for text in table[name].to_pylist()]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(texts, pa.large_string()))
    return table


def _redact_text(name: str, text: str | None, key: bytes) -> str | None:
    if not text:
        return text
    if name in FOREIGN_COLUMNS:
        return mark_text(text, key)
    redacted: str = redact_texts({name: text}, key)[name]
    return redacted
