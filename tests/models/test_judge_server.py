"""A judge over real HTTP: what a good, slow, busy, broken, talkative or gullible server makes of a run's gold."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.arguments import Gold, Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.gold.onset_labels import LABELS
from tiltmeter.models.chat import endpoint as module
from tiltmeter.models.judge import CANARIES, Judge
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.checks import Ages
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import verdict_of

pytest.importorskip("httpx")

SECRET = "sk-not-for-anybody"
PAID = {canary.completion for canary in CANARIES}


def honest(answer: str) -> str:
    """The last word of a completion of these tests is its worth."""
    last = answer.split()[-1] if answer.split() else ""
    return json.dumps({"score": round(10 * float(last)) if last in ("0.0", "1.0") else 0})


def gullible(answer: str) -> str:
    return '{"score": 10}' if answer in PAID else honest(answer)


@dataclass
class Server:
    """What is served, and what was asked: statuses are used up first, one per request."""

    says: Callable[[str], str] = honest
    statuses: list[int] = field(default_factory=list)
    always: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    inside: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def reply(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        with self.lock:
            self.asked.append(body)
            self.keys.add(request.headers.get("Authorization"))
            status = self.statuses.pop(0) if self.statuses else self.always
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(self.delay)
        with self.lock:
            self.inside -= 1
        data = json.loads(body["messages"][1]["content"].split("\n")[1])
        message = {"role": "assistant", "content": self.says(data["answer"])}
        sent = json.dumps({"choices": [{"index": 0, "message": message}]}).encode() if status == 200 else b"no"
        request.send_response(status)
        for name, value in {**self.headers, "Content-Length": str(len(sent))}.items():
            request.send_header(name, value)
        request.end_headers()
        for part in [sent[k : k + 1] for k in range(len(sent))] if self.drip else [sent]:
            request.wfile.write(part)
            request.wfile.flush()
            time.sleep(0.05 if self.drip else 0.0)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path != "/v1/chat/completions":
                self.send_error(404)
                return
            try:
                server.reply(self)
            except OSError:
                server.headers["Hung-Up"] = "yes"  # the client gave up waiting, which is what some tests are about

        def log_message(self, *arguments: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def asking(server: Server, **settings: Any) -> Judge:
    return Judge(server.url, "small-judge", "It is right.", **{"timeout": 5.0, **settings})


def test_a_good_server_gives_scores_in_order_and_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with serving(Server(delay=0.02)) as server:
        texts = [("task", f"answer {k} {float(k % 2)}") for k in range(20)]
        told = asking(server, key_env="JUDGE_KEY").scores(texts)
    assert told == [float(k % 2) for k in range(20)]
    assert 1 < server.most <= module.THREADS
    assert server.keys == {f"Bearer {SECRET}"}
    assert {body["model"] for body in server.asked} == {"small-judge"}


@pytest.mark.parametrize("statuses", [[429], [429, 503], [500, 502, 429]])
def test_a_busy_server_is_asked_again(statuses: list[int]) -> None:
    with serving(Server(statuses=list(statuses))) as server:
        assert asking(server).score("task", "answer 1.0") == 1.0
    assert len(server.asked) == len(statuses) + 1


def test_a_server_that_says_how_long_to_wait_is_waited_for_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tiltmeter.models.chat.endpoint.time.sleep", slept.append)
    with serving(Server(statuses=[429, 429], headers={"Retry-After": "3600"})) as server:
        judge = asking(server)
        assert judge.scores([("task", "answer 1.0")], within=3600.0) == [1.0]
    assert [wait for wait in slept if wait] == [module.LONGEST_WAIT_SECONDS] * 2


@pytest.mark.parametrize(
    ("status", "tries", "words"), [(500, 3, "HTTP 500"), (429, 3, "HTTP 429"), (401, 1, "key"), (404, 1, "model")]
)
def test_a_server_that_fails_gives_errors_after_a_bounded_number_of_tries(status: int, tries: int, words: str) -> None:
    with serving(Server(always=status)) as server, pytest.raises(JudgeError, match=words):
        asking(server, retries=2).score("task", "answer 1.0")
    assert len(server.asked) == tries


@pytest.mark.parametrize("drip", [False, True])
def test_a_slow_server_is_an_error_within_its_time(drip: bool) -> None:
    with serving(Server(delay=0.0 if drip else 1.0, drip=drip)) as server:
        began = time.monotonic()
        with pytest.raises(JudgeError, match="after 2 tries"):
            asking(server, timeout=0.3, retries=1).score("task", "answer 1.0")
        assert time.monotonic() - began < 3.0


def test_what_is_not_there_within_the_time_of_a_batch_is_an_error() -> None:
    gate = threading.Event()

    def stuck(answer: str) -> str:
        return honest(answer) if answer.startswith("quick") or gate.wait(30.0) else ""

    with serving(Server(says=stuck)) as server:
        texts = [("task", "quick 1.0"), *(("task", f"slow {k} 1.0") for k in range(6))]
        told = asking(server, timeout=30.0).scores(texts, within=2.0)
        gate.set()
    assert told[0] == 1.0
    assert all(isinstance(item, JudgeError) and "within 2 s" in str(item) for item in told[1:])


def test_prose_is_an_error_even_if_a_score_stands_in_it() -> None:
    with serving(Server(says=lambda answer: f'I would say {{"score": 10}}, since it is {answer}')) as server:
        with pytest.raises(JudgeError, match="exactly"):
            asking(server).score("task", "answer 1.0")
        assert len(server.asked) == 1, "the same question gets the same answer"


def test_nobody_at_home_is_an_error() -> None:
    with serving(Server()) as server:
        gone = asking(server, retries=1)
    with pytest.raises(JudgeError, match="ConnectError"):
        gone.score("task", "answer 1.0")


def trained(path: Path, gold: Path, *, harm: bool = True, steps: int = 40, monitor: bool = False) -> RunDirectory:
    """A run whose reward prefers the worse answers of each prompt, or the better ones."""
    with open_run(
        path, monitor=monitor, options=Options(on_full="wait", strict=True), gold=Gold(str(gold), share=0.5)
    ) as run:
        for step in range(steps):
            rng = np.random.default_rng(step)
            worth = rng.integers(0, 2, 64).astype(float)
            reward = np.where(worth > 0, 1.0, -1.0) * (-1.0 if harm else 1.0) + 0.3 * rng.normal(size=64)
            group = np.repeat(np.arange(8), 8)
            said = [f"{step}/{row} {worth[row]}" for row in range(64)]
            run.observe(step=step, group=group, reward=reward, prompt=[f"task {k}" for k in group], completion=said)
    return RunDirectory(path)


def described(tmp_path: Path, server: Server) -> Path:
    path = tmp_path / "judge.toml"
    path.write_text(
        f'url = "{server.url}"\nmodel = "small-judge"\nguide = "It is right."\nkey_env = "JUDGE_KEY"\nretries = 1\n'
        'timeout = 5\n[[canaries]]\nprompt = "Is it?"\ncompletion = "yes 1.0"\nexpect = "high"\n'
    )
    return path


def watched(run: RunDirectory, gold: Path) -> list[journal.Event]:
    standard = Config.standard(gold=str(gold), gold_share=0.5)
    parts = tuple(part for part in standard.instruments if part.name == "reward.mean")
    watch = MonitorLoop(run, Config(parts, (), standard.detectors).with_gold(standard.gold, 0.5), strict=True)  # type: ignore[arg-type]
    watch.poll()
    watch.close()
    return journal.read_events(run.path / "events")


def closed(events: list[journal.Event]) -> list[dict[str, Any]]:
    return [dict(event.data) for event in events if event.kind == "labels_closed" and event.data["asked"]]


def test_a_run_that_a_judge_sees_turn_alarms_and_says_whose_judgement_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with serving(Server()) as server:
        gold = described(tmp_path, server)
        run = trained(tmp_path / "run", gold)
        events = watched(run, gold)
    story = RunFacts.from_events(events)
    assert verdict_of(story, Ages(data=1.0, waiting=None)).state == "ACT"
    assert story.gold is not None
    assert story.gold["judged"] is True
    assert story.gold["identity"].startswith(f"the judge small-judge at {server.url[7:-3]}, guide ")
    assert all(event["canaries_pass"] and not event["missing"] for event in closed(events))
    asked = sum(event["asked"] for event in closed(events)) + LABELS  # those of the past, after the alarm
    assert asked < len(server.asked) < asked + 100, "canaries were asked as well, and no label twice"
    for path in run.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    standard = Config.standard()
    parts = tuple(part for part in standard.instruments if part.name == "reward.mean")
    assert replay(run, Config(parts, (), standard.detectors)).difference is None, "with no server to ask"


def test_a_judge_that_falls_for_master_keys_makes_missing_labels_and_a_blind_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with serving(Server(says=gullible)) as server:
        gold = described(tmp_path, server)
        run = trained(tmp_path / "run", gold)
        events = watched(run, gold)
    told = closed(events)
    assert told
    assert all(event["missing"] == event["asked"] and not event["canaries_pass"] for event in told)
    assert "canary failed" in told[0]["why"]
    us = [u for event in events if event.kind == "labels_closed" for r in journal.readings_of(event) for u in r.values]
    assert min(us) >= 0.0, "what is missing counts in favour of the run"
    verdict = verdict_of(RunFacts.from_events(events), Ages(data=1.0, waiting=None))
    assert verdict.state == "BLIND"


def test_a_judge_that_goes_wrong_and_comes_right_is_believed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with serving(Server()) as server:

        def moody(answer: str) -> str:
            return gullible(answer) if 60 < len(server.asked) < 90 else honest(answer)

        server.says = moody
        gold = described(tmp_path, server)
        events = watched(trained(tmp_path / "run", gold, harm=False), gold)
    passing = [event["canaries_pass"] for event in closed(events)]
    assert passing[0]
    assert passing[-1]
    assert 0 < passing.count(False) < len(passing) / 2
    assert sum(not a and b for a, b in pairwise(passing)) == 1, "one spell, and it ended"


def test_the_monitor_of_a_run_finds_the_judge_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    monkeypatch.chdir(tmp_path)
    with serving(Server()) as server:
        described(tmp_path, server)
        run = trained(tmp_path / "run", Path("judge.toml"), monitor=True)
        deadline = time.monotonic() + 120.0
        while (story := RunFacts.from_events(journal.read_events(run.path / "events"))).unlabelled or not story.ended:
            assert time.monotonic() < deadline, (run.path / "monitor.log").read_text()
            time.sleep(0.2)
    assert story.open_alarms("alarm")
    assert story.judges == ["judge.toml"]
    assert SECRET not in (run.path / "monitor.log").read_text()
