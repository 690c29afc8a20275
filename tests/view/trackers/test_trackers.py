"""A run told elsewhere: real trackers read back by their own means, and a webhook that fails in every way it can."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner

from tiltmeter.cli.run.track import track
from tiltmeter.data.records import Alarm
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.monitor import alerts as watching
from tiltmeter.monitor.alerts import AlertProcess
from tiltmeter.rundir.journal import Event, Journal, event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.trackers import follow as following
from tiltmeter.view.trackers import position as places
from tiltmeter.view.trackers import sink_thread as feeds
from tiltmeter.view.trackers import webhook as webhooks
from tiltmeter.view.trackers.follow import SinkSpec, follow
from tiltmeter.view.trackers.messages import MessageBuilder
from tiltmeter.view.trackers.mlflow import MlflowSink
from tiltmeter.view.trackers.position import SinkPosition
from tiltmeter.view.trackers.prometheus import PrometheusSink
from tiltmeter.view.trackers.sink import MetricPoint, RetryLaterError, RunIdentity, import_package

HOSTILE = "\x1b[2J<script>alert(1)</script> <!channel> @here \u202e [x](javascript:1) {0}\n" + 9000 * "a"


def needs(package: str, why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed: {why}")


needs_wandb = needs("wandb", "pip install 'tiltmeter[trackers]'")
needs_tensorboard = needs("tensorboard", "pip install 'tiltmeter[trackers]'")
needs_mlflow = needs("mlflow", "pip install 'tiltmeter[mlflow]'")
needs_trackio = needs("trackio", "pip install 'tiltmeter[trackio]'")
needs_prometheus = needs("prometheus_client", "pip install 'tiltmeter[trackers]'")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]) -> Path:
    """The demo's run that games its reward: 84 steps, one alarm and one warning, both open."""
    return copy_demo_run("hacked", tmp_path_factory.mktemp("runs") / "hacked").path


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(recorded, tmp_path / "hacked")))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FIRST_RETRY", 0.05)
    monkeypatch.setattr(feeds, "LAST_RETRY", 0.2)
    monkeypatch.setattr(following, "BUSY_SECONDS", 0.05)
    monkeypatch.delenv("TILTMETER_WEBHOOK_URL", raising=False)


