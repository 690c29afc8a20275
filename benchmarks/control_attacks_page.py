# ruff: noqa: E501 - a table with one attack on a line
"""Attacks of `control_attacks.py` on the page: by whoever reaches its address, with less than the right token."""

from __future__ import annotations

import json
import re
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Action
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir import journal
from tiltmeter.rundir.requests import Knob, publish_knobs
from tiltmeter.rundir.signing import make_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.server.access import Person, RateLimiter
from tiltmeter.view.server.app import App, assets
from tiltmeter.view.server.serve import ServerOptions, config, open_server

Known = dict[str, Any]
STEPS, ROWS = 3, 16
PAGE = assets()  # read here: the owner may be unable to read the project's files
WAITING = Action("0-2-beta", 0, 2, "length_hacking", "beta", 0.04, 0.08, "because")


class Owner:
    """Serves the page of a run with a proposal to approve and pairs to label."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def start(self) -> Known:
        self.run = RunDirectory.create(self.place / "team" / "run")
        attempt = self.run.open_attempt(launch="x", ranks=1, resume_step=None)
        publish_knobs(self.run, attempt, "advise", {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
        token = make_token(self.run)
        rng = np.random.default_rng(0)
        for step in range(STEPS):
            texts = [f"answer {step} {row}" for row in range(ROWS)]
            batch = from_columns(
                step, np.repeat(np.arange(4), 4), reward=rng.normal(size=ROWS), prompt=["q"] * ROWS, completion=texts
            )
            self.run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
        standard = Config.standard()
        few = tuple(part for part in standard.instruments if part.name in ("reward.mean", "gold.mean", "gold.slope"))
        loop = MonitorLoop(self.run, Config(few, (), standard.detectors).with_gold(PeopleSource(1), 0.5), strict=True)
        loop.poll()
        loop.close()
        book = journal.Journal(self.run.path / "events", len(journal.read_events(self.run.path / "events")))
        book.commit([journal.event(WAITING, 0, STEPS - 1, "c")])
        book.close()
        self.handle = open_server(ServerOptions([self.run.path], port=0, control=True, raters=["ada", "bob"]))
        state = self.handle.state
        state.rate, state.control_rate = RateLimiter(1e9), RateLimiter(1e9)  # refused for what they are, not how often
        server = uvicorn.Server(config(App(state, PAGE)))
        threading.Thread(target=server.run, kwargs={"sockets": [self.handle.sock]}, daemon=True).start()
        keys = self.handle.tokens
        assert keys is not None  # it is a server without accounts
        self.tokens = {
            "view": keys.redeem_code(keys.issue_code(Person({"view"})))[0],
            **{name: keys.redeem_code(keys.issue_code(Person({"label"}, name)))[0] for name in ("ada", "bob")},
            "control": keys.control_path.read_text(),
        }
        self.private = [self.tokens["control"], self.tokens["ada"], token.decode()]
        [run] = state.run_list.ids()
        # The attacker may look, and is a rater too: an agent that was given both, and no right to act or to answer as ada.
        return {"port": self.handle.port, "run": run, "view": self.tokens["view"], "bob": self.tokens["bob"]}

    def state(self) -> dict[str, Any]:
        """Everything that a request can change, by what it is."""
        names = {
            "requests": "control/requests",
            "answers": "gold/people",
            "picked": "gold/picked",
            "labels": "gold/labels",
        }
        found = {what: sorted(map(str, (self.run.path / name).rglob("*"))) for what, name in names.items()}
        assert self.handle.tokens is not None
        folder = self.handle.tokens.folder
        tokens = [(folder / f"{role}.token").read_text() for role in ("view", "label", "control")]
        return found | {"tokens": tokens}

    def stolen(self, text: str) -> list[str]:
        return ["a token was read"] if any(secret in text for secret in self.private) else []

    def secrets(self) -> Known:
        return {"ada": self.tokens["ada"], "control": self.tokens["control"]}


class Attacker:
    """Sends bytes of its own making to the page's port."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known: Known = {}

    def attack(self, name: str, known: Known) -> str:
        self.known = known
        try:
            return ({**ATTACKS, **LEGAL})[name](self)
        except OSError:
            return ""

    def send(self, raw: bytes) -> str:
        with socket.create_connection(("127.0.0.1", self.known["port"]), 10.0) as connection:
            connection.sendall(raw)
            connection.settimeout(3.0)
            answer = b""
            try:
                while piece := connection.recv(65536):
                    answer += piece
            except TimeoutError:
                pass
            return answer.decode("latin-1")

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *more: str,
        auth: str | None = "view",
        kind: str = "json",
        host: str = "",
    ) -> str:
        """A request with these headers; `auth`: whose token, or a header's value as it stands, or None."""
        text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or self.host}", "Connection: close"]
        if auth is not None:
            lines.append(f"Authorization: {f'Bearer {self.known[auth]}' if auth in self.known else auth}")
        if body is not None:
            lines += [f"Content-Type: application/{kind}", f"Content-Length: {len(text)}"]
        return self.send("\r\n".join([*lines, *more, "", ""]).encode("latin-1") + text)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.known['port']}"

    @property
    def order(self) -> dict[str, Any]:
        facts = {"run": self.known["run"], "kind": "approve", "target": WAITING.id, "step": STEPS - 1, "reason": ""}
        return facts | {"nonce": secrets.token_hex(16)}

    def act(self, *more: str, **how: Any) -> str:
        """Approve what waits, with other headers."""
        return self.ask("POST", "/api/control", how.pop("body", self.order), *more, **how)

    def task(self, who: str) -> str:
        match = re.search(r'"task":\s?"([\w-]+)"', self.ask("GET", "/api/label/next", auth=who, body=None))
        return match[1] if match else "0" * 32

    def label(self, task: str, auth: str | None, answer: str = "a", **how: Any) -> str:
        return self.ask("POST", "/api/label", {"task": task, "answer": answer, "milliseconds": 5}, auth=auth, **how)


