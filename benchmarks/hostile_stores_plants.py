"""Contents and places of `hostile_stores_cases.toml`: how an attack is put into a store or a received run directory."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostile_stores_servers import FOLDER_OF_ALL, MEGABYTE, Bucket
from tiltmeter.rundir.seal import seal

SECRET = "canary-7f3a91"
EVIL = "import os, pathlib\npathlib.Path(os.environ['HOME'], 'RAN').touch()\ndef score(*a, **k):\n    return 1.0\n"
ADDRESS = f"{FOLDER_OF_ALL}/run/"
RAW = "@raw@"
#: What lies in a home folder. Nothing of it may be changed, removed or turn up anywhere.
CANARIES = (
    ".bashrc", ".profile", ".ssh/config", ".ssh/authorized_keys", ".config/tiltmeter/x", ".aws/config.bak", "0.jsonl",
    "run.json", "labels/0.json", "data/train.jsonl", "runs/tonight/events/0.jsonl", "runs/tonight/run.json",
    "inbox/mail1.txt", "inbox/mail2.txt", "inbox/mail3.txt", "docs/thesis/main.tex", "docs/inbox/mail.txt",
    ".local/lib/python3.11/site-packages/mine.py", *(f"docs/chapter{number}.tex" for number in range(1, 21)),
)  # fmt: skip


class PlantError(Exception):
    """The store itself refuses this attack."""


@dataclass(frozen=True)
class Place:
    """The folders of one worker; everything that a case may touch is below `root`."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def runs(self) -> Path:
        return self.root / "shared" / FOLDER_OF_ALL

    @property
    def received(self) -> Path:
        return self.root / "received" / "run"


def make_home(home: Path) -> None:
    for name in CANARIES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{SECRET} {name}\n")
    note = {"kind": "note", "target": "", "text": SECRET, "author": "ann", "time": 1.0, "name": ""}
    (home / "note.json").write_text(json.dumps(note))
    (home / "mirror.json").write_text(json.dumps({"address": f"file://{home}/docs", "owner": "x"}))


# -- stores ----------------------------------------------------------------------------------------------------------