class Receiver:
    """An HTTP server that answers as it is told, one answer a request, then 200 to all."""

    def __init__(self, port: int = 0) -> None:
        self.answers: list[int | str] = []
        self.taken: list[dict[str, Any]] = []  # that were answered with 2xx
        self.heard: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.retry_after = ""
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.heard.append(body)
                outer.headers.append(dict(self.headers))
                answer = outer.answers.pop(0) if outer.answers else 200
                if answer == "hang":
                    time.sleep(1.0)
                    return
                if answer == "break":
                    self.connection.close()
                    return
                assert isinstance(answer, int)
                if 200 <= answer < 300:
                    outer.taken.append(body)
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", outer.url.replace("/hook", "/elsewhere"))
                if outer.retry_after:
                    self.send_header("Retry-After", outer.retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - a redirect that was followed would come as one

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None: ...

        self.server = Server(("127.0.0.1", port), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook/s3cret"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def raise_alarm(run: RunDirectory, **changes: Any) -> Alarm:
    """Write one more alarm at the end of a journal, as a monitor would."""
    events = read_events(run.path / "events")
    step = events[-1].step
    told: dict[str, Any] = {
        "attempt": events[-1].attempt, "name": "gold.prompts", "detector": "gold_loss", "tier": "alarm",
        "direction": "down", "step": step, "data_step": step, "onset": step - 5, "onset_low": step - 6,
        "onset_high": step - 4, "evidence": 5.0, "threshold": 4.0, "summary": "planted",
    }  # fmt: skip
    alarm = Alarm(**{**told, **changes})
    write(run, event(alarm, alarm.attempt, step, "test"))
    return alarm


def write(run: RunDirectory, made: Event) -> None:
    journal = Journal(run.path / "events", read_events(run.path / "events")[-1].seq + 1)
    journal.commit([made])
    journal.close()


def tell(run: RunDirectory, *wishes: tuple[str, str], patience: float = 20.0, **options: Any) -> dict[str, str]:
    return dict(
        follow(run, [SinkSpec(sink, target) for sink, target in wishes], once=True, patience=patience, **options)
    )


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def state_of(run: RunDirectory, sink: str) -> dict[str, Any]:
    (found,) = (run.path / "cache" / "trackers").glob(f"{sink}-*.json")
    told: dict[str, Any] = json.loads(found.read_text())
    return told


# -- webhook ------------------------------------------------------------------------------------------------------


def test_each_alert_is_posted_once_with_what_to_do(run: RunDirectory, receiver: Receiver) -> None:
    assert tell(run, ("webhook", receiver.url)) == {}
    alarm, warning = receiver.taken
    assert alarm["title"] == "Alarm: gold.prompts down in hacked" and alarm["level"] == "ERROR"
    assert (alarm["step"], alarm["onset"], alarm["detector"], alarm["run"]) == (57, 47, "gold_loss", "hacked")
    (known,) = judge_run(run)[0].alarms
    assert [alarm[name] for name in ("onset", "onset_low", "onset_high")] == [
        known.onset, known.onset_low, known.onset_high
    ]  # fmt: skip
    assert f"since about step {known.onset} " in alarm["text"]
    assert "What helps:" in alarm["text"] and "tiltmeter show" in alarm["text"]
    assert alarm["evidence"] and warning["level"] == "WARN"
    assert alarm["picture"].startswith("<svg ") and "turned: step" in alarm["picture"] and warning["picture"] == ""
    assert [one["Idempotency-Key"] for one in receiver.headers] == [alarm["identity"], warning["identity"]]
    raised = [one.id for one in read_events(run.path / "events") if one.kind == "alarm"]
    assert [alarm["event"], warning["event"]] == raised


def test_a_restart_sends_nothing_again_and_a_new_alarm_once(run: RunDirectory, receiver: Receiver) -> None:
    for _ in range(3):
        assert tell(run, ("webhook", receiver.url)) == {}
    assert len(receiver.taken) == 2
    raise_alarm(run, name="gold.duel")
    for _ in range(2):
        tell(run, ("webhook", receiver.url))
    assert [one["reading"] for one in receiver.taken] == ["gold.prompts", "length.truncated_share", "gold.duel"]


@pytest.mark.parametrize("state", ["HOLLOW", "WATCH"])
def test_a_run_that_is_hollow_or_should_stop_is_posted_once_without_an_alarm(
    run: RunDirectory, state: Literal["HOLLOW", "WATCH"]
) -> None:
    builder = MessageBuilder(RunReader(run))
    verdict = builder.reader.refresh(force=True)
    assert verdict.advice is not None and verdict.advice.word == "stop"
    quiet = replace(verdict, state=state, alarms=(), sentence="nothing was raised")
    with mock.patch.object(builder.reader, "refresh", lambda **_: quiet):
        posted = [alert for alert in builder.next_batch(last=True).alerts if alert.event in ("hollow-0", "stop-0")]
        again = builder.next_batch(last=True).alerts
    (alert,) = posted
    assert alert.detector == ("hollow" if state == "HOLLOW" else "stop") and alert.level == "ERROR"
    assert f"{state}: hacked at step" in alert.text and "Stop" in alert.text
    assert alert.onset_low <= alert.onset <= alert.step and not again
    # With an alarm that is open the alarm says it.
    assert not builder._state_alerts(verdict)


def test_another_receiver_is_told_everything(run: RunDirectory, receiver: Receiver) -> None:
    tell(run, ("webhook", receiver.url))
    tell(run, ("webhook", f"{receiver.url}/another"))
    assert len(receiver.taken) == 4


@pytest.mark.parametrize("trouble", [500, 503, 429, "hang", "break"])
def test_a_receiver_that_fails_for_a_while_gets_every_alert_in_the_end(
    run: RunDirectory,
    receiver: Receiver,
    trouble: int | str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if trouble == "hang":
        monkeypatch.setattr(webhooks, "TIMEOUT", 0.5)
    receiver.answers = [trouble, trouble]
    with caplog.at_level(logging.WARNING, "tiltmeter"):
        assert tell(run, ("webhook", receiver.url)) == {}
    assert len({one["identity"] for one in receiver.taken}) == len(receiver.taken) == 2
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "trying again" in line]) == 1  # told once, however often it is tried
    assert len([line for line in said if "works again" in line]) == 1
    assert not any("s3cret" in line for line in said)
    assert state_of(run, "webhook")["failing"] == ""


def test_a_receiver_that_is_not_there_is_told_when_it_comes(run: RunDirectory) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    came: list[Receiver] = []
    threading.Timer(0.6, lambda: came.append(Receiver(port))).start()
    assert tell(run, ("webhook", f"http://127.0.0.1:{port}/hook")) == {}
    assert len(came[0].taken) == 2
    came[0].close()


def test_what_was_not_delivered_is_said_kept_and_delivered_later(run: RunDirectory, receiver: Receiver) -> None:
    receiver.answers = [500] * 1000
    left = tell(run, ("webhook", receiver.url), patience=0.5)
    assert left == {"webhook": "2 alerts"}
    told = state_of(run, "webhook")
    assert told["delivered"] == [] and "answered 500" in told["failing"]
    receiver.answers = []
    assert tell(run, ("webhook", receiver.url)) == {}
    assert len(receiver.taken) == 2


def test_a_refused_alert_holds_up_no_other(run: RunDirectory, receiver: Receiver) -> None:
    receiver.answers = [400]
    assert tell(run, ("webhook", receiver.url)) == {}
    assert [one["level"] for one in receiver.taken] == ["WARN", "ERROR"]


def test_a_receiver_that_names_a_time_is_left_alone_until_then(run: RunDirectory, receiver: Receiver) -> None:
    receiver.answers, receiver.retry_after = [429], "1"
    began = time.monotonic()
    assert tell(run, ("webhook", receiver.url)) == {}
    assert 1.0 <= time.monotonic() - began < 10.0 and len(receiver.taken) == 2


def test_a_redirect_is_not_followed(run: RunDirectory, receiver: Receiver) -> None:
    receiver.answers = [302, 302]
    assert tell(run, ("webhook", receiver.url), patience=0.02) == {"webhook": "2 alerts"}
    assert len(receiver.heard) == 2
    assert "redirects" in state_of(run, "webhook")["failing"]


KILLED = """
import os, signal, sys
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.trackers.sink_thread import SinkThread
from tiltmeter.view.trackers.follow import SinkSpec, follow
if sys.argv[3] == "die":
    SinkThread._mark_delivered = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
follow(RunDirectory(sys.argv[1]), [SinkSpec("webhook", sys.argv[2])], once=True)
"""


def test_killed_between_the_post_and_the_mark_it_tells_again_under_the_same_identity(
    run: RunDirectory, receiver: Receiver
) -> None:
    def start(how: str) -> int:
        command = [sys.executable, "-c", KILLED, str(run.path), receiver.url, how]
        return subprocess.run(command, check=False, timeout=300).returncode

    assert start("die") == -signal.SIGKILL
    assert len(receiver.taken) == 1
    assert start("die") == -signal.SIGKILL
    assert start("live") == 0
    first, second, third, other = receiver.taken
    assert first == second == third and other["identity"] != first["identity"]
    assert start("live") == 0
    assert len(receiver.taken) == 4


def test_of_one_title_the_newest_is_told_and_says_what_it_stands_for(run: RunDirectory, receiver: Receiver) -> None:
    steps = [70, 75, 80]
    for step in steps:
        raise_alarm(run, name="eval.maths", step=step, data_step=step, onset=60)
    assert tell(run, ("webhook", receiver.url)) == {}
    (told,) = [one for one in receiver.taken if one["reading"] == "eval.maths"]
    assert told["step"] == 80 and len(told["covers"]) == 2 and "70, 75" in told["text"]
    tell(run, ("webhook", receiver.url))
    assert len(receiver.taken) == 3


def test_a_second_alert_of_a_title_waits_a_minute_also_across_a_restart(
    run: RunDirectory, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(run, ("webhook", receiver.url))
    raise_alarm(run)
    assert tell(run, ("webhook", receiver.url), patience=0.5) == {"webhook": "1 alerts"}
    assert len(receiver.taken) == 2
    monkeypatch.setattr(places, "APART", 2.0)
    assert tell(run, ("webhook", receiver.url)) == {}
    assert len(receiver.taken) == 3 and receiver.taken[-1]["title"] == receiver.taken[0]["title"]


def test_a_warning_that_is_over_wakes_nobody_and_an_alarm_always_does(run: RunDirectory, receiver: Receiver) -> None:
    for tier in ("warning", "alarm"):
        alarm = raise_alarm(run, tier=tier, name=f"eval.{tier}")
        raise_alarm(run, tier=tier, name=f"eval.{tier}", resolved=alarm.step)
    tell(run, ("webhook", receiver.url))
    assert [one["reading"] for one in receiver.taken] == ["gold.prompts", "length.truncated_share", "eval.alarm"]


def test_hostile_words_act_nowhere_and_no_completion_leaves(run: RunDirectory, receiver: Receiver) -> None:
    raise_alarm(run, name=f"eval.{HOSTILE}", summary=HOSTILE)
    tell(run, ("webhook", receiver.url))
    told = receiver.taken[-1]
    assert len(told["title"]) < 64 and len(told["text"]) < 1700
    for text in (told["title"], told["text"], told["event"], told["reading"]):
        assert text.isprintable()
    assert "<" not in told["text"] + told["title"] and "@" not in told["text"] + told["title"]
    assert "&lt;!channel&gt;" in told["text"]
    texts = {text for batch in completions(run) for text in batch if text and len(text) > 12}
    posted = json.dumps(receiver.taken, ensure_ascii=False)
    assert texts and not [text for text in texts if text in posted]


def completions(run: RunDirectory) -> Iterator[Sequence[str | None]]:
    for file in run.files(0)[::20]:
        found = run.read(file, columns=("group", "completion"))[0].completion
        assert found is not None
        yield found


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.org/x", "example.org", "http://", "http://u:p@example.org/", "http://a b"],
)
def test_an_address_that_is_none_stops_the_verb_and_is_not_repeated(run: RunDirectory, url: str) -> None:
    with pytest.raises(AttachError) as caught:
        tell(run, ("webhook", url))
    assert "webhook" in str(caught.value) and (len(url) < 12 or url not in str(caught.value))


# -- the loop -----------------------------------------------------------------------------------------------------


def test_an_alert_comes_while_the_run_goes_on_and_with_what_explains_it(run: RunDirectory, receiver: Receiver) -> None:
    lines = (run.path / "events" / "0.jsonl").read_bytes().splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if b'"kind":"alarm"' in line)
    assert b'"kind":"finding"' in lines[place]  # one commit: an alarm is never there without what explains it
    journal = run.path / "events" / "0.jsonl"
    journal.write_bytes(b"".join(lines[:place]) + lines[place][:500])  # it is being written
    over = threading.Event()
    told: list[Any] = []
    follower = threading.Thread(
        target=lambda: told.append(follow(run, [SinkSpec("webhook", receiver.url)], over=over.is_set, patience=5.0))
    )
    follower.start()
    until(lambda: list((run.path / "cache").rglob("*.json")))
    assert not receiver.heard
    with journal.open("ab") as file:
        file.writelines([lines[place][500:], *lines[place + 1 :][:3]])
    until(lambda: receiver.taken)
    over.set()
    follower.join(30.0)
    assert told == [{}] and "What helps:" in receiver.taken[0]["text"]


