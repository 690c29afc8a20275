"""Hashes of a trainer's checkpoints, taken when they are written and checked before training goes back to one.

They stand in the run directory, `control/checkpoints/ATTEMPT-STEP.json`, signed with the run's token: a checkpoint is
the trainer's own, and nothing is added to it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path

from msgspec import Struct

from tiltmeter.errors import StoreError
from tiltmeter.rundir.run_path import entries, make_folder
from tiltmeter.rundir.sidecar import read_sidecar, write_sidecar
from tiltmeter.rundir.signing import signature
from tiltmeter.rundir.store import RunDirectory

CHUNK = 1 << 20
MANIFEST_BYTES = 16 << 20
FILES = 100_000  # of one checkpoint


class CheckpointManifest(Struct, frozen=True):
    """`control/checkpoints/ATTEMPT-STEP.json`: the SHA-256 of every file of a checkpoint, by its path in it."""

    step: int
    files: dict[str, str]
    signature: str


def hash_checkpoint(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, by its path in it. Raises `OSError` for what is no plain file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if not paths or len(paths) > FILES:
        raise OSError(f"{folder} has {len(paths)} files")
    return {path.relative_to(folder).as_posix(): _hash_file(path) for path in paths}


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is no plain file")
        while chunk := os.read(handle, CHUNK):
            digest.update(chunk)
    finally:
        os.close(handle)
    return digest.hexdigest()


def write_manifest(run: RunDirectory, attempt: int, step: int, files: dict[str, str], token: bytes) -> None:
    """Store the hashes of a checkpoint that was written just now. Raises `OSError`."""
    facts = {"step": step, "files": files}
    path = make_folder(run.path, "control", "checkpoints", mode=0o700) / f"{attempt}-{step:06d}.json"
    write_sidecar(path, facts | {"signature": signature(facts, token)})


def checkpoint_problem(run: RunDirectory, step: int, folder: Path, token: bytes) -> str:
    """Why training must not go back to this checkpoint; empty if every file is as it was when it was written."""
    if not (folder / "trainer_state.json").is_file():
        return f"there is no checkpoint of step {step}; set save_steps, or raise save_total_limit"
    attempts = (entry.name.partition("-")[0] for entry in entries(run.path / "control" / "checkpoints")
                if entry.name.endswith(f"-{step:06d}.json"))  # fmt: skip
    newest = max((int(attempt) for attempt in attempts if attempt.isdecimal()), default=None)
    if newest is None:
        return f"the checkpoint of step {step} was not hashed when it was written: nobody knows whether it is whole"
    path = run.path / "control" / "checkpoints" / f"{newest}-{step:06d}.json"
    try:
        manifest = read_sidecar(path, CheckpointManifest, MANIFEST_BYTES)
        facts = {"step": manifest.step, "files": manifest.files}
        right = signature(facts, token).encode()
        if manifest.step != step or not hmac.compare_digest(manifest.signature.encode("utf-8", "replace"), right):
            return f"{path.name} is not signed with this run's token"
        now = hash_checkpoint(folder)
    except (OSError, StoreError) as error:
        return f"the checkpoint of step {step} cannot be checked: {error}"
    damaged = sorted(name for name, digest in manifest.files.items() if now.get(name) != digest)
    if damaged:
        missing = " is missing" if damaged[0] not in now else " is not what was written"
        more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        return f"the checkpoint of step {step} is damaged: {ascii(damaged[0])[1:-1][:100]}{missing}{more}"
    return ""
