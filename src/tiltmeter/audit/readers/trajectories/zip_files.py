"""Reads members of a zip file, each within bounds; also those that are packed with zstd, which Python 3.11 cannot."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tiltmeter.audit.readers.folders import size_of
from tiltmeter.audit.readers.table_files import LINE_LIMIT
from tiltmeter.errors import StoreError
from tiltmeter.rundir.decoded_size import check_decoded
from tiltmeter.safety.safe_text import log_line

MEMBERS = 100_000
_ZSTD = 93  # a method of packing
_HEADER = struct.Struct("<4s22xHH")  # before a member: signature, then lengths of its name and of more fields
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, pa.ArrowException, OSError, EOFError, ValueError),
    *(NotImplementedError, RuntimeError, struct.error),  # a packing that is not known; a password
)


class ZipMembers:
    """The members of an open zip file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self.names = list(dict.fromkeys(archive.namelist()))
        if len(self.names) > MEMBERS:
            raise StoreError(f"{path}: more than {MEMBERS:,} files in a zip file; not read")
        check_decoded(str(path), sum(info.file_size for info in archive.infolist()), size_of(path))

    def read(self, name: str) -> bytes:
        """A member's bytes. Raises `StoreError` if they are damaged or more than a row may be."""
        info = self._archive.getinfo(name)
        place = f"{self._path}: {log_line(name, 100)}"
        if info.file_size > LINE_LIMIT:
            raise StoreError(f"{place} would unpack to {info.file_size >> 20} MB: beyond the limit; not read")
        check_decoded(place, info.file_size, info.compress_size)
        try:
            if info.compress_type == _ZSTD:
                return _unpack_zstd(self._archive, info)
            with self._archive.open(info) as stream:
                return stream.read(info.file_size)
        except _DAMAGED as error:
            why = log_line(f"{type(error).__name__}: {error}", 120)
            raise StoreError(f"{place} cannot be unpacked ({why}); copy the file again") from error


@contextmanager
def open_zip(path: Path) -> Iterator[ZipMembers]:
    """Opens a zip file. Raises `StoreError` for anything else."""
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        why = log_line(f"{type(error).__name__}: {error}", 120)
        raise StoreError(f"{path}: not a whole zip file ({why}); copy it again, or wait until it is written") from error
    with archive:
        yield ZipMembers(path, archive)


def _unpack_zstd(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    source = archive.fp
    if source is None:
        raise ValueError("the file was closed")
    source.seek(info.header_offset)
    signature, name, more = _HEADER.unpack(source.read(_HEADER.size))
    if signature != b"PK\x03\x04":
        raise ValueError("no member where the directory names one")
    source.seek(name + more, 1)
    packed = source.read(info.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        data = bytes(stream.read(info.file_size + 1))
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise ValueError("not what the directory says that it holds")
    return data