def test_it_ends_by_itself_when_the_run_has_ended(run: RunDirectory, receiver: Receiver) -> None:
    assert follow(run, [SinkSpec("webhook", receiver.url)], patience=5.0) == {}
    assert len(receiver.taken) == 2


@needs_tensorboard
def test_a_run_that_cannot_be_read_for_a_while_is_told_once_it_can(
    run: RunDirectory, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run.path / "rollouts" / "1").mkdir()  # an attempt nobody has measured yet: the run goes on
    over = threading.Event()
    wishes = [SinkSpec("webhook", receiver.url), SinkSpec("tensorboard", str(tmp_path / "tb"))]
    told: list[Any] = []
    follower = threading.Thread(target=lambda: told.append(follow(run, wishes, over=over.is_set, patience=5.0)))
    follower.start()
    until(lambda: len(receiver.taken) == 2)
    journal = run.path / "events" / "0.jsonl"
    journal.rename(tmp_path / "kept.jsonl")
    journal.mkdir()  # a disk that is gone says other words, at the same place
    until(lambda: any("cannot be read" in record.getMessage() for record in caplog.records))
    journal.rmdir()
    (tmp_path / "kept.jsonl").rename(journal)
    raise_alarm(run, name="eval.maths")
    until(lambda: len(receiver.taken) == 3)
    over.set()
    follower.join(30.0)
    assert told == [{}] and len(receiver.taken) == 3
    assert [step for step, _ in scalars(tmp_path / "tb")["tiltmeter/reward.mean"]] == list(range(84))


