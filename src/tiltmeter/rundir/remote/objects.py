"""What a mirror needs of a store: make an object once, replace one that is still the same, read, list. Two kinds.

A store is not trusted: what is read has a bound, whatever a list says of its size, and a folder on disk is read and
written by the same gate as a run directory (`run_path.py`), so that no link in it leads elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import publish, replace_file
from tiltmeter.rundir.gate.file_kinds import MOST_OBJECTS
from tiltmeter.rundir.run_path import (
    RunPath,
    UnsafePathError,
    entries,
    is_plain_name,
    make_folder,
    open_file,
    remove,
    run_path,
    split_key,
)
from tiltmeter.safety.safe_text import log_line

if TYPE_CHECKING:
    from obstore.store import ClientConfig

PLAIN_HTTP = "AWS_ALLOW_HTTP"
TIMEOUT, RETRIES = timedelta(seconds=25), 1  # of one request
INBOX = "inbox"  # below an address: what people left who have only a copy of the run
LOCK = ".lock"  # of a folder on disk, for `swap`
SMALL_BYTES = 16 << 20  # of an object whose reader names no limit
PIECE_BYTES = 1 << 20
DEEPEST = 8  # names of a key in a folder on disk


class ObjectFacts(NamedTuple):
    """An object in a list."""

    key: str
    size: int
    time: float  # written, seconds since 1970


class ObjectFolder(Protocol):
    """The objects below one address. Everything raises `OSError` if the store does not answer, or refuses, and
    `StoreError` for an object or a list that is larger than it may be."""

    def create(self, key: str, data: bytes) -> bool:
        """Make an object, whole or not at all; never replaces. True too if just this content is there already: the
        reply to an earlier try may have been lost. False: the name is taken by other content."""
        ...

    def swap(self, key: str, data: bytes, tag: str | None) -> str | None:
        """Put an object in the place of the one with this tag (None: of none). The new tag, or None if it is another
        one by now."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Put an object in the place of whatever has its name."""
        ...

    def read(self, key: str, limit: int = SMALL_BYTES) -> tuple[bytes, str] | None:
        """Content and tag; None if there is none."""
        ...

    def stream(self, key: str, limit: int) -> Iterator[bytes]:
        """The content piece by piece. Raises `FileNotFoundError` if there is none."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        """Every object, or those below a prefix that ends with a slash, by name."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        ...

    def names_below(self, prefix: str) -> tuple[Sequence[str], Sequence[str]]:
        """The names just below a prefix, which is "" or ends with a slash: those with more below them, and objects."""
        ...


def open_objects(address: str) -> ObjectFolder:
    """The objects below an address. Raises `AttachError` if they cannot be reached by what is installed or set."""
    if address.startswith("file://"):
        return DiskFolder(Path(address.removeprefix("file://")))
    try:
        from obstore import exceptions
        from obstore.store import from_url
    except ImportError as error:
        raise AttachError(f"{address} needs obstore ({error}): pip install 'tiltmeter[cloud]'") from error
    try:
        # Retries are few here and many in the loop above, which must be able to say that the store is away.
        client: ClientConfig = {"timeout": TIMEOUT}
        if os.environ.get(PLAIN_HTTP, "").lower() == "true":
            client["allow_http"] = True  # what is said here replaces what obstore reads from the environment
        return CloudFolder(from_url(address, client_options=client, retry_config={"max_retries": RETRIES}))
    except (ValueError, TypeError, OSError, exceptions.BaseError) as error:
        raise AttachError(f"{address} cannot be opened: {error}") from error


PROBE = "probe"  # an object that stays, so that every start can try the same


def conditional_problem(folder: ObjectFolder) -> str:
    """Why no run can be kept in a store; empty if it refuses what it must. Tries it: some ignore conditions."""
    folder.create(PROBE, b"first")
    if folder.create(PROBE, b"second") or (folder.read(PROBE) or (b"", ""))[0] != b"first":
        return "it replaces objects where it should not (no If-None-Match)"
    if folder.swap(PROBE, b"third", '"0123456789abcdef0123456789abcdef"') is not None:
        return "it replaces objects that have changed (no If-Match)"
    return ""