def _guess(attacker: Attacker) -> str:
    answers = [attacker.act(f"Tiltmeter-Control: {secrets.token_hex(32)}") for _ in range(50)]
    return "".join(answers)


def _codes(attacker: Attacker) -> str:
    guesses = (secrets.token_urlsafe(24) for _ in range(50))
    return "".join(attacker.ask("POST", "/api/login", {"code": code}, auth=None) for code in guesses)


def _smuggle(attacker: Attacker, first: str) -> str:
    order = json.dumps(attacker.order).encode()
    inner = f"POST /api/control HTTP/1.1\r\nHost: {attacker.host}\r\nAuthorization: Bearer {attacker.known['view']}\r\n"
    inner += f"Content-Type: application/json\r\nContent-Length: {len(order)}\r\n\r\n"
    outer = f"POST /api/login HTTP/1.1\r\nHost: {attacker.host}\r\nContent-Type: application/json\r\n{first}\r\n\r\n0\r\n\r\n"
    return attacker.send(outer.encode() + inner.encode() + order)


def _files(attacker: Attacker) -> str:
    """The page's own tokens, as files."""
    texts = [path.read_text() for path in (attacker.place / "owner" / "state").rglob("*.token")]
    return " ".join(texts)


def _sideways(attacker: Attacker) -> str:
    """Approve over and over while the view token is changed in its letters, one at a time."""
    token, answers = attacker.known["view"], []
    for at in range(0, 64, 8):
        other = "0" if token[at] != "0" else "1"
        answers.append(attacker.act(auth=f"Bearer {token[:at]}{other}{token[at + 1 :]}"))
    return "".join(answers)


