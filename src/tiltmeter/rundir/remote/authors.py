"""Who left an entry in an inbox: each is signed with a key of its author's own (Ed25519), which stays on their machine.

Everybody who may write to a bucket could otherwise answer in anybody's name. The machine that writes the run remembers
the first key that each name came with, and refuses entries in that name by another key.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import publish, replace_file
from tiltmeter.rundir.owner_state import make_owner_folder, owner_folder, read_owned
from tiltmeter.rundir.sidecar import WRONG_CONTENT, parse_sidecar, reason
from tiltmeter.rundir.store import RunDirectory

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNED = "signed"  # the field of an entry that holds its signature
NAMED_BY = ("author", "rater")  # fields that say who left an entry
MOST_AUTHORS = 10_000  # that a run takes entries of: of one that is not remembered nobody could tell others apart
_BOOK_BYTES = 16 << 20  # of so many, whatever their names are written in
_KEY = "author.key"

Hex64 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Hex128 = Annotated[str, Meta(pattern=r"^[0-9a-f]{128}\Z")]


class EntrySignature(Struct, frozen=True):
    """`signed` of an entry: the author's public key, and the signature over run, place and content."""

    key: Hex64
    signature: Hex128


class _SignedEntry(Struct, frozen=True):
    signed: EntrySignature


def sign_entry(run: RunDirectory, place: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with this user's signature. Raises `AttachError` if no key can be made or kept."""
    private = _own_key()
    key = private.public_key().public_bytes_raw().hex()
    return {**facts, SIGNED: {"key": key, "signature": private.sign(_message(run, place, facts)).hex()}}


class AuthorBook:
    """Whose entries a run takes: by name, the key that the first entry of that name was signed with.

    Raises `AttachError` where what was remembered cannot be read.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._path = owner_folder("authors") / f"{run.identity()['id']}.json"
        self._keys: dict[str, str] = {}
        try:
            self._keys = parse_sidecar(read_owned(self._path, _BOOK_BYTES), dict[str, str])
        except FileNotFoundError:
            pass
        except WRONG_CONTENT as error:
            raise AttachError(f"{self._path} cannot be read ({reason(error)}): remove it to accept new keys") from error

    def check(self, place: str, data: bytes) -> None:
        """Remember a new author. Raises `ValueError` with the reason why an entry is not taken."""
        facts = parse_sidecar(data, dict[str, Any])
        try:
            signed = parse_sidecar(data, _SignedEntry).signed
        except WRONG_CONTENT:
            raise ValueError("it is not signed") from None
        content = {name: value for name, value in facts.items() if name != SIGNED}
        if not _is_signed(signed, _message(self._run, place, content)):
            raise ValueError("its signature is of another run, place or content")
        for field in NAMED_BY:
            name = str(content.get(field, ""))[:64]
            if name and name not in self._keys and len(self._keys) >= MOST_AUTHORS:
                raise ValueError(f"{MOST_AUTHORS:,} authors left something already; remove {self._path} to accept more")
            if name and self._keys.setdefault(name, signed.key) != signed.key:
                raise ValueError(f"{name} signed with another key before; remove {self._path} to accept new keys")

    def save(self) -> None:
        make_owner_folder("authors")
        replace_file(self._path, json.dumps(self._keys).encode("ascii"))


def _message(run: RunDirectory, place: str, facts: Mapping[str, Any]) -> bytes:
    """What is signed: an entry counts in one run and one place only."""
    whole = {"run": run.identity().get("id"), "place": place, "facts": facts}
    return b"tiltmeter entry 1\n" + json.dumps(whole, sort_keys=True, separators=(",", ":")).encode("ascii")


def _is_signed(signed: EntrySignature, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.key)).verify(bytes.fromhex(signed.signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _own_key() -> Ed25519PrivateKey:
    """This user's key, made at the first use."""
    check_installed()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path: Path = owner_folder() / _KEY
    try:
        if not path.exists():
            make_owner_folder()
            try:
                publish(path, [secrets.token_hex(32).encode()])
            except FileExistsError:
                pass  # another process was first
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(read_owned(path, 64).decode("ascii")))
    except (OSError, ValueError) as error:
        raise AttachError(f"your key for signing cannot be kept or read at {path}: {error}") from error


def check_installed() -> None:
    """Raise `AttachError` with the line that installs what signs entries."""
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        why = f"entries of people in a store are signed, which needs cryptography ({error})"
        raise AttachError(f"{why}: pip install 'tiltmeter[cloud]'") from error
