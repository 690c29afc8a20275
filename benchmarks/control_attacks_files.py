# ruff: noqa: E501 - a table with one attack on a line
# mypy: disable-error-code="func-returns-value"
"""Attacks of `control_attacks.py` on files: requests, receipts, tokens, labels and answers."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiltmeter.cli.run.actions  # noqa: F401 - loaded before the user is changed
from tiltmeter import cli
from tiltmeter.adapters.knobs import KnobControl, LiveKnob
from tiltmeter.errors import TiltmeterError
from tiltmeter.gold.label_files import Label, LabelRequest, read_labels, write_label, write_request
from tiltmeter.gold.people import RaterAnswers, store_answer
from tiltmeter.gold.sampler import Bet
from tiltmeter.monitor.arrivals import ControlReply, EvaluationDeclared
from tiltmeter.monitor.live_arrivals import LiveArrivals
from tiltmeter.rundir import requests
from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.requests import ControlRequest
from tiltmeter.rundir.signing import read_token, signature
from tiltmeter.rundir.store import RunDirectory

Known = dict[str, Any]
BETA, PENDING = 0.06, 0.07  # of the owner: as it is, and as the owner has asked for


def request(number: int, value: float) -> ControlRequest:
    name = f"0-{number}-beta"
    return ControlRequest(f"{name}.approve", name, 0, "beta", value, "approve", "operator", expires_step=50)


class Owner:
    """Trains, with a trainer whose one knob can be changed, and watches and labels its run."""

    def __init__(self, place: Path) -> None:
        self.place, self.box = place, {"beta": 0.04}
        self.refused = ""

    def start(self) -> Known:
        try:
            return self._start()
        except (TiltmeterError, OSError) as error:
            self.refused = str(error)  # loud, at attach
            return {}

    def _start(self) -> Known:
        self.run = RunDirectory.create(self.place / "team" / "run")
        attempt = self.run.open_attempt(launch="x", ranks=1, resume_step=None)
        beta = LiveKnob("beta", lambda: self.box["beta"], lambda value: self.box.update(beta=value), 1e-6, 1.0)
        self.control = KnobControl(self.run, attempt, [beta], "act")
        self.token = read_token(self.run)
        for number, value in ((1, 0.08), (2, BETA)):
            requests.write_request(self.run, request(number, value), self.token)
            self.control.poll(number)
        requests.write_request(self.run, request(3, PENDING), self.token)
        rows = [(0, 0, row) for row in range(4)]
        bets = (Bet("slope", rows[0], rows[1], 1.0, 0.5), Bet("slope", rows[2], rows[3], 1.0, 0.5))
        self.asked = [
            LabelRequest(0, step, ((0, 0),), "ab", {"name": name, "identity": name}, 0.5, {}, bets, (0.0,) * 4, 1.0)
            for step, name in enumerate(("judge", "people"))
        ]
        for one in self.asked:
            write_request(self.run, one)
        write_label(self.run, self.asked[0], 0, Label(0.9), "judge")
        store_answer(self.run, self.asked[1], "ada", (0, 1), "a")
        self._open_to_everybody()
        files = {name: self._read(f"control/{name}") for name in self._names("control")}
        return {
            "files": files,
            "digests": [one.digest for one in self.asked],
            "id": self.run.identity()["id"],
            "labels": self._names("gold/labels/0-000000"),
            "answers": self._names("gold/people/0-000001"),
        }

    def _open_to_everybody(self) -> None:
        for folder, _, files in os.walk(self.run.path):
            Path(folder).chmod(0o777)
            for name in files if "control" in Path(folder).parts else ():
                (Path(folder) / name).chmod(0o666)

    def _names(self, folder: str) -> list[str]:
        top = self.run.path / folder
        return sorted(str(path.relative_to(top)) for path in top.rglob("*.json"))

    def _read(self, name: str) -> str:
        return (self.run.path / name).read_text()

    def check(self, seconds: float) -> list[str]:
        """What differs from what this user did. Looked at again and again for so many seconds."""
        if self.refused:
            return []
        problems: set[str] = set()
        until = time.monotonic() + seconds
        while True:
            problems |= set(self._look())
            if time.monotonic() >= until:
                return sorted(problems)

    def _look(self) -> list[str]:
        try:
            self.control.poll(6)
            problems = [] if self.box["beta"] in (BETA, PENDING) else [f"beta is {self.box['beta']}"]
            problems += self._look_at_replies()
        except (TiltmeterError, OSError):
            problems = []  # refused as a whole
        for one in self.asked:
            try:
                problems += self._look_at_labels(one)
            except (TiltmeterError, OSError):
                continue
        return problems

    def _look_at_replies(self) -> list[str]:
        problems, own = [], {f"0-{number}-beta.approve" for number in (1, 2, 3)}
        for arrival in LiveArrivals(self.run).poll():
            if isinstance(arrival, EvaluationDeclared):
                problems.append("an evaluation counts")
            if isinstance(arrival, ControlReply):
                message = arrival.message
                right = message.id in own and getattr(message, "state", "") == "applied" and message.rank == 0  # type: ignore[union-attr]
                if not right or message.after not in (0.08, BETA, PENDING):  # type: ignore[union-attr]
                    problems.append(f"{message} counts")
        return problems

    def _look_at_labels(self, one: LabelRequest) -> list[str]:
        own = {0: 0.9} if one.step == 0 else {}
        labels = {n: label.value for n, label in enumerate(read_labels(self.run, one)) if label is not None}
        wrong = [f"label {n} is {value}" for n, value in labels.items() if value is not None and own.get(n) != value]
        answers = RaterAnswers(self.run, one).read_new().history
        right = ("ada", (0, 1), "a")
        return wrong + [f"{one} counts" for one in answers if (one.rater, one.shown, one.answer) != right]

    def stolen(self, text: str) -> list[str]:
        """Whether what the attacker brought back is a secret; and whether a receipt is gone that nobody would miss."""
        if self.refused:
            return []
        problems = ["the token was read"] if self.token.decode() in text else []
        if text == "a receipt is gone" and not any("is gone" in line for line in verify(self.run)):
            problems.append("nobody would miss it")
        try:
            return problems + ([] if read_token(self.run) == self.token else ["the token is another one"])
        except TiltmeterError:
            return problems  # refused: it is not the owner's alone


class Attacker:
    """Another user, who knows what every file says, though its mode may not let them read it."""

    def __init__(self, place: Path) -> None:
        self.place, self.run = place, place / "team" / "run"
        self.known: Known = {}
        self.token = secrets.token_hex(32).encode()

    def prepare(self, name: str) -> None:
        if (before := BY_NAME[name].before) is not None:
            before(self)

    def attack(self, name: str, known: Known) -> str:
        self.known = known
        if not known:
            return ""  # the owner was told at attach, and did not start
        try:
            return str(BY_NAME[name].act(self) or "")
        except OSError:
            return ""  # the system stopped it

    # -- what most attacks are made of --------------------------------------------------------------------------------

    def put(self, name: str, content: str | bytes) -> None:
        """Write a file of one's own into the run, in place of another if need be."""
        path = self.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.parent / f"draft-{secrets.token_hex(4)}"
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.chmod(0o666)
        draft.rename(path)

    def edit(self, name: str, content: str | bytes) -> None:
        """Write into a file of the owner, which stays theirs."""
        with (self.run / name).open("r+b") as file:
            file.truncate()
            file.write(content.encode() if isinstance(content, str) else content)

    def facts(self, number: int = 3) -> dict[str, Any]:
        signed: dict[str, Any] = json.loads(self.known["files"][f"requests/0-{number}-beta.approve.json"])
        return signed

    def forge(self, token: bytes | None = None, number: int = 9, **changes: Any) -> str:
        facts = self.facts()["request"]
        facts |= {"id": f"0-{number}-beta.approve", "action": f"0-{number}-beta", "value": 0.9} | changes
        return json.dumps({"request": facts, "signature": signature(facts, self.token if token is None else token)})

    def receipt(self, number: int = 3, **changes: Any) -> str:
        facts = json.loads(self.known["files"]["receipts/0-2-beta.approve-0.json"])
        return json.dumps(facts | {"id": f"0-{number}-beta.approve", "after": 0.9} | changes)

    def label(self, step: int = 0, **changes: Any) -> str:
        facts = {"id": "0-0-1", "request": self.known["digests"][step], "value": 1.0, "why": "", "source": "judge"}
        return json.dumps(facts | changes)

    def answer(self, **changes: Any) -> str:
        facts = {"request": self.known["digests"][1], "rater": "eve", "shown": [0, 1], "answer": "b", "time": 1.0}
        return json.dumps(facts | {"repeat": False} | changes)

    def replace_folder(self, name: str, content: dict[str, str]) -> None:
        """Put a link to a folder of one's own in place of a folder of the run."""
        other = self.place / "team" / f"other-{secrets.token_hex(4)}"
        other.mkdir()
        for inner, text in content.items():
            (other / inner).parent.mkdir(parents=True, exist_ok=True)
            (other / inner).write_text(text)
        (self.run / name).rename(self.run / f"{name}.old")
        (self.run / name).symlink_to(other)

    def flip(self, name: str, other: str, seconds: float = 0.5) -> None:
        """Rename a forged file over the owner's and back, as fast as it goes."""
        path, aside = self.run / name, self.run / f"{name}.aside"
        path.rename(aside)
        forged = self.run / f"{name}.forged"
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            forged.write_text(other)
            forged.rename(path)
            aside.rename(path)
            path.rename(aside)
        aside.rename(path)

    def cli(self, *words: str) -> None:
        sys.argv = ["tiltmeter", *words]
        quiet = os.open("/dev/null", os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            cli.main()
        except SystemExit:
            pass


@dataclass(frozen=True)
class FileAttack:
    name: str
    act: Callable[[Attacker], object]
    before: Callable[[Attacker], object] | None = None  # done before the owner attaches
    needs_user: bool = True  # another one than the owner
    open_home: bool = False  # everybody may write to where the owner keeps tokens
    as_owner: bool = False  # it is the owner's own act
    race: float = 0.0  # seconds for which the owner looks meanwhile


ASK = "control/requests/0-9-beta.approve.json"
ANSWER = "control/receipts/0-3-beta.approve-0.json"
SAID = "gold/labels/0-000000"
PEOPLE = "gold/people/0-000001"
OWN = "control/requests/0-3-beta.approve.json"


def _link(attacker: Attacker, name: str, make: Callable[[Path], object]) -> None:
    (attacker.run / name).parent.mkdir(parents=True, exist_ok=True)
    make(attacker.run / name)


def _copy_of(attacker: Attacker, text: str) -> Path:
    path = attacker.place / "team" / f"copy-{secrets.token_hex(4)}.json"
    path.write_text(text)
    return path


def _seat(attacker: Attacker, *folders: str) -> None:
    """Make folders before their owner does."""
    for name in folders:
        folder = attacker.place / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)


