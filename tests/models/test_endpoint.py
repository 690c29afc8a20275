"""A model on a server: what is sent, what counts as an answer, and what happens when it does not come."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter.models.chat import endpoint as module
from tiltmeter.models.chat.endpoint import ChatError
from tiltmeter_workbench.common.chat_endpoint import EXAMPLE, MAX_FAILURES, ChatEndpoint, read_answer, read_endpoint
from tiltmeter_workbench.common.chat_model import ChatAnswer, all_answers
from tiltmeter_workbench.common.open_chat import open_model
from workbench_tests.constitution.scripted import Scripted, serving

pytest.importorskip("httpx")

SECRET = "sk-not-for-anybody"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def asking(server: Scripted, **settings: Any) -> ChatEndpoint:
    return ChatEndpoint(server.url, "small", **{"timeout": 5.0, **settings})


def test_every_sample_is_a_request_with_its_own_seed_and_the_answers_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL_KEY", SECRET)
    with serving(Scripted(says=lambda body: f"{body['messages'][-1]['content']} {body['seed']}")) as server:
        told = all_answers(
            asking(server, key_env="MODEL_KEY"), ["a", "b", "c"], samples=2, limit=7, temperature=0.5, seed=1
        )
        again = all_answers(asking(server, key_env="MODEL_KEY"), ["b"], samples=2, limit=7, temperature=0.5, seed=1)
    assert [[answer.text.split()[0] for answer in answers] for answers in told] == [["a"] * 2, ["b"] * 2, ["c"] * 2]
    assert len({answer.text for answers in told for answer in answers}) == 6
    assert again == [told[1]], "what else is asked does not change a seed"
    assert server.keys == {f"Bearer {SECRET}"}
    assert {(body["model"], body["max_tokens"], body["temperature"]) for body in server.asked} == {("small", 7, 0.5)}
    assert server.asked[0]["messages"] == [{"role": "user", "content": server.asked[0]["messages"][0]["content"]}]


def test_a_busy_server_is_asked_again_and_waited_for_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tiltmeter.models.chat.endpoint.time.sleep", slept.append)
    busy = Scripted(status=lambda body, before: (429, 503, 200)[before], headers={"Retry-After": "7"})
    with serving(busy) as server:
        assert all_answers(asking(server), ["a"])[0][0].ended
    assert len(server.asked) == 3
    assert [wait for wait in slept if wait] == [7.0, 7.0]


def test_what_fails_is_left_out_and_named_when_all_else_was_given() -> None:
    def status(body: dict[str, Any], before: int) -> int:
        return 400 if body["messages"][-1]["content"] == "b" else 200

    got = []
    with serving(Scripted(status=status)) as server, pytest.raises(ChatError, match=r"1 of 5 .*HTTP 400") as raised:
        for number, _ in asking(server).answers(["a", "b", "c", "d", "e"]):
            got.append(number)
    assert sorted(got) == [0, 2, 3, 4]
    assert "no more was asked" not in str(raised.value)


def test_after_several_failures_in_a_row_no_more_is_asked() -> None:
    with serving(Scripted(status=lambda body, before: 400)) as server:
        with pytest.raises(ChatError, match=f"50 of 50 .* after {MAX_FAILURES} in a row no more was asked"):
            all_answers(asking(server), [str(number) for number in range(50)])
        assert MAX_FAILURES <= len(server.asked) < 30


def test_an_answer_that_was_cut_off_says_so_and_one_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Scripted(finish="length")) as server:
        assert not all_answers(asking(server), ["a"])[0][0].ended
    monkeypatch.setattr(module, "ANSWER_BYTES", 1000)
    with (
        serving(Scripted(says=lambda body: "x" * 2000)) as server,
        pytest.raises(ChatError, match="more than 1000 bytes"),
    ):
        all_answers(asking(server), ["a"])


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": null}}]}', b"<html>", b"\xff",
     b'{"choices": [{"message": {"content": ["x"]}}]}', b"[" * 5000],
)  # fmt: skip
def test_what_is_no_chat_completion_is_an_error(body: bytes) -> None:
    with pytest.raises(ChatError, match="server's reply"):
        read_answer(body)


def test_what_a_server_says_stays_a_text() -> None:
    said = 'fine"}\n\x1b[2J\u2028 {"choices": []} \ud800'
    told = {"choices": [{"message": {"content": said}}]}
    assert read_answer(json.dumps(told).encode()) == ChatAnswer(said.replace("\ud800", "\ufffd"))


@pytest.mark.parametrize("status", [401, 500])
def test_the_key_is_in_no_message(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", SECRET)
    with serving(Scripted(status=lambda body, before: status)) as server:
        found = asking(server, key_env="MODEL_KEY", retries=1)
        with pytest.raises(ChatError) as raised:
            all_answers(found, ["a"])
    assert SECRET not in f"{raised.value} {found!r}"
    monkeypatch.setenv("MODEL_KEY", f"{SECRET}\r\nX: y")
    with pytest.raises(ChatError, match="holds no key") as raised:
        all_answers(found, ["a"])
    assert SECRET not in str(raised.value)


LEAST = 'url = "http://localhost:8000/v1"\nmodel = "m"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url = ", "server .* is not TOML.*should look like this"),
        ('model = "m"\n', "url is missing. A server looks"),
        (LEAST + 'guide = "g"\n', "guide.*mean nothing here"),
        (LEAST + 'key = "sk-123"\n', "take the key out"),
        (LEAST + 'key_env = "NO_SUCH_KEY_HERE"\n', "NO_SUCH_KEY_HERE.*not set"),
        (LEAST.replace("http://", "http://me:word@"), "credentials"),
        (LEAST + "timeout = -1\n", "timeout"),
    ],
)
def test_a_server_that_cannot_be_asked_is_refused_with_the_fix(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(AttachError, match=f"(?s){message}") as raised:
        open_model(path)
    assert "sk-123" not in str(raised.value)


def test_the_example_is_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", SECRET)
    path = tmp_path / "server.toml"
    path.write_text(EXAMPLE)
    found = read_endpoint(path)
    assert (found.name, found.retries, found.key_env) == ("the model's name on that server", 3, "MODEL_KEY")


def test_whoever_stops_listening_stops_the_asking() -> None:
    with serving(Scripted()) as server:
        said = asking(server).answers([str(number) for number in range(200)])
        next(said)
        close: Callable[[], None] = said.close  # type: ignore[attr-defined]
        close()
        assert len(server.asked) < 200


def test_a_server_on_this_machine_is_asked_directly_whatever_proxy_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODEL_KEY", SECRET)
    with serving(Scripted(says=lambda body: "yes")) as server, serving(Scripted(says=lambda body: "spied")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        told = all_answers(asking(server, key_env="MODEL_KEY"), ["a"])
    assert told[0][0].text == "yes" and not proxy.asked and not proxy.keys


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://judge.example.org/v1", True), ("https://judge.example.org/v1", False), ("http://127.0.0.1:8/v1", False)],
)
def test_a_key_that_would_travel_in_clear_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, warned: bool
) -> None:
    monkeypatch.setenv("MODEL_KEY", SECRET)
    path = tmp_path / "server.toml"
    path.write_text(f'url = "{url}"\nmodel = "m"\nkey_env = "MODEL_KEY"\n')
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read_endpoint(path)
    assert [("unencrypted" in str(one.message), SECRET in str(one.message)) for one in told] == [(True, False)] * warned
