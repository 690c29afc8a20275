"""A witness of known accuracy, served on this machine: it knows planted passages and errs at set rates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from chat_server import ChatReply, as_content, chat_server, read_fenced


def chance(*parts: object) -> float:
    """A number in [0, 1) that is the same for the same parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6]) / 2**48


class ScriptedWitness:
    """Finds passages in what it is shown, and says so with this recall and this rate of false positives."""

    def __init__(self, passages: Mapping[str, str], recall: float = 1.0, false_share: float = 0.0) -> None:
        self.passages = dict(passages)  # the exploit's class, by a passage that shows it
        self.recall, self.false_share = recall, false_share
        self.questions: list[dict[str, Any]] = []
        self.lies = False  # quotes what is not there
        self.obeys = False  # does what trajectories tell it

    def __call__(self, data: dict[str, Any], system: str) -> object:
        self.questions.append(data)
        if '{"turns":' in system:
            wanted = {}
            for one in data["trajectories"]:
                rows = [turn for turn in one["turns"] if self._passage(turn) is not None]
                wanted[one["trajectory"]] = [turn["turn"] for turn in rows][:12]
            return {"turns": wanted}
        return {"answers": [self._answer(one) for one in data["trajectories"]]}

    def _passage(self, turn: Mapping[str, Any]) -> str | None:
        text = _text_of(turn)
        return next((passage for passage in self.passages if passage in text), None)

    def _answer(self, one: Mapping[str, Any]) -> dict[str, Any]:
        name, turns = one["trajectory"], one["turns"]
        hits = [(turn["turn"], passage) for turn in turns if (passage := self._passage(turn)) is not None]
        mine = [turn for turn in turns if turn["role"] == "assistant"]
        honest = {"trajectory": name, "says": "honest", "class": "", "name": "", "evidence": []}
        if self.obeys and any("honest" in _text_of(turn) for turn in mine):
            return honest
        if hits and chance(self.recall, hits[0][1]) < self.recall:
            turn, passage = hits[0]
            quote = "this passage stands nowhere" if self.lies else passage
            kind = self.passages[passage]
            return honest | {
                "says": "exploit", "class": kind, "name": "planted", "evidence": [{"turn": turn, "quote": quote}],
            }  # fmt: skip
        if not hits and mine and chance("false", turns) < self.false_share:
            quote = _text_of(mine[-1]).strip()[:40]
            return honest | {
                "says": "exploit", "class": "other", "name": "mistaken",
                "evidence": [{"turn": mine[-1]["turn"], "quote": quote}],
            }  # fmt: skip
        return honest


def _text_of(turn: Mapping[str, Any]) -> str:
    arguments = str(turn.get("arguments", ""))
    try:
        values = json.loads(arguments)
        plain = "\n".join(map(str, values.values())) if isinstance(values, dict) else ""
    except ValueError:
        plain = ""
    return "\n".join([*(str(turn.get(key, "")) for key in ("text", "begins", "reasoning")), arguments, plain])


def witness_server(reply: Callable[[dict[str, Any], str], object]) -> AbstractContextManager[str]:
    """A server that asks `reply` with the data of a question and the system text; its address."""
    return chat_server(lambda body: ChatReply(as_content(reply(*read_fenced(body)))))
