"""Find the Python that runs a model's programs, and the files that it needs: its standard library and the system's
shared libraries."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tiltmeter.errors import AttachError

NOBODY = 65534
HOME = "/py"  # its path inside the sandbox, wherever it is installed
#: Parts of the standard library that link against the system's libraries.
LINKED = ("_ctypes", "_hashlib", "_ssl", "_sqlite3", "_lzma", "_bz2", "zlib", "_decimal", "_uuid", "readline", "math")
QUERY = f"""
import json, os, sys, sysconfig
for name in {LINKED!r}:
    try:
        __import__(name)
    except ImportError:
        pass
with open("/proc/self/maps") as maps:
    mapped = sorted({{os.path.dirname(line.split(None, 5)[5].strip()) for line in maps if ".so" in line}})
print(json.dumps([sys.base_prefix, sysconfig.get_path("stdlib"), os.path.realpath(sys.executable), mapped]))
"""
PACKAGES = ("site-packages", "dist-packages")
NOT_NEEDED = (*PACKAGES, "test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip")


@dataclass(frozen=True)
class Interpreter:
    """A Python and what it needs of this machine."""

    program: str
    prefix: str
    stdlib: str
    loader: str  # of shared libraries, by the name that the program asks for; empty where it needs none
    libraries: tuple[str, ...]  # folders of the system's

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """What is shown inside, as (source, place): one folder where its libraries lie beside its standard library."""
        place = self._path_inside(self.stdlib)
        whole = Path(self.prefix) not in (Path("/usr"), Path("/"))
        folder = (str(Path(self.stdlib).parent), str(Path(place).parent)) if whole else (self.stdlib, place)
        system = [(name, name) for name in self.libraries if not Path(name).is_relative_to(folder[0])]
        loader = [(os.path.realpath(self.loader), self.loader)] if self.loader else []
        return (self.program, self._path_inside(self.program)), folder, *system, *loader

    @property
    def program_inside(self) -> str:
        return self._path_inside(self.program)

    @property
    def library_path(self) -> str:
        """Where shared libraries are looked for inside, where no path of its build is right."""
        return ":".join(dict.fromkeys([str(Path(self._path_inside(self.stdlib)).parent), *self.libraries]))

    @property
    def masked_folders(self) -> tuple[str, ...]:
        """Folders that come along with libraries and are none of the program's business: other people's packages, among
        them verifiers and the answers that they expect."""
        return _packages(self.mounts)

    def _path_inside(self, path: str) -> str:
        return str(HOME / Path(path).relative_to(self.prefix))


@cache
def _packages(mounts: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Where installed packages would be seen inside: in a standard library, or in one beside other libraries."""
    return tuple(
        str(place / folder.relative_to(source))
        for source, place in mounts
        for name in PACKAGES
        for folder in (Path(source) / name, *Path(source).glob(f"python*/{name}"))
        if folder.is_dir() and not folder.is_symlink()
    )


def find_interpreter() -> Interpreter:
    """The Python we run on, if the account that runs programs can reach it; else the system's own of the same version,
    else a copy of ours that lives as long as this process: root's home is closed to everybody else."""
    return _find(sys.base_prefix, f"python{sys.version_info.major}.{sys.version_info.minor}")


@cache
def _find(prefix: str, version: str) -> Interpreter:
    ours = f"{prefix}/bin/{version}"
    program = ours if os.access(ours, os.X_OK) else sys.executable
    candidates = [program, *filter(None, [shutil.which(version, path="/usr/bin:/usr/local/bin")])]
    refused = ""
    for candidate in candidates:
        try:
            interpreter = _query(candidate)
        except AttachError as error:
            refused = refused or str(error)
            continue
        if os.geteuid() != 0 or all(open_to_all(path) for path, _ in interpreter.mounts):
            return interpreter
    if refused:
        raise AttachError(refused)
    return _copy(_query(program))


def _query(program: str) -> Interpreter:
    """What a Python says of itself."""
    try:
        reply = subprocess.run([program, "-I", "-S", "-c", QUERY], capture_output=True, check=True, timeout=60, env={})
    except (OSError, subprocess.SubprocessError) as error:
        raise AttachError(f"the interpreter {program} cannot be asked about itself: {error}") from error
    prefix, stdlib, real, mapped = json.loads(reply.stdout)
    inner = [folder for folder in mapped if not Path(folder).is_relative_to(stdlib)]
    return Interpreter(real, prefix, stdlib, _loader(real), tuple(inner))


def open_to_all(path: str) -> bool:
    """Whether an account without any rights of its own can get there and read it.

    >>> open_to_all("/usr/bin"), open_to_all("/root/.ssh")
    (True, False)
    """
    try:
        there = Path(path).resolve(strict=True)
        passable = all(folder.stat().st_mode & stat.S_IXOTH for folder in there.parents)
        return passable and bool(there.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _copy(closed: Interpreter) -> Interpreter:
    """The same Python in a folder that everybody may read: hard links where the disk allows, else copies."""
    folder = Path(tempfile.mkdtemp(prefix="tiltmeter-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)

    def link_or_copy(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    def new_path(path: str) -> Path:
        return folder / Path(path).relative_to(closed.prefix)

    stdlib, program = new_path(closed.stdlib), new_path(closed.program)
    left_out = shutil.ignore_patterns(*NOT_NEEDED)
    shutil.copytree(closed.stdlib, stdlib, copy_function=link_or_copy, ignore=left_out)
    for library in Path(closed.stdlib).parent.glob("lib*.so*"):
        shutil.copy2(library, stdlib.parent / library.name)
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(closed.program, program)
    system = tuple(name for name in closed.libraries if not Path(name).is_relative_to(closed.prefix))
    return Interpreter(str(program), str(folder), str(stdlib), closed.loader, system)


def _loader(program: str) -> str:
    """The name under which an ELF program asks for its loader (the segment PT_INTERP)."""
    with open(program, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            raise AttachError(f"{program} is not a 64-bit Linux program")
        start, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        for entry in range(count):
            file.seek(start + entry * size)
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == 3:
                file.seek(offset)
                return file.read(length).rstrip(b"\0").decode()
    return ""