class DiskStore:
    """A shared folder, `file://`."""

    def __init__(self, place: Place) -> None:
        self.root = place.runs / "run"
        self.address, self.above = f"file://{self.root}", f"file://{place.runs}"
        self.base = place.root.parent / "base-store"

    def keep(self) -> None:
        shutil.copytree(self.root, self.base, symlinks=True)

    def reset(self) -> None:
        clear(self.root.parent)
        shutil.copytree(self.base, self.root, symlinks=True)
        other = self.root.parent / "other"
        other.mkdir()
        (other / "keep.txt").write_text("of somebody else")

    def read(self, key: str) -> bytes:
        return (self.base / key).read_bytes()

    def put(self, key: str, data: bytes | int) -> None:
        path = self.root / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.unlink()
            if isinstance(data, int):
                with path.open("wb") as file:
                    file.truncate(data)
            else:
                path.write_bytes(data)
        except (OSError, ValueError) as error:
            raise PlantError(str(error)) from error

    def remove(self, key: str) -> None:
        (self.root / key).unlink(missing_ok=True)

    def facts(self) -> dict[str, tuple[Any, ...]]:
        """Kind, size and content of everything, by name."""
        found: dict[str, tuple[Any, ...]] = {}
        for path in walk(self.root.parent):
            info = path.lstat()
            kind = stat.S_IFMT(info.st_mode)
            if kind == stat.S_IFREG:
                small = info.st_size < 8 * MEGABYTE
                digest = hashlib.md5(path.read_bytes()).hexdigest() if small else ""
                found[str(path.relative_to(self.root.parent))] = (kind, info.st_size, digest)
            elif kind != stat.S_IFDIR:
                found[str(path.relative_to(self.root.parent))] = (kind,)
        return found

    def contents(self, names: Iterator[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            path = self.root.parent / name
            if stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size < 8 * MEGABYTE:
                yield name, path.read_bytes()


class BucketStore:
    """A bucket of an S3 server."""

    def __init__(self, place: Place, bucket: Bucket) -> None:
        self.bucket = bucket
        self.address, self.above = f"s3://{bucket.name}/{ADDRESS[:-1]}", f"s3://{bucket.name}/{FOLDER_OF_ALL}"
        self.objects: dict[str, bytes] = {}
        self.tags: dict[str, tuple[int, str]] = {}

    def keep(self) -> None:
        self.bucket.put(f"{FOLDER_OF_ALL}/other/keep.txt", b"of somebody else")
        self.tags = self.bucket.list()
        self.objects = {key: self.bucket.get(key) for key in self.tags}

    def reset(self) -> None:
        there = self.bucket.list()
        for key in there:
            if key not in self.objects:
                self.bucket.delete(key)
        for key, data in self.objects.items():
            if there.get(key) != self.tags[key]:
                if key in there:
                    self.bucket.delete(key)
                self.bucket.put(key, data)

    def read(self, key: str) -> bytes:
        return self.objects[ADDRESS + key]

    def put(self, key: str, data: bytes | int) -> None:
        whole = ADDRESS + key
        try:
            if isinstance(data, int):
                piece = b"\0" * MEGABYTE
                self.bucket.put(whole, (piece for _ in range(data // MEGABYTE)), data)
            else:
                self.bucket.put(whole, data)
        except (OSError, ValueError) as error:
            raise PlantError(str(error)) from error
        if whole not in self.bucket.list():
            raise PlantError(f"{key!r} is stored under another name")

    def remove(self, key: str) -> None:
        self.bucket.delete(ADDRESS + key)

    def facts(self) -> dict[str, tuple[Any, ...]]:
        return dict(self.bucket.list())

    def contents(self, names: Iterator[str]) -> Iterator[tuple[str, bytes]]:
        sizes = self.bucket.list()
        yield from ((name, self.bucket.get(name)) for name in names if sizes[name][0] < 8 * MEGABYTE)


Store = DiskStore | BucketStore


def walk(folder: Path) -> Iterator[Path]:
    """Everything below, through no link, and whatever its name."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path))


def clear(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    elif path.exists():
        for folder in [path, *walk(path)]:
            if stat.S_ISDIR(folder.lstat().st_mode):
                folder.chmod(0o700)
        shutil.rmtree(path)


# -- contents --------------------------------------------------------------------------------------------------------


class Filler:
    """Turns the words of an attack into names and bytes."""

    def __init__(self, place: Place, read: Callable[[str], bytes], trap: str, fence: int) -> None:
        self.place, self.read = place, read
        self.identity = json.loads(read("run.json"))["id"]
        self.fence = fence
        self.trap = trap

    def name(self, text: str) -> str:
        site = self.place.home / ".local/lib/python3.11/site-packages"
        for word, value in {
            "{up}": "../" * 12, "{home}": str(self.place.home), "{long}": "l" * 300, "{id}": self.identity,
            "{fence}": str(self.fence), "{site}": str(site), "{trap}": self.trap,
        }.items():  # fmt: skip
            text = text.replace(word, value)
        return text

    def content(self, text: str) -> bytes | int:
        """The bytes; a number stands for so many zeros."""
        if text == "evil":
            return EVIL.encode()
        kind, _, rest = text.partition(":")
        if kind == "zeros":
            return int(rest) * MEGABYTE
        return {
            "text": lambda: self.name(rest).encode(), "json": lambda: self.name(rest).encode(),
            "hex": lambda: bytes.fromhex(rest), "deep": lambda: b"[" * int(rest) + b"]" * int(rest),
            "spaces": lambda: b" " * (int(rest) * MEGABYTE), "of": lambda: self._of(rest),
            "cut": lambda: self._of(rest)[: len(self._of(rest)) // 2], "changed": lambda: flip(self._of(rest)),
            "longer": lambda: self._of(rest) + forged("alarm"), "gzip": lambda: gzip.compress(self._of(rest)),
            "bomb": lambda: bomb(rest), "forged": lambda: forged(rest), "note": lambda: make_note(self.name(rest)),
            "head": lambda: self._head(*rest.split(":")),
        }[kind]()  # fmt: skip

    def _of(self, key: str) -> bytes:
        return self.read(f"events/0/{0:015}-{self.fence}.jsonl" if key == "segment" else key)

    def _head(self, kind: str, number: str = "0") -> bytes:
        plain = self.read("head.json")
        facts, count = json.loads(plain), int(number)
        entry = {"bytes": 0, "crc": 0}
        if kind == "journals":
            facts["journal"] |= {str(n): entry for n in range(1, count)}
        elif kind == "takeovers":
            facts["takeovers"] = [{"fence": n, "start": {"0": n}} for n in range(count)]
        elif kind == "owner":
            facts["owner"] = "o" * count
        elif kind == "keys":
            facts |= {f"k{n}": n for n in range(count)}
        elif kind == "says":
            raise AssertionError("needs the segment that was planted")
        else:
            return {
                "twice": b'{"journal":{"/tmp/escaped":{"bytes":0,"crc":0}},' + plain[1:],
                "deep": b'{"deep":' + b"[" * count + b"]" * count + b"," + plain[1:],
                "bom": b"\xef\xbb\xbf" + plain, "utf16": plain.decode().encode("utf-16"), "gzip": gzip.compress(plain),
                "after": plain + b"\n{}", "digits": b'{"more":' + b"9" * count + b"," + plain[1:],
            }[kind]  # fmt: skip
        return json.dumps(facts).encode()

    def says(self, segment: bytes) -> bytes:
        """A head that names this content as the whole journal."""
        facts = json.loads(self.read("head.json"))
        facts["journal"]["0"] = {**facts["journal"]["0"], "bytes": len(segment), "crc": zlib.crc32(segment)}
        return json.dumps(facts).encode()

    def changed_head(self, changes: Mapping[str, Any]) -> bytes:
        facts = json.loads(self.read("head.json"))
        raw: list[str] = []
        for path, value in changes.items():
            where, plus, added = self.name(path).partition(".+")
            names = [*where.split("."), *([added] if plus else [])]
            target = facts
            for name in names[:-1]:
                target = target[name]
            if value == "json:+1":
                value = target[names[-1]] + 1
            elif isinstance(value, str) and value.startswith("json:"):
                raw.append(self.name(value[5:]))
                value = f"{RAW}{len(raw) - 1}"
            else:
                value = json.loads(self.name(json.dumps(value)))
            target[names[-1]] = value
        text = json.dumps(facts)
        for number, value in enumerate(raw):
            text = text.replace(f'"{RAW}{number}"', value)
        return text.encode()


def make_note(text: str) -> bytes:
    facts = {"kind": "note", "target": "", "text": text, "author": "ann", "time": 1.0, "name": ""}
    return json.dumps(facts).encode()


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def forged(kind: str) -> bytes:
    """Lines of a journal with right checksums."""
    events: dict[str, list[dict[str, Any]]] = {
        "alarm": [{"id": "note|x", "kind": "note", "attempt": 0, "step": 0, "data": {"note": "absent", "absent": {}}}],
        "absurd": [
            {"id": "x" * 100_000, "kind": "reading", "attempt": 10**30, "step": -(10**30), "data": {"measured": {}}},
            {"id": "\x1b]0;owned\x07", "kind": "alarm", "attempt": 0, "step": 10**12, "data": {"onset": [[]] * 1000}},
        ],
        "gold": [
            {
                "id": "note|config", "kind": "note", "attempt": 0, "step": 0,
                "data": {"note": "config", "gold": "usercustomize.py:score", "plugins": ["usercustomize.py:Evil"]},
            },
        ],
    }  # fmt: skip
    plain = {"format": 1, "seq": 0, "time": 1.0, "events": events[kind]}
    text = json.dumps(plain, separators=(",", ":")).encode("ascii")
    return b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text))


def bomb(kind: str) -> bytes:
    """A small Parquet file, sealed, that holds gigabytes."""
    rows = 100_000
    group = np.zeros(rows, np.int64)
    text = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * MEGABYTE])
    tokens = pa.array([[1] * 1000] * 100, pa.list_(pa.int64()))
    table, groups = {
        "dictionary": (pa.table({"group": group, "prompt": text}), 1),
        "rows": (pa.table({"group": group, "reward": np.zeros(rows)}), 150),
        "run": (pa.table({"group": np.zeros(20_000_000, np.int64)}), 8),
        "nested": (pa.table({"group": np.zeros(100, np.int64), "tokens": tokens}), 1500),
    }[kind]
    facts = {"format": 1, "attempt": 0, "step": 3, "rank": 0, "rows": table.num_rows}
    schema = table.schema.with_metadata({b"tiltmeter": json.dumps(facts).encode()})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False) as writer:
        for _ in range(groups):
            writer.write_table(table.cast(schema))
    return b"".join(memoryview(piece).tobytes() for piece in seal(sink.getvalue()))


# -- planting --------------------------------------------------------------------------------------------------------


def plant(attack: Mapping[str, Any], store: Store, filler: Filler) -> list[str]:
    """Put an attack into a store, and give the keys that it brought."""
    planted: list[str] = []
    for key in attack.get("remove", ()):
        store.remove(filler.name(key))
    last = b""
    for key, content in attack.get("put", ()):
        data = filler.content(content)
        store.put(filler.name(key), data)
        last = data if isinstance(data, bytes) else b""
        planted.append(filler.name(key))
    for pattern, count, content in attack.get("many", ()):
        data = filler.content(content)
        keys = [pattern.format(n=number) for number in range(count)]
        for key in keys:
            put_quickly(store, key, data)
        planted += keys
    if "head" in attack:
        store.put("head.json", filler.changed_head(attack["head"]))
    if "raw" in attack:
        store.put("head.json", filler.says(last) if attack["raw"] == "head:says" else filler.content(attack["raw"]))
    for what, path, target in attack.get("place", ()):
        assert isinstance(store, DiskStore)
        put_place(store.root, what, filler.name(path), filler.name(target))
    return planted


def put_quickly(store: Store, key: str, data: bytes | int) -> None:
    """Without asking a server whether it has it, for thousands."""
    if isinstance(store, BucketStore) and isinstance(data, bytes):
        store.bucket.put(ADDRESS + key, data)
    else:
        store.put(key, data)


def put_place(root: Path, what: str, path: str, target: str) -> None:
    """Something that is no plain file or folder."""
    place = root / path if path else root
    if what.startswith("root "):
        put_root(place, what.removeprefix("root "), target)
        return
    if what == "parent moved":
        shutil.move(root.parent, target)
        root.parent.symlink_to(target)
        return
    if what == "bytes":
        place.mkdir(parents=True, exist_ok=True)
        Path(os.fsdecode(os.fsencode(place) + b"/" + bytes.fromhex(target))).write_bytes(make_note("x"))
        return
    if what in ("owner", "mode"):
        if what == "mode":
            place.chmod(int(target, 8))
        elif os.geteuid() == 0 and place.exists():
            os.chown(place, 54321, 54321)
        return
    put_kind(place, what, target)


def put_root(place: Path, what: str, target: str) -> None:
    if what == "moved":
        shutil.move(place, target)
        place.symlink_to(target)
        return
    clear(place)
    put_simply(place, what, target)


def put_kind(place: Path, what: str, target: str) -> None:
    kept = None
    if what == "own content":
        kept = Path(target)
        if place.is_dir():
            shutil.copytree(place, kept)
        elif place.exists():
            shutil.copyfile(place, kept)
    clear(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    if what == "socket":
        listening = socket.socket(socket.AF_UNIX)
        before = Path.cwd()
        os.chdir(place.parent)  # names of sockets are short
        listening.bind(place.name)
        os.chdir(before)
        listening.close()
    elif what == "unreadable":
        place.write_text("x")
        place.chmod(0)
    else:
        put_simply(place, what, target if kept is None else str(kept))


def put_simply(place: Path, what: str, target: str) -> None:
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: place.symlink_to(target), "own content": lambda: place.symlink_to(target),
        "itself": lambda: place.symlink_to(place.name), "hard link": lambda: os.link(target, place),
        "file": lambda: place.write_text("x"), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir,
        "device": lambda: make_device(place),
    }  # fmt: skip
    makers[what]()


def make_device(place: Path) -> None:
    try:
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        place.symlink_to("/dev/zero")


def put_what(root: Path, path: str, words: str, home: Path) -> None:
    """One of the pairs of `kinds`: "link to X", "pipe" and so on."""
    what, _, target = words.partition(" to ")
    if target == "its own content":
        put_place(root, "own content", path, str(home / "copied"))
    elif target == "itself":
        put_place(root, "itself", path, "")
    elif target == "nothing":
        put_place(root, "link", path, str(home / "nowhere"))
    else:
        put_place(root, what, path, target)


def plant_received(attack: Mapping[str, Any], run: Path, filler: Filler) -> list[str]:
    planted = []
    for path, content in attack.get("local", ()):
        data = filler.content(content)
        name = filler.name(path)
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(data if isinstance(data, bytes) else bytes(data))
        planted.append(name)
    for what, path, target in attack.get("local_place", ()):
        put_place(run, what, filler.name(path), filler.name(target))
    return planted


# -- races -----------------------------------------------------------------------------------------------------------


def keep_changing(root: Path, what: str, path: str, target: str, aside: Path) -> None:
    """Never returns: the place is one thing and the other, a thousand times a second."""
    place = root / path if path else root
    aside.mkdir()
    whole = aside / "whole"
    if what != "folder or link":
        shutil.copyfile(place, whole)
    other = aside / "other"
    if what == "file or large":
        with (aside / "large").open("wb") as file:
            file.truncate(700 * MEGABYTE)
    while True:
        try:
            change_once(place, what, target, whole, other)
        except OSError:
            time.sleep(0.001)


def change_once(place: Path, what: str, target: str, whole: Path, other: Path) -> None:
    other.unlink(missing_ok=True)
    if what == "folder or link":
        place.rename(other)
        place.symlink_to(target)
        time.sleep(0.0005)
        place.unlink()
        other.rename(place)
        time.sleep(0.0005)
        return
    if what == "grow":
        with place.open("ab") as file:
            file.write(b"\0" * 65536)
        time.sleep(0.001)
        return
    if what == "file or link":
        other.symlink_to(target)
    elif what == "file or pipe":
        os.mkfifo(other)
    elif what == "file or large":
        os.link(other.with_name("large"), other)
    if what == "file or nothing":
        place.unlink(missing_ok=True)
    else:
        other.replace(place)
    time.sleep(0.0005)
    os.link(whole, other)
    other.replace(place)
    time.sleep(0.0005)


def expand(cases: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    """Every attack: its group's name, the group, and the attack itself."""
    for name, group in cases.items():
        if not isinstance(group, dict) or "stores" not in group:
            continue
        if "fields" in group:
            for field in group["fields"]:
                for value in group["values"]:
                    yield name, group, {"name": f"{field} is {value[5:45]}", "head": {field: value}}
        elif "places" in group:
            for number, path in enumerate(group["places"]):
                for words in (*group["whats"], group["some"][number % len(group["some"])]):
                    yield name, group, {"name": f"{path}: {words}", "what": [path, words]}
        else:
            yield from ((name, group, attack) for attack in group["attacks"])


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