def _wait_with_token(attacker: Attacker) -> None:
    """A run and its token, both made before the owner comes."""
    _seat(attacker, "team/run", "owner/state", "owner/state/tiltmeter")
    (attacker.run / "run.json").write_text(json.dumps({"format": 1, "id": "0" * 16, "name": "run"}))
    token = attacker.place / "owner/state/tiltmeter" / f"{'0' * 16}.token"
    token.write_bytes(attacker.token)
    token.chmod(0o600)


def _swap_token(attacker: Attacker) -> None:
    token = attacker.place / f"owner/state/tiltmeter/{attacker.known['id']}.token"
    token.unlink()
    token.write_bytes(attacker.token)
    attacker.put(ASK, attacker.forge())


ATTACKS: tuple[FileAttack, ...] = (
    # -- requests
    FileAttack("request: no signature", lambda a: a.put(ASK, json.dumps({"request": json.loads(a.forge())["request"]}))),
    FileAttack("request: empty signature", lambda a: a.put(ASK, json.dumps(json.loads(a.forge()) | {"signature": ""}))),
    FileAttack("request: signature null", lambda a: a.put(ASK, json.dumps(json.loads(a.forge()) | {"signature": None}))),
    FileAttack("request: signed with an empty key", lambda a: a.put(ASK, a.forge(b""))),
    FileAttack("request: signed with another run's token", lambda a: a.put(ASK, a.forge())),
    FileAttack("request: signed with the run's id", lambda a: a.put(ASK, a.forge(a.known["id"].encode()))),
    FileAttack("request: another value, in the owner's file", lambda a: a.edit(OWN, json.dumps({"request": a.facts()["request"] | {"value": 0.9}, "signature": a.facts()["signature"]}))),
    FileAttack("request: another knob, in the owner's file", lambda a: a.edit(OWN, json.dumps({"request": a.facts()["request"] | {"knob": "stop"}, "signature": a.facts()["signature"]}))),
    FileAttack("request: a value twice, in the owner's file", lambda a: a.edit(OWN, a.known["files"]["requests/0-3-beta.approve.json"].replace('"value": 0.07', '"value": 0.07, "value": 0.9'))),
    FileAttack("request: the owner's, made longer-lived", lambda a: a.edit(OWN, json.dumps({"request": a.facts(1)["request"] | {"expires_step": 10**6}, "signature": a.facts(1)["signature"]}))),
    FileAttack("request: signature in capitals", lambda a: a.edit(OWN, json.dumps(a.facts() | {"signature": a.facts()["signature"].upper()}))),
    FileAttack("request: an old one under a new name", lambda a: a.put(ASK, json.dumps(a.facts(1)))),
    FileAttack("request: an old one, in the owner's file", lambda a: a.edit(OWN, json.dumps(a.facts(1)))),
    FileAttack("request: an old one again, its receipt removed", lambda a: ((a.run / "control/receipts/0-1-beta.approve-0.json").unlink(), (a.run / "control/requests/0-1-beta.approve.json").rename(a.run / "control/requests/x"), (a.run / "control/requests/x").rename(a.run / "control/requests/0-1-beta.approve.json"))),
    FileAttack("request: renamed to look new", lambda a: (a.run / "control/requests/0-1-beta.approve.json").rename(a.run / ASK)),
    FileAttack("request: of an attempt to come", lambda a: a.put(ASK, a.forge(attempt=1))),
    FileAttack("request: that never expires", lambda a: a.put(ASK, a.forge(expires_step=None, expires_time=1e12))),
    FileAttack("request: apply, as the monitor", lambda a: a.put("control/requests/0-9-beta.apply.json", a.forge(id="0-9-beta.apply", kind="apply", who="monitor"))),
    FileAttack("request: reject what waits", lambda a: a.put("control/requests/0-9-beta.reject.json", a.forge(id="0-9-beta.reject", kind="reject"))),
    FileAttack("request: a note on an alarm", lambda a: a.put("control/requests/note-1.json", a.forge(id="note-1", kind="note", text="false alarm"))),
    FileAttack("request: not a number", lambda a: a.put(ASK, a.forge(value=float("nan")))),
    FileAttack("request: a list for a value", lambda a: a.put(ASK, a.forge(value=[0.9]))),
    FileAttack("request: 10 MB", lambda a: a.put(ASK, a.forge(text="x" * 10_000_000))),
    FileAttack("request: nested 100,000 deep", lambda a: a.put(ASK, b"[" * 100_000 + b"]" * 100_000)),
    FileAttack("request: a symbolic link to a copy", lambda a: _link(a, ASK, lambda p: p.symlink_to(_copy_of(a, a.forge())))),
    FileAttack("request: a symbolic link to the owner's", lambda a: _link(a, ASK, lambda p: p.symlink_to(a.run / OWN))),
    FileAttack("request: a hard link to the owner's", lambda a: _link(a, ASK, lambda p: p.hardlink_to(a.run / OWN))),
    FileAttack("request: a pipe", lambda a: _link(a, ASK, os.mkfifo)),
    FileAttack("request: a folder", lambda a: _link(a, ASK, lambda p: p.mkdir())),
    FileAttack("request: folder replaced by a link", lambda a: a.replace_folder("control/requests", {"0-9-beta.approve.json": a.forge()})),
    FileAttack("request: control replaced by a link", lambda a: a.replace_folder("control", {"requests/0-9-beta.approve.json": a.forge()})),
    FileAttack("request: renamed back and forth while it is read", lambda a: a.flip(OWN, a.forge(number=3)), race=0.5),
    FileAttack("request: control made before the owner attached", lambda a: a.put(ASK, a.forge()), before=lambda a: _seat(a, "team/run", "team/run/control", "team/run/control/requests")),
    FileAttack("request: a run made before its owner", lambda a: a.put(ASK, a.forge()), before=lambda a: _seat(a, "team/run")),
    FileAttack("limits: a higher ceiling in knobs-0.json", lambda a: (a.edit("control/knobs-0.json", a.known["files"]["knobs-0.json"].replace('"ceiling": 1.0', '"ceiling": 99.0')), a.put(ASK, a.forge(value=9.0)))),
    FileAttack("agent: approves by command line, without the token", lambda a: a.cli("approve", str(a.run), "0-3-beta"), needs_user=False),
    # -- receipts
    FileAttack("receipt: forged, applied", lambda a: a.put(ANSWER, a.receipt())),
    FileAttack("receipt: forged, refused", lambda a: a.put(ANSWER, a.receipt(state="refused", why="no"))),
    FileAttack("receipt: unsigned", lambda a: a.put(ANSWER, json.dumps({k: v for k, v in json.loads(a.receipt()).items() if k != "signature"}))),
    FileAttack("receipt: signed with another run's key", lambda a: a.put(ANSWER, a.receipt(signature=signature({}, a.token)))),
    FileAttack("receipt: another value, in the owner's file", lambda a: a.edit("control/receipts/0-2-beta.approve-0.json", a.receipt(2))),
    FileAttack("receipt: of another rank, in the owner's file", lambda a: a.edit("control/receipts/0-2-beta.approve-0.json", a.receipt(2, rank=1))),
    FileAttack("receipt: the owner's under another name", lambda a: (a.run / "control/receipts/0-2-beta.approve-0.json").rename(a.run / ANSWER)),
    FileAttack("receipt: removed between two others", lambda a: ((a.run / "control/receipts/0-1-beta.approve-0.json").unlink(), "a receipt is gone")[1]),
    FileAttack("receipt: a symbolic link", lambda a: _link(a, ANSWER, lambda p: p.symlink_to(_copy_of(a, a.receipt())))),
    FileAttack("receipt: a pipe", lambda a: _link(a, ANSWER, os.mkfifo)),
    FileAttack("receipt: renamed back and forth while it is read", lambda a: a.flip("control/receipts/0-2-beta.approve-0.json", a.receipt(2)), race=0.5),
    # -- tokens
    FileAttack("token: read", lambda a: (a.place / f"owner/state/tiltmeter/{a.known['id']}.token").read_text()),
    FileAttack("token: its folder listed", lambda a: " ".join(os.listdir(a.place / "owner/state/tiltmeter"))),  # noqa: PTH208
    FileAttack("token: replaced", lambda a: (a.place / f"owner/state/tiltmeter/{a.known['id']}.token").write_bytes(a.token)),
    FileAttack("token: the run's identity changed to another's", lambda a: a.put("run.json", json.dumps({"format": 1, "id": "0" * 16, "name": "run"}))),
    FileAttack("token: the owner's, through a link in the run", lambda a: (a.replace_folder("gold/labels", {}), (a.run / "control/requests/0-8-beta.approve.json").symlink_to(a.place / f"owner/state/tiltmeter/{a.known['id']}.token"))),
    FileAttack("token: waits for the owner", lambda a: a.put(ASK, a.forge()), before=_wait_with_token, open_home=True),
    FileAttack("token: swapped in a folder of everybody's", _swap_token, before=lambda a: _seat(a, "owner/state", "owner/state/tiltmeter"), open_home=True),
    FileAttack("token: asked of the environment of the trainer", lambda a: " ".join(_environments())),
    # -- labels
    FileAttack("label: by somebody else", lambda a: a.put(f"{SAID}/1.json", a.label())),
    FileAttack("label: in place of the owner's", lambda a: a.put(f"{SAID}/0.json", a.label(value=0.0))),
    FileAttack("label: the owner's, for another row", lambda a: (a.run / f"{SAID}/0.json").rename(a.run / f"{SAID}/2.json")),
    FileAttack("label: of a row that was not asked", lambda a: a.put(f"{SAID}/7.json", a.label())),
    FileAttack("label: of a step that was not asked", lambda a: a.put("gold/labels/0-000005/0.json", a.label())),
    FileAttack("label: all of them in one file", lambda a: a.put(f"{SAID}/all.json", json.dumps({"request": a.known["digests"][0], "values": [1.0] * 4}))),
    FileAttack("label: a symbolic link", lambda a: _link(a, f"{SAID}/1.json", lambda p: p.symlink_to(_copy_of(a, a.label())))),
    FileAttack("label: a symbolic link to the owner's", lambda a: _link(a, f"{SAID}/1.json", lambda p: p.symlink_to(a.run / f"{SAID}/0.json"))),
    FileAttack("label: a pipe", lambda a: _link(a, f"{SAID}/1.json", os.mkfifo)),
    FileAttack("label: folder replaced by a link", lambda a: a.replace_folder(SAID, {"1.json": a.label()})),
    FileAttack("label: another request in place of the owner's", lambda a: (a.put("gold/requests/0-000000.jsonl", "{}"), a.put(f"{SAID}/1.json", a.label()))),
    FileAttack("answer: by somebody else", lambda a: a.put(f"{PEOPLE}/0-1.{'0' * 16}.json", a.answer())),
    FileAttack("answer: in a rater's name", lambda a: a.put(f"{PEOPLE}/0-1.{'1' * 16}.json", a.answer(rater="ada"))),
    FileAttack("answer: in place of the owner's", lambda a: a.put(f"{PEOPLE}/{a.known['answers'][0]}", a.answer(rater="ada"))),
    FileAttack("answer: a rater's taken back", lambda a: a.put(f"{PEOPLE}/undo.{'0' * 16}.json", json.dumps({"undo": a.known["answers"][0]}))),
    FileAttack("evaluation: by somebody else", lambda a: a.put("evals/0-1-gsm8k.json", json.dumps({"name": "gsm8k", "value": 0.9, "n": 10}))),
)  # fmt: skip
#: What the owner may do, and must show as a difference: the harness is not blind.
LEGAL: tuple[FileAttack, ...] = (
    FileAttack("seen: a request with the token", lambda a: a.put(ASK, a.forge(_stolen(a))), as_owner=True),
    FileAttack("seen: a label of the owner", lambda a: a.put(f"{SAID}/1.json", a.label()), as_owner=True),
)


def _environments() -> list[str]:
    texts = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return texts


def _stolen(attacker: Attacker) -> bytes:
    return (attacker.place / f"owner/state/tiltmeter/{attacker.known['id']}.token").read_bytes()


BY_NAME = {one.name: one for one in (*ATTACKS, *LEGAL)}
