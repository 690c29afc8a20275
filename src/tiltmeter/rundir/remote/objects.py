"""What a mirror needs of a store: make an object once, replace one that is still the same, read, list. Two kinds."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import publish, replace_file
from tiltmeter.rundir.run_path import run_path

if TYPE_CHECKING:
    from obstore.store import ClientConfig

PLAIN_HTTP = "AWS_ALLOW_HTTP"
TIMEOUT = timedelta(seconds=30)
INBOX = "inbox"  # below an address: what people left who have only a copy of the run
LOCK = ".lock"  # of a folder on disk, for `swap`


class ObjectFacts(NamedTuple):
    """An object in a list."""

    key: str
    size: int
    time: float  # written, seconds since 1970


class ObjectFolder(Protocol):
    """The objects below one address. Everything raises `OSError` if the store does not answer, or refuses."""

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

    def read(self, key: str) -> tuple[bytes, str] | None:
        """Content and tag; None if there is none."""
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
        return CloudFolder(from_url(address, client_options=client, retry_config={"max_retries": 2}))
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
            present = self.read(key)
            return present is not None and present[0] == data
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

    def read(self, key: str) -> tuple[bytes, str] | None:
        import obstore

        try:
            with self._asking("get"):
                result = obstore.get(self._store, key)
                return bytes(result.bytes()), str(result.meta["e_tag"])
        except FileNotFoundError:
            return None

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        import obstore

        with self._asking("list"):
            self.requests["list"] += 1  # an empty list is asked for too
            for number, page in enumerate(obstore.list(self._store, prefix or None, chunk_size=1000)):
                self.requests["list"] += number > 0
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
        return [_last_name(path) for path in inner], [_last_name(path) for path in objects]

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
        self.path = run_path(path)

    def create(self, key: str, data: bytes) -> bool:
        path = self._make_place(key)
        try:
            publish(path, [data])
        except FileExistsError:
            present = self.read(key)
            return present is not None and present[0] == data
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

    def read(self, key: str) -> tuple[bytes, str] | None:
        try:
            data = (self.path / key).read_bytes()
        except FileNotFoundError:
            return None
        return data, _tag_of(data)

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        for path in sorted((self.path / prefix).rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                facts = path.stat()
                yield ObjectFacts(str(path.relative_to(self.path)), facts.st_size, facts.st_mtime)

    def delete(self, key: str) -> None:
        (self.path / key).unlink(missing_ok=True)

    def names_below(self, prefix: str) -> tuple[Sequence[str], Sequence[str]]:
        try:
            inner = [path for path in sorted((self.path / prefix).iterdir()) if not path.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        folders = [path.name for path in inner if path.is_dir() and not path.is_symlink()]
        return folders, [path.name for path in inner if path.is_file()]

    def _make_place(self, key: str) -> Path:
        path = self.path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def _lock(self) -> Iterator[None]:
        handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _last_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _tag_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
