"""Attacks on control, labels and tokens by another local user, an agent without rights or a network neighbour.

    python benchmarks/control_attacks.py [--json] [--write] [--only NAME]

As root, the run's owner and the attacker are processes of two other users, and the attacker really writes, links,
renames and connects; otherwise attacks that need another user are left out. Files are attacked in a run whose owner
has opened its folders, and the files of `control/`, to everybody. An attack is applied if a knob, an accepted request,
receipt, decision, evaluation or label, or a file that the page writes differs from what the owner did, or if the
attacker has read a token. Acts of the owner show that a difference would be seen (`seen` of `legal`).
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import contextlib
import importlib
import logging
import multiprocessing
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import control_attacks_files
import control_attacks_page
from record import record, show

OWNER, ATTACKER = 60001, 60002
SECONDS = 30.0
FORK = multiprocessing.get_context("fork")


def become(user: int, home: Path) -> None:
    """For the rest of this process."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    os.umask(0o022)
    os.environ["HOME"] = str(home)
    os.environ["XDG_STATE_HOME"] = str(home / "state")
    logging.disable(logging.CRITICAL)
    os.chdir(home)


class Process:
    """A forked process of a user, which answers calls by name."""

    def __init__(self, user: int, home: Path, make: Callable[[], Any]) -> None:
        self._here, there = FORK.Pipe()
        self._process = FORK.Process(target=_serve, args=(there, user, home, make), daemon=True)
        self._process.start()
        there.close()

    def call(self, name: str, *arguments: Any) -> Any:
        self.begin(name, *arguments)
        return self.end()

    def begin(self, name: str, *arguments: Any) -> None:
        self._here.send((name, arguments))

    def end(self) -> Any:
        if not self._here.poll(SECONDS):
            raise TimeoutError("a process hangs")
        good, answer = self._here.recv()
        if not good:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()


def _serve(pipe: Connection, user: int, home: Path, make: Callable[[], Any]) -> None:
    become(user, home)
    target: Any = None
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            target = make() if target is None else target
            answer = True, list(sys.modules) if name == "modules" else getattr(target, name)(*arguments)
        except BaseException:  # noqa: BLE001 - whatever it is, the other side says it
            answer = False, traceback.format_exc()
        pipe.send(answer)


def make_place(place: Path) -> None:
    """A folder of the owner, one of the attacker, and one that everybody may write to."""
    place.chmod(0o755)
    for name, user, mode in (("owner", OWNER, 0o700), ("attacker", ATTACKER, 0o700), ("team", 0, 0o777)):
        folder = place / name
        folder.mkdir()
        folder.chmod(mode)
        if os.geteuid() == 0:
            os.chown(folder, user, user)


def load_modules() -> None:
    """Import what a round imports on its way: the two users may be unable to read the interpreter's files."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-attack-") as name:
        place = Path(name)
        make_place(place)
        owner = Process(os.geteuid(), place / "owner", lambda: control_attacks_page.Owner(place))
        attacker = Process(os.geteuid(), place / "attacker", lambda: control_attacks_page.Attacker(place))
        try:
            known = owner.call("start")
            attacker.call("attack", next(iter(control_attacks_page.LEGAL)), known | owner.call("secrets"))
            for module in owner.call("modules") + attacker.call("modules"):
                with contextlib.suppress(ImportError):  # some are made by other modules and have no file
                    importlib.import_module(module)
        finally:
            attacker.close()
            owner.close()


def attack_files(attack: control_attacks_files.FileAttack) -> list[str]:
    """What was applied of one attack on files."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-attack-") as name:
        place = Path(name)
        make_place(place)
        owner = Process(OWNER, place / "owner", lambda: control_attacks_files.Owner(place))
        user = OWNER if attack.as_owner else ATTACKER
        attacker = Process(
            user, place / ("owner" if attack.as_owner else "attacker"), lambda: control_attacks_files.Attacker(place)
        )
        if attack.open_home:
            (place / "owner").chmod(0o777)
        try:
            attacker.call("prepare", attack.name)
            known = owner.call("start")
            if attack.race:
                owner.begin("check", attack.race)
                stolen = attacker.call("attack", attack.name, known)
                problems: list[str] = owner.end()
            else:
                stolen = attacker.call("attack", attack.name, known)
                problems = owner.call("check", 0.0)
            return [*problems, *owner.call("stolen", stolen)]
        finally:
            attacker.close()
            owner.close()
            shutil.rmtree(place / "team", ignore_errors=True)


def attack_page(only: str | None, applied: dict[str, list[str]]) -> tuple[int, int]:
    """Attacks on one running page, one after the other; how many, and how many legal requests were seen."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-attack-") as name:
        place = Path(name)
        make_place(place)
        owner = Process(OWNER, place / "owner", lambda: control_attacks_page.Owner(place))
        attacker = Process(ATTACKER, place / "attacker", lambda: control_attacks_page.Attacker(place))
        names = [one for one in control_attacks_page.ATTACKS if only is None or only in one]
        try:
            known = owner.call("start")
            for number, one in enumerate(names):
                before = owner.call("state")
                stolen = attacker.call("attack", one, known)
                problems = [f"{key} changed" for key, value in owner.call("state").items() if value != before[key]]
                problems += owner.call("stolen", stolen)
                say(number, one, problems, applied)
            seen = 0
            for act in control_attacks_page.LEGAL:
                before = owner.call("state")
                attacker.call("attack", act, known | owner.call("secrets"))
                seen += owner.call("state") != before
            return len(names), seen
        finally:
            attacker.close()
            owner.close()


def say(number: int, name: str, problems: list[str], applied: dict[str, list[str]]) -> None:
    if problems:
        applied[name] = problems
    print(f"{number:3} {'APPLIED' if problems else 'refused'}  {name} {problems or ''}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record it in benchmarks/results/control_attacks.json")
    parser.add_argument("--only", metavar="NAME", help="only attacks whose name has this in it")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth attack on files")
    options = parser.parse_args()
    root, applied = os.geteuid() == 0, dict[str, list[str]]()
    chosen = [one for one in control_attacks_files.ATTACKS if (root or not one.needs_user)]
    chosen = [one for one in chosen if options.only is None or options.only in one.name][:: options.every]
    load_modules()
    for number, attack in enumerate(chosen):
        say(number, attack.name, attack_files(attack), applied)
    legal = [bool(attack_files(one)) for one in control_attacks_files.LEGAL] if root else []
    on_page, seen_on_page = attack_page(options.only, applied)
    expected = (len(control_attacks_files.LEGAL) if root else 0) + len(control_attacks_page.LEGAL)
    figures = {
        "attacks": len(chosen) + on_page,
        "applied": len(applied),
        "on_files": len(chosen),
        "on_page": on_page,
        "other_users": root,
        "seen": sum(legal) + seen_on_page,
        "legal": expected,
        "which": applied,
    }
    show(record("control_attacks", figures, seed=0, keep=options.write), as_json=options.json)
    return int(bool(applied) or figures["seen"] != expected)


if __name__ == "__main__":
    sys.exit(main())