@needs_tensorboard
def test_a_sink_that_fails_holds_up_no_other(run: RunDirectory, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = ["hang"] * 1000
    left = tell(run, ("webhook", receiver.url), ("tensorboard", str(tmp_path / "tb")), patience=1.5)
    assert left == {"webhook": "2 alerts"}
    assert len(scalars(tmp_path / "tb")["tiltmeter/reward.mean"]) == 84


def test_a_place_is_told_by_one_process_at_a_time(run: RunDirectory, receiver: Receiver) -> None:
    held = SinkPosition(run.path / "cache" / "trackers", "webhook", receiver.url, "x")
    with pytest.raises(AttachError, match="another process"):
        tell(run, ("webhook", receiver.url))
    assert follow(run, [SinkSpec("webhook", receiver.url, if_free=True)], once=True) == {}
    held.close()
    assert not receiver.heard
    assert tell(run, ("webhook", receiver.url)) == {} and receiver.taken


def test_beside_a_monitor_a_place_that_is_taken_is_waited_for(run: RunDirectory, receiver: Receiver) -> None:
    """A killed monitor's process may still be at its last words when the next monitor's starts."""
    wishes, over, told = [SinkSpec("webhook", receiver.url, if_free=True)], threading.Event(), []
    held = SinkPosition(run.path / "cache" / "trackers", "webhook", receiver.url, "x")
    follower = threading.Thread(target=lambda: told.append(follow(run, wishes, over=over.is_set, patience=5.0)))
    follower.start()
    follower.join(0.3)
    assert follower.is_alive() and not receiver.heard
    held.close()
    until(lambda: len(receiver.taken) == 2)
    follower.join(1.5)
    assert follower.is_alive()  # the run has ended and the monitor has not: it goes with that one
    over.set()
    follower.join(30.0)
    assert told == [{}] and len(receiver.taken) == 2


def test_a_place_that_stays_taken_is_left_when_it_is_over(run: RunDirectory, receiver: Receiver) -> None:
    held = SinkPosition(run.path / "cache" / "trackers", "webhook", receiver.url, "x")
    assert follow(run, [SinkSpec("webhook", receiver.url, if_free=True)], over=lambda: True, patience=0.2) == {}
    held.close()
    assert not receiver.heard


def failing(times: int, error: Exception, then: Callable[..., Any]) -> Callable[..., Any]:
    left = [error] * times

    def attempt(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return then(*arguments)

    return attempt


def test_what_a_look_that_failed_had_found_is_in_the_next(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        MessageBuilder, "_alert", failing(1, StoreError("a file was being replaced"), MessageBuilder._alert)
    )
    telling = MessageBuilder(RunReader(run))
    with pytest.raises(StoreError):
        telling.next_batch(last=True)
    news = telling.next_batch(last=True)
    assert len(news.points) == 84 and [alert.level for alert in news.alerts] == ["ERROR", "WARN"]
    again = telling.next_batch(last=True)
    assert not again.points and not again.alerts


@pytest.mark.parametrize(
    ("owner", "name", "over"),
    [
        (MessageBuilder, "_run_status", None),
        (MessageBuilder, "_run_status", lambda: True),
        (following, "has_ended", None),
    ],
)
def test_a_disk_that_fails_for_a_moment_loses_no_alert(
    run: RunDirectory, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, over: Any
) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(following, "REST_RATIO", 0)
    monkeypatch.setattr(owner, name, failing(2, OSError(5, "Input/output error"), vars(owner)[name]))
    assert follow(run, [SinkSpec("webhook", receiver.url)], over=over, patience=5.0) == {}
    assert len(receiver.taken) == 2


def test_a_disk_that_stays_broken_ends_the_verb_with_the_reason(
    run: RunDirectory, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(following, "REST_RATIO", 0)
    monkeypatch.setattr(
        MessageBuilder, "_run_status", failing(1000, OSError(5, "Input/output error"), MessageBuilder._run_status)
    )
    for over in (None, lambda: True):
        with pytest.raises(StoreError, match=r"cannot be read: .*Input/output"):
            follow(run, [SinkSpec("webhook", receiver.url)], once=over is None, over=over, patience=1.0)


def test_a_damaged_state_is_refused_with_the_fix(run: RunDirectory, receiver: Receiver) -> None:
    tell(run, ("webhook", receiver.url))
    (found,) = (run.path / "cache" / "trackers").glob("webhook-*.json")
    found.write_text('{"format": 1, "run": ')
    with pytest.raises(StoreError, match="remove it"):
        tell(run, ("webhook", receiver.url))


def test_a_run_directory_cannot_point_the_state_elsewhere(
    run: RunDirectory, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(run.path / "cache", ignore_errors=True)
    (run.path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="--state"):
        tell(run, ("webhook", receiver.url))
    assert tell(run, ("webhook", receiver.url), state=tmp_path / "state") == {}
    assert not list((tmp_path / "elsewhere").iterdir()) and len(list((tmp_path / "state").glob("*.json"))) == 1


def test_no_file_of_the_run_holds_the_address(run: RunDirectory, receiver: Receiver) -> None:
    tell(run, ("webhook", receiver.url))
    for path in run.path.rglob("*"):
        assert path.is_dir() or b"s3cret" not in path.read_bytes(), path


# -- trackers -----------------------------------------------------------------------------------------------------


def wandb_records(folder: Path) -> list[Any]:
    """The records of every offline run below a folder. This version of the package has no reader in Python, so the
    framing (records in blocks of 32 KiB) is read here and the records by W&B's own classes."""
    internal: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found = []
    for path in sorted(folder.rglob("*.wandb")):
        data, at, whole = path.read_bytes(), 7, b""
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:
                at += 32768 - at % 32768
                continue
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            if at + 7 + length > len(data):
                break  # still being written
            whole += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # whole, or the last part
                found.append(internal.Record.FromString(whole))
                whole = b""
    return found


@needs_wandb
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_readings_alerts_and_the_verdict_offline(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    raise_alarm(run, name=f"eval.{HOSTILE}", summary=HOSTILE)
    assert tell(run, ("wandb", "tiltmeter-test")) == {}
    until(lambda: ends(tmp_path) == 1)  # its own process writes the last of it after ours has gone on
    records = wandb_records(tmp_path)
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    wanted = [one for one in read_events(run.path / "events") if "measured" in one.data]
    assert len(rows) == len(wanted) == 84
    assert [row["tiltmeter/step"] for row in rows] == [one.step for one in wanted]
    for row, one in zip(rows, wanted, strict=True):
        assert row["tiltmeter/reward.mean"] == one.data["measured"]["reward.mean"][0]
    alerts = [
        record.request.alert if record.HasField("request") else record.alert for record in records if _is_alert(record)
    ]
    assert sorted(alert.level for alert in alerts) == ["ERROR", "ERROR", "WARN"]
    assert all(len(alert.title) < 64 and alert.title.isprintable() and alert.text.isprintable() for alert in alerts)
    axes = {
        record.metric.name or record.metric.glob_name: record.metric.step_metric
        for record in records
        if record.HasField("metric")
    }
    assert axes["tiltmeter/*"] == "tiltmeter/step"
    summary = {
        item.key: item.value_json for record in records if record.HasField("summary") for item in record.summary.update
    }
    assert json.loads(summary["tiltmeter/state"]) == "ACT"
    told = b"".join(record.SerializeToString() for record in records)
    assert b"argv" not in told and sys.executable.encode() not in told
    assert tell(run, ("wandb", "tiltmeter-test")) == {}
    until(lambda: ends(tmp_path) == 2)
    again = wandb_records(tmp_path)
    assert sum(record.HasField("history") for record in again) == 84  # a restart goes on where it was
    assert sum(_is_alert(record) for record in again) == 3


def ends(folder: Path) -> int:
    return sum(record.WhichOneof("record_type") == "exit" for record in wandb_records(folder))


def _is_alert(record: Any) -> bool:
    return bool(record.WhichOneof("record_type") == "alert")


def events_of(folder: Path) -> Any:
    reader: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = events_of(folder)
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


@needs_tensorboard
def test_tensorboard_reads_back_every_reading_and_the_alarms_as_text(run: RunDirectory, tmp_path: Path) -> None:
    raise_alarm(run, name=f"eval.{HOSTILE}", summary=HOSTILE)
    for _ in range(2):  # a restart goes on where it was
        assert tell(run, ("tensorboard", str(tmp_path / "tb"))) == {}
    found = scalars(tmp_path / "tb")
    for one in read_events(run.path / "events"):
        for name, packed in one.data.get("measured", {}).items():
            at = [value for step, value in found[f"tiltmeter/{name}"] if step == one.step]
            assert at == [pytest.approx(packed[0], rel=1e-6)]
    texts = events_of(tmp_path / "tb")
    shown = [one.tensor_proto.string_val[0].decode() for one in texts.Tensors("tiltmeter/alarms")]
    assert texts.Tensors("tiltmeter/alarms")[0].step == 57 and len(shown) == 2
    assert "What helps:" in shown[0] and "\\<script\\>" in shown[1] and "\\[x\\](" in shown[1]
    assert "\x1b" not in shown[1] and "\u202e" not in shown[1]
    assert texts.Tensors("tiltmeter/verdict")[0].tensor_proto.string_val[0].startswith(b"**ACT**")


@needs_tensorboard
def test_tensorboard_drops_what_a_rewind_left_behind(tmp_path: Path) -> None:
    from tiltmeter.view.trackers.tensorboard import TensorBoardSink

    sink = TensorBoardSink(str(tmp_path), RunIdentity("x", "x"))
    for attempt, steps in ((0, range(10)), (1, range(6, 8))):
        for step in steps:
            sink.log_point(MetricPoint(0, attempt, step, time.time(), {"reward.mean": 10.0 * attempt + step}))
    sink.flush()
    sink.close()
    assert scalars(tmp_path)["tiltmeter/reward.mean"] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
        (5, 5),
        (6, 16),
        (7, 17),
    ]


@needs_mlflow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_readings_once_and_alarms_as_tags(run: RunDirectory, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    raise_alarm(run, name=f"eval.{HOSTILE}", summary=HOSTILE)
    for _ in range(2):
        assert tell(run, ("mlflow", uri)) == {}
    client: Any = importlib.import_module("mlflow.tracking").MlflowClient(tracking_uri=uri)
    (made,) = client.search_runs([client.get_experiment_by_name("tiltmeter").experiment_id])
    history = client.get_metric_history(made.info.run_id, "tiltmeter/reward.mean")
    wanted = [one for one in read_events(run.path / "events") if one.kind == "reading"]
    assert sorted((one.step, one.value) for one in history) == [
        (one.step, one.data["measured"]["reward.mean"][0]) for one in wanted
    ]
    alarms = {key: text for key, text in made.data.tags.items() if key.startswith("tiltmeter.alarm.")}
    assert len(alarms) == 2 and all(text.isprintable() for text in alarms.values())
    assert made.data.tags["tiltmeter.state"] == "ACT" and made.info.status == "FINISHED"


@pytest.mark.parametrize(
    "uri",
    [
        "https://me:s3cret@example.org", "http://s3cret@example.org/x", "postgresql://me:s3cret@example.org/runs",
        "postgresql://me:s3c#s3cret@example.org/runs", "postgresql://me:/s3cret@example.org/runs",
    ],
)  # fmt: skip
def test_an_mlflow_address_with_a_password_is_refused_and_not_repeated(run: RunDirectory, uri: str) -> None:
    with pytest.raises(AttachError, match="MLFLOW_TRACKING_USERNAME") as caught:
        tell(run, ("mlflow", uri))
    assert "s3cret" not in str(caught.value) and caught.value.__cause__ is None


@needs_mlflow
@pytest.mark.filterwarnings("ignore")
def test_no_failure_of_mlflow_repeats_the_address(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}/s3cret"
    with pytest.raises(AttachError, match="does not start") as caught:
        tell(run, ("mlflow", uri))
    assert "s3cret" not in str(caught.value)
    sink = MlflowSink(f"sqlite:///{tmp_path / 'mlflow.db'}", RunIdentity("x", "x"), {})
    sink._uri, sink._client = uri, importlib.import_module("mlflow.tracking").MlflowClient(tracking_uri=uri)
    calls: list[Callable[[], None]] = [
        lambda: sink.log_point(MetricPoint(0, 0, 0, 0.0, {"reward.mean": 1.0})),
        sink.close,
    ]
    for call in calls:
        with pytest.raises(RetryLaterError, match="address") as later:
            call()
        assert "s3cret" not in str(later.value)


TRACKIO = """
import sys
from pathlib import Path
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.trackers.follow import SinkSpec, follow
for _ in range(2):
    assert follow(RunDirectory(sys.argv[1]), [SinkSpec("trackio", "tiltmeter-test")], once=True) == {}
import json, trackio
(run,) = trackio.Api().runs("tiltmeter-test")
rows = [row for row in trackio.SQLiteStorage.get_logs("tiltmeter-test", run.name)]
alerts = trackio.Api().alerts("tiltmeter-test")
sys.stderr.write("TOLD " + json.dumps([rows, alerts], default=str) + "\\n")
"""


@needs_trackio
def test_trackio_keeps_readings_and_alerts(run: RunDirectory, tmp_path: Path) -> None:
    raise_alarm(run, name=f"eval.{HOSTILE}", summary=HOSTILE)
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", TRACKIO, str(run.path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
    told = [line for line in done.stderr.splitlines() if line.startswith("TOLD ")]
    assert done.returncode == 0 and told, done.stderr[-2000:]
    rows, alerts = json.loads(told[0].removeprefix("TOLD "))
    values = [(row["step"], row["tiltmeter/reward.mean"]) for row in rows if "tiltmeter/reward.mean" in row]
    wanted = [one for one in read_events(run.path / "events") if one.kind == "reading"]
    assert values == [(one.step, pytest.approx(one.data["measured"]["reward.mean"][0])) for one in wanted]
    assert sorted(alert["level"] for alert in alerts) == ["error", "error", "warn"]
    assert all(alert["text"].isprintable() for alert in alerts)


def fetch(port: int, path: str = "/metrics", host: str = "127.0.0.1") -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": f"{host}:{port}"})
    with urllib.request.urlopen(request, timeout=5.0) as answer:
        return str(answer.read().decode())


@needs_prometheus
def test_prometheus_fetches_the_newest_readings_and_the_state(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    raise_alarm(run, name='eval."\n# HELP x', summary="planted")
    write(run, Event("reading", 0, 83, {"measured": {'reward."}\n1': [0.25, 4, None]}, "derived": {}}, "late"))
    opened: list[PrometheusSink] = []
    began = PrometheusSink.__init__

    def noted(self: PrometheusSink, *arguments: Any) -> None:
        began(self, *arguments)
        opened.append(self)

    monkeypatch.setattr(PrometheusSink, "__init__", noted)
    over = threading.Event()
    (run.path / "rollouts" / "1").mkdir()  # an attempt nobody has measured yet: the run goes on
    follower = threading.Thread(
        target=lambda: follow(run, [SinkSpec("prometheus", "0")], over=over.is_set, patience=5.0), daemon=True
    )
    follower.start()
    until(lambda: opened and "tiltmeter_state" in fetch(opened[0].port))
    port = opened[0].port
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(fetch(port)):
        for sample in family.samples:
            assert sample.labels["run"] == "hacked"
            found[sample.name, sample.labels.get("reading") or sample.labels.get("state", "")] = sample.value
    newest = [one for one in read_events(run.path / "events") if one.kind == "reading"][-2]
    assert found["tiltmeter_reading", "reward.mean"] == newest.data["measured"]["reward.mean"][0]
    assert found["tiltmeter_reading", 'reward."}\\u{a}1'] == 0.25
    assert found["tiltmeter_alarms_open", ""] == 2.0 and found["tiltmeter_warnings_open", ""] == 1.0
    assert found["tiltmeter_state", "ACT"] == 1.0 and found["tiltmeter_state", "OK"] == 0.0
    assert found["tiltmeter_step", ""] == 83.0 and 0.0 <= found["tiltmeter_lag_seconds", ""] < 600.0
    for path, host, status in (("/", "127.0.0.1", 404), ("/metrics", "evil.example", 403)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(port, path, host)
        assert caught.value.code == status
        caught.value.close()
    with pytest.raises(AttachError, match="choose another"):
        tell(run, ("prometheus", f"127.0.0.1:{port}"), state=run.path / "other")
    over.set()
    follower.join(30.0)


def test_a_tracker_that_is_not_installed_stops_the_verb_with_the_fix(
    run: RunDirectory, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_behind_by_tiltmeter_tests").mkdir()  # as trackers leave behind, and Python imports it
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("left_behind_by_tiltmeter_tests").__file__ is None
    for name in ("left_behind_by_tiltmeter_tests", "never_heard_of_it"):
        with pytest.raises(AttachError, match=r"pip install 'tiltmeter\[trackers\]'"):
            import_package(name)
    monkeypatch.setitem(sys.modules, "wandb", None)  # what an import then says is what it says without the package
    with pytest.raises(AttachError, match=r"pip install 'tiltmeter\[trackers\]'"):
        tell(run, ("webhook", receiver.url), ("wandb", "x"))
    assert not receiver.heard  # at once: nobody was told half


# -- the command line ---------------------------------------------------------------------------------------------


def command(*arguments: str | Path, address: str | None = None) -> Any:
    app = typer.Typer()
    app.command()(track)
    environment = {"TILTMETER_WEBHOOK_URL": address}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def test_the_verb_takes_the_address_from_the_environment(run: RunDirectory, receiver: Receiver) -> None:
    assert command(run.path, "--once", address=receiver.url).exit_code == 0
    assert len(receiver.taken) == 2


def test_the_verb_says_what_to_name(run: RunDirectory) -> None:
    done = command(run.path, "--once")
    assert done.exit_code == 2 and "--tensorboard" in done.output
    assert command(run.path, "--once", "--prometheus", "0").exit_code == 2


def test_the_monitor_posts_alerts_by_itself_where_the_environment_names_an_address(
    recorded: Path, receiver: Receiver, tmp_path: Path
) -> None:
    """What `attach` and `open_run` start: no second terminal, and no address in any command line."""
    run = RunDirectory(Path(shutil.copytree(recorded, tmp_path / "hacked")))
    shutil.rmtree(run.path / "events")
    (run.path / "events").mkdir()
    environment = {**os.environ, "TILTMETER_WEBHOOK_URL": receiver.url}
    command = [sys.executable, "-m", "tiltmeter.monitor", str(run.path), "--attached", str(os.getpid())]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    until(lambda: len(receiver.taken) == 2, 60.0)
    assert receiver.taken[0]["reading"] == "gold.prompts" and "s3cret" not in done.stdout + done.stderr


def test_a_monitor_measures_on_whatever_the_address_is(recorded: Path, tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(recorded, tmp_path / "hacked")))
    shutil.rmtree(run.path / "events")
    (run.path / "events").mkdir()
    environment = {**os.environ, "TILTMETER_WEBHOOK_URL": "gopher://nonsense"}
    command = [sys.executable, "-m", "tiltmeter.monitor", str(run.path), "--attached", str(os.getpid())]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0
    assert [one.kind for one in read_events(run.path / "events")].count("step_done") == 84


def test_a_process_that_posts_alerts_and_dies_is_started_again_and_waits_for_its_place(
    run: RunDirectory, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TILTMETER_WEBHOOK_URL", receiver.url)
    monkeypatch.setattr(watching, "START_SECONDS", 0.0)
    held = SinkPosition(run.path / "cache" / "trackers", "webhook", receiver.url, "x")
    alerts = AlertProcess(run)
    first = alerts._process
    assert first is not None
    first.kill()
    first.wait(30.0)
    alerts.check()
    second = alerts._process
    assert second is not None and second.pid != first.pid
    assert [record.getMessage() for record in caplog.records if "ended with -9; it is started again" in record.message]
    try:
        time.sleep(2.0)
        assert second.poll() is None and not receiver.heard  # it found the place taken
        held.close()
        until(lambda: len(receiver.taken) == 2)
        alerts.check()
        assert alerts._process is second
    finally:
        second.kill()
        second.wait(30.0)


def test_a_process_that_dies_again_and_again_is_given_up_aloud(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TILTMETER_WEBHOOK_URL", "gopher://s3cret")
    monkeypatch.setattr(watching, "START_SECONDS", 0.0)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    alerts = AlertProcess(run)
    for _ in range(6):
        if alerts._process is not None:
            alerts._process.wait(30.0)
        alerts.check()
    said = [record.getMessage() for record in caplog.records]
    assert [line.split("; ")[1] for line in said] == ["it is started again"] * 3 + [
        "no alert is posted until you run: tiltmeter track RUN"
    ]
    assert not any("s3cret" in line for line in said)


def test_a_monitor_looks_after_the_process_that_posts_alerts(run: RunDirectory) -> None:
    (run.path / "rollouts" / "1").mkdir()  # an attempt nobody has measured yet: the run goes on
    environment = {**os.environ, "TILTMETER_WEBHOOK_URL": "gopher://nonsense"}
    command = [sys.executable, "-m", "tiltmeter.monitor", str(run.path), "--attached", str(os.getpid())]
    log = run.path / "monitor.log"
    with log.open("wb") as file:
        monitor = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        until(lambda: "posts alerts ended with 2; it is started again" in log.read_text(), 60.0)
        assert monitor.poll() is None
    finally:
        monitor.kill()
        monitor.wait(30.0)
