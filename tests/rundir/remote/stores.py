"""Stores for tests: a folder, obstore's memory, moto's S3 server; and one that fails on command."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiltmeter.rundir.remote.objects import SMALL_BYTES, CloudFolder, DiskFolder, ObjectFacts, ObjectFolder

BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of moto's server with a bucket, and the environment that leads there."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
    setting = {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in setting}
    os.environ.update(setting)
    try:
        yield endpoint
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


def disk(folder: Path) -> ObjectFolder:
    return DiskFolder(folder / "store")


def memory(_: Path) -> ObjectFolder:
    from obstore.store import MemoryStore

    return CloudFolder(MemoryStore())


class FaultyFolder:
    """Another store, of which the n-th call fails: before it is done, or after, so that only the reply is lost."""

    def __init__(self, inner: ObjectFolder) -> None:
        self.inner, self.calls = inner, 0
        self.fails: Callable[[int], str] = lambda number: ""

    def _do(self, name: str, *arguments: Any) -> Any:
        self.calls += 1
        way = self.fails(self.calls)
        if way == "before":
            raise OSError("503 slow down")
        result = getattr(self.inner, name)(*arguments)
        if way == "after":
            raise OSError("connection reset")
        return result

    def create(self, key: str, data: bytes) -> bool:
        return bool(self._do("create", key, data))

    def swap(self, key: str, data: bytes, tag: str | None) -> str | None:
        result: str | None = self._do("swap", key, data, tag)
        return result

    def replace(self, key: str, data: bytes) -> None:
        self._do("replace", key, data)

    def read(self, key: str, limit: int = SMALL_BYTES) -> tuple[bytes, str] | None:
        result: tuple[bytes, str] | None = self._do("read", key, limit)
        return result

    def stream(self, key: str, limit: int) -> Iterator[bytes]:
        yield from list(self._do("stream", key, limit))

    def names_below(self, prefix: str) -> tuple[Sequence[str], Sequence[str]]:
        return self._do("names_below", prefix)  # type: ignore[no-any-return]

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        yield from list(self._do("list", prefix))

    def delete(self, key: str) -> None:
        self._do("delete", key)
