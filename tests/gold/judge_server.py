"""A judge's server on this machine, whose replies a test decides."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tests.shared_fixtures import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))

from chat_server import ChatReply, chat_server


class JudgeReply(NamedTuple):
    """What the model says, or a status that is none of success."""

    says: object
    status: int = 200
    headers: Mapping[str, str] = {}


def judge_server(reply: Callable[[dict[str, Any], str], JudgeReply]) -> AbstractContextManager[str]:
    """The server's address. `reply` gets the data of a question, and the system text."""

    def answer(body: dict[str, Any]) -> ChatReply:
        system, user = (message["content"] for message in body["messages"])
        said = reply(json.loads(user.split("\n")[1]), system)
        return ChatReply(json.dumps(said.says), said.status, said.headers)

    return chat_server(answer)