CONTROL = "Tiltmeter-Control: "
ATTACKS: dict[str, Callable[[Attacker], str]] = {
    "control: no token at all": lambda a: a.act(auth=None),
    "control: the view token alone": lambda a: a.act(),
    "control: an empty control token": lambda a: a.act(CONTROL),
    "control: the view token as control token": lambda a: a.act(CONTROL + a.known["view"]),
    "control: a rater's token": lambda a: a.act(CONTROL + "x", auth="bob"),
    "control: fifty guesses": _guess,
    "control: the token in the query": lambda a: a.ask("POST", f"/api/control?token={a.known['view']}", a.order),
    "control: the token in the body": lambda a: a.act(body=a.order | {"token": "x", "control": "x"}),
    "control: an empty bearer": lambda a: a.act(CONTROL, auth="Bearer "),
    "control: bearer in small letters": lambda a: a.act(CONTROL, auth=f"bearer {a.known['view']}"),
    "control: the token in capitals": lambda a: a.act(CONTROL, auth=f"Bearer {a.known['view'].upper()}"),
    "control: the token with a letter changed": _sideways,
    "control: basic authentication": lambda a: a.act(auth="Basic dmlldzp2aWV3"),
    "control: a cookie": lambda a: a.act(f"Cookie: token={a.known['view']}", auth=None),
    "control: two authorizations": lambda a: a.act(f"Authorization: Bearer {a.known['view']}"),
    "control: two control tokens": lambda a: a.act(CONTROL + "x", CONTROL + "y"),
    "control: another host": lambda a: a.act(host=f"evil.example:{a.known['port']}"),
    "control: a host without a port": lambda a: a.act(host="127.0.0.1"),
    "control: two hosts": lambda a: a.act("Host: evil.example"),
    "control: forwarded as another host": lambda a: a.act("X-Forwarded-Host: localhost", host="evil.example"),
    "control: forwarded from this machine": lambda a: a.act("X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", auth=None),
    "control: another origin": lambda a: a.act("Origin: http://evil.example"),
    "control: origin null": lambda a: a.act("Origin: null"),
    "control: another port's origin": lambda a: a.act("Origin: http://127.0.0.1:1"),
    "control: another site": lambda a: a.act("Sec-Fetch-Site: cross-site"),
    "control: a form": lambda a: a.act(kind="x-www-form-urlencoded", body=b"run=x&kind=approve"),
    "control: as GET": lambda a: a.ask("GET", f"/api/control?run={a.known['run']}&kind=approve&target={WAITING.id}"),
    "control: GET that says it is POST": lambda a: a.ask("GET", "/api/control", None, "X-HTTP-Method-Override: POST"),
    "control: a request within a request": lambda a: _smuggle(a, "Content-Length: 5\r\nTransfer-Encoding: chunked"),
    "control: a request behind a refused one": lambda a: _smuggle(a, "Transfer-Encoding: chunked"),
    "control: 10 MB": lambda a: a.act(CONTROL + "x", body=a.order | {"reason": "x" * 10_000_000}),
    "control: nested 10,000 deep": lambda a: a.act(CONTROL + "x", body=b"[" * 10_000 + b"]" * 10_000),
    "control: a path for a run": lambda a: a.act(CONTROL + "x", body=a.order | {"run": "../../owner"}),
    "login: fifty guesses": _codes,
    "login: an empty code": lambda a: a.ask("POST", "/api/login", {"code": ""}, auth=None),
    "login: a code that is no text": lambda a: a.ask("POST", "/api/login", {"code": [1]}, auth=None),
    "token: read from its file": _files,
    "token: as a file of the page": lambda a: a.ask("GET", "/../../owner/state/tiltmeter/dashboard/control.token"),
    "token: as an escaped path": lambda a: a.ask("GET", "/..%2f..%2fowner%2fstate%2ftiltmeter%2fdashboard%2fcontrol.token"),
    "label: no token": lambda a: a.label(a.task("bob"), None),
    "label: the view token": lambda a: a.label(a.task("bob"), "view"),
    "label: another rater's name in front of the token": lambda a: a.label(a.task("bob"), f"Bearer ada.{a.known['bob'].rpartition('.')[2]}"),
    "label: a rater who is not one": lambda a: a.label("0" * 32, f"Bearer eve.{'0' * 64}"),
    "label: a task that was not asked": lambda a: a.label("0" * 32, "bob"),
    "label: an answer that is none": lambda a: a.label(a.task("bob"), "bob", "1.5"),
    "label: with a row of one's choice": lambda a: a.ask("POST", "/api/label", {"task": a.task("bob"), "answer": "a", "milliseconds": 5, "shown": [7, 8]}, auth="bob"),
    "label: from another origin": lambda a: a.ask("POST", "/api/label", {"task": a.task("bob"), "answer": "a", "milliseconds": 5}, "Origin: http://evil.example", auth="bob"),
    "label: another rater's answer taken back": lambda a: a.ask("POST", "/api/label/undo", None, auth=f"Bearer ada.{a.known['bob'].rpartition('.')[2]}"),
    "label: asked for as a viewer": lambda a: a.act(body=a.order | {"kind": "label", "target": "0-0-0"}),
}  # fmt: skip
#: With the right tokens: the harness is not blind.
LEGAL: dict[str, Callable[[Attacker], str]] = {
    "seen: approved": lambda a: a.act(CONTROL + a.known["control"]),
    "seen: labelled": lambda a: a.label(a.task("ada"), "ada"),
}