class CloudFolder:
    """S3, Google Cloud Storage, Azure, or a store in memory, by `obstore`."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()  # by kind, for what they cost

    def create(self, key: str, data: bytes) -> bool:
        import obstore

        try:
            with self._asking("put"):
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except FileExistsError:
            return _has_content(self, key, data)
        return True

    def swap(self, key: str, data: bytes, tag: str | None) -> str | None:
        import obstore

        mode: Any = "create" if tag is None else {"e_tag": tag}
        try:
            with self._asking("put"):
                result = obstore.put(self._store, key, data, mode=mode, use_multipart=False)
        except (FileExistsError, _ChangedError):
            present = self.read(key)  # ours, if the reply to an earlier try was lost
            return present[1] if present is not None and present[0] == data else None
        return str(result["e_tag"])

    def replace(self, key: str, data: bytes) -> None:
        import obstore

        with self._asking("put"):
            obstore.put(self._store, key, data, use_multipart=False)

    def read(self, key: str, limit: int = SMALL_BYTES) -> tuple[bytes, str] | None:
        try:
            with self._asking("get"):
                result = self._get(key, limit)
                return b"".join(_bounded(result.stream(PIECE_BYTES), key, limit)), str(result.meta["e_tag"])
        except FileNotFoundError:
            return None

    def stream(self, key: str, limit: int) -> Iterator[bytes]:
        with self._asking("get"):
            yield from _bounded(self._get(key, limit).stream(PIECE_BYTES), key, limit)

    def _get(self, key: str, limit: int) -> Any:
        import obstore

        result = obstore.get(self._store, key)
        if (size := int(result.meta["size"])) > limit:  # before any of it is fetched
            raise _too_large(key, size, limit)
        return result

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        import obstore

        with self._asking("list"):
            self.requests["list"] += 1  # an empty list is asked for too
            for number, page in enumerate(obstore.list(self._store, prefix or None, chunk_size=1000)):
                self.requests["list"] += number > 0
                _check_count(1000 * number)
                for one in page:
                    yield ObjectFacts(one["path"], int(one["size"]), one["last_modified"].timestamp())

    def delete(self, key: str) -> None:
        import obstore

        try:
            with self._asking("delete"):
                obstore.delete(self._store, key)
        except FileNotFoundError:
            pass  # Google's and Azure's say so, S3 does not

    def names_below(self, prefix: str) -> tuple[Sequence[str], Sequence[str]]:
        import obstore

        with self._asking("list"):
            self.requests["list"] += 1
            result = obstore.list_with_delimiter(self._store, prefix or None)
        inner, objects = result["common_prefixes"], [one["path"] for one in result["objects"]]
        folders = [name for path in inner if is_plain_name(name := _last_name(path))]
        return folders, [_last_name(path) for path in objects]

    @contextmanager
    def _asking(self, kind: str) -> Iterator[None]:
        """Count a request, and turn what obstore raises into `OSError`."""
        from obstore import exceptions

        self.requests[kind] += kind != "list"
        try:
            yield
        except exceptions.AlreadyExistsError as error:
            raise FileExistsError(str(error)) from error
        except exceptions.PreconditionError as error:
            raise _ChangedError(str(error)) from error
        except FileNotFoundError:
            raise
        except exceptions.BaseError as error:
            raise OSError(f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}") from error


class _ChangedError(Exception):
    """The object is not the one that was to be replaced."""


class DiskFolder:
    """A folder that several machines may mount, or one for tests; needs `flock`."""

    def __init__(self, path: Path) -> None:
        # Its last name too may be somebody else's: in a folder that people share, a run's place may become a link.
        self.path = run_path(path.parent, "store") / path.name

    def create(self, key: str, data: bytes) -> bool:
        path = self._make_place(key)
        try:
            publish(path, [data])
        except FileExistsError:
            return _has_content(self, key, data)
        return True

    def swap(self, key: str, data: bytes, tag: str | None) -> str | None:
        path = self._make_place(key)
        with self._lock():
            present = self.read(key)
            if (None if present is None else present[1]) != tag:
                return None
            replace_file(path, data)
        return _tag_of(data)

    def replace(self, key: str, data: bytes) -> None:
        replace_file(self._make_place(key), data)

    def read(self, key: str, limit: int = SMALL_BYTES) -> tuple[bytes, str] | None:
        try:
            data = b"".join(self.stream(key, limit))
        except FileNotFoundError:
            return None
        return data, _tag_of(data)

    def stream(self, key: str, limit: int) -> Iterator[bytes]:
        with os.fdopen(open_file(self._place(key)), "rb", buffering=0) as file:
            yield from _bounded(iter(lambda: file.read(PIECE_BYTES), b""), key, limit)

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        for number, one in enumerate(self._walk(prefix, DEEPEST)):
            _check_count(number)
            yield one

    def _walk(self, prefix: str, depth: int) -> Iterator[ObjectFacts]:
        """The objects below a prefix, by name. Links are not followed, nor listed."""
        inner = []
        for entry in entries(self._place(prefix)):
            if is_plain_name(entry.name):
                facts = entry.stat(follow_symlinks=False)
                is_folder = entry.is_dir(follow_symlinks=False)
                inner.append((entry.name + "/" * is_folder, facts.st_size, facts.st_mtime))
        for name, size, at in sorted(inner):
            if not name.endswith("/"):
                yield ObjectFacts(prefix + name, size, at)
            elif depth > 1:
                yield from self._walk(prefix + name, depth - 1)

    def delete(self, key: str) -> None:
        remove(self._place(key), missing_ok=True)

    def names_below(self, prefix: str) -> tuple[Sequence[str], Sequence[str]]:
        folders: list[str] = []
        objects: list[str] = []
        try:
            for entry in entries(self._place(prefix)):
                if is_plain_name(entry.name):
                    (folders if entry.is_dir(follow_symlinks=False) else objects).append(entry.name)
        except NotADirectoryError:
            pass
        return sorted(folders), sorted(objects)

    def _place(self, key: str) -> RunPath:
        """The path of a key, or of a prefix, which is "" or ends with a slash."""
        path = self.path
        for name in split_key(key.removesuffix("/")) if key else ():
            path = path / name
        return path

    def _make_place(self, key: str) -> RunPath:
        path = self._place(key)
        if not (outer := Path(self.path.parent)).is_dir():
            outer.mkdir(parents=True, exist_ok=True)
        make_folder(self.path.parent, self.path.name, *split_key(key)[:-1])
        return path

    @contextmanager
    def _lock(self) -> Iterator[None]:
        handle = open_file(self.path / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _has_content(folder: ObjectFolder, key: str, data: bytes) -> bool:
    """Whether an object holds just this."""
    try:
        present = folder.read(key, len(data))
    except UnsafePathError:
        raise
    except StoreError:  # larger
        return False
    return present is not None and present[0] == data


def _bounded(pieces: Iterable[Any], key: str, limit: int) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:  # a store may say another size than it sends
            raise _too_large(key, size, limit)
        yield bytes(piece)


def _too_large(key: str, size: int, limit: int) -> StoreError:
    return StoreError(f"{log_line(key, 200)} has {size} bytes or more, and at most {limit} are read")


def _check_count(number: int) -> None:
    if number > MOST_OBJECTS:
        raise StoreError(f"there are more than {MOST_OBJECTS:,} objects, which no run has")


def _last_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _tag_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
