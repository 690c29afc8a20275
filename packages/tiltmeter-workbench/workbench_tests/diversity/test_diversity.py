"""Ways of sampling compared: what is named, how rarely by mistake, and lists of answers that a model wrote."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from tests.sizes import size
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.diversity.list_prompt import ask_for_list, read_list
from tiltmeter_workbench.diversity.render import as_json, as_report
from tiltmeter_workbench.diversity.sweep import ALPHA, SamplingPoint, SweepReport

CHECKS = """
def score(completion):
    return float(any(colour in completion for colour in ("red", "blue", "green", "gold")))
"""


def simulated(rng: np.random.Generator, loss: float, more: float, prompts: int = 150) -> SweepReport:
    """Temperature 1, and one that differs more by `more` and loses `loss` of gold in the mean."""
    hard = rng.random(prompts)

    def golds(loss: float) -> Any:
        return rng.binomial(4, np.clip(hard - loss, 0.0, 1.0)) / 4

    def spread(more: float) -> Any:
        return np.clip(0.4 + more + 0.2 * rng.standard_normal(prompts), 0.0, 1.0)

    points = [SamplingPoint("temperature 1", golds(0.0), spread(0.0))]
    points += [SamplingPoint(f"other {number}", golds(loss), spread(more)) for number in range(2)]
    return SweepReport(points, 0.05, "checks", False, 4)


def test_more_diversity_at_equal_gold_is_named_and_with_a_loss_it_is_not() -> None:
    rng = np.random.default_rng(0)
    named = [simulated(rng, 0.0, 0.15, 600).state for _ in range(20)]
    assert named.count("better") >= 18
    # The clipped loss at hard prompts is smaller than 0.12: the mean loss is 0.113, and the margin 0.05.
    assert [simulated(rng, 0.12, 0.15, 600).state for _ in range(20)].count("better") == 0
    assert simulated(rng, 0.0, 0.15, 5).state == "cannot tell"


@pytest.mark.parametrize(("loss", "more"), [(0.0513, 0.15), (0.0, 0.0)])
def test_what_is_not_so_is_named_no_more_often_than_promised(loss: float, more: float) -> None:
    """At the edge: the whole margin is lost (in the mean, 0.05), or nothing is gained."""
    runs = size(400, 4000)
    rng = np.random.default_rng(1)
    wrong = sum(simulated(rng, loss, more).best is not None for _ in range(runs))
    assert wrong / runs <= ALPHA and upper_bound(wrong, runs) <= 1.5 * ALPHA


def test_answers_that_did_not_come_count_against_a_setting() -> None:
    rng = np.random.default_rng(2)
    report = simulated(rng, 0.0, 0.2, 400)
    assert report.best is not None
    first, *others = report.points
    holes = np.arange(400) % 4 == 0
    torn = [
        replace(one, gold=np.where(holes, np.nan, one.gold), diversity=np.where(holes, np.nan, one.diversity))
        for one in others
    ]
    assert replace(report, points=[first, *torn]).best is None
    unjudged = replace(first, gold=np.where(holes, np.nan, first.gold))
    assert replace(report, points=[unjudged, *others]).best is None


def test_gold_that_nobody_knows_is_no_loss_and_no_calm() -> None:
    """A judge that never answered: nothing can be told, neither that a setting is as good nor that it is worse."""
    report = simulated(np.random.default_rng(3), 0.3, 0.2, 400)
    assert report.state == "same" and [one.state for one in as_report(report).checks[1:]] == ["worse", "worse"]
    nothing = [replace(one, gold=np.full(400, np.nan)) for one in report.points]
    unknown = replace(report, points=nothing)
    assert unknown.state == "cannot tell" and unknown.exit_code == 2
    assert [one.state for one in as_report(unknown).checks] == ["shown"] * 3
    assert any("400 (temperature 1)" in line for line in as_json(unknown)["notes"])


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ('```json\n{"answers": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}\n```', ["a", "b"]),
        ('{"answers": {"text": "a"}}', []),
        ('{"answers": "ab"}', []),
        ('{"answers": [{"text": ["a"]}, null, 3, "b"]}', ["b"]),
        ('[{"text": "a"}]', []),
        ("[" * 100_000 + "{" * 100_000 + "}", []),
        ('{"answers": [NaN, {"text": "\\ud800"}]}', ["\ud800"]),
        ("", []),
    ],
)
def test_a_reply_is_read_as_a_list_of_texts_or_as_nothing(reply: str, texts: list[str]) -> None:
    assert read_list(reply, 2) == texts


def test_a_conversation_is_asked_in_its_last_turn() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A colour?"}]
    asked = ask_for_list(turns, 3)
    assert asked[0] == turns[0] and str(asked[1]["content"]).startswith("A colour?\n\nGive 3")  # type: ignore[index]
    assert turns[1]["content"] == "A colour?"


@contextmanager
def served() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A model that nearly always says one colour, and knows others when it is asked for a list; one reply is torn."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            question = body["messages"][-1]["content"]
            draw = np.random.default_rng(crc32(f"{question} {body['seed']}".encode()))
            text = "it is red" if draw.random() < 1.0 - 0.05 * body["temperature"] else "it is blue"
            if "Give 4 different answers" in question:
                colours = [{"text": f"{word} it is", "probability": 0.25} for word in ("red", "blue", "green", "gold")]
                text = json.dumps({"answers": colours}) if "thing 7 " not in question else '{"answers": ['
            sent = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_served_model_that_knows_more_than_it_says_is_asked_for_a_list(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    rows = [{"prompt": f"what colour has thing {at} ?"} for at in range(40)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with served() as (url, requests):
        (tmp_path / "model.toml").write_text(f'url = "{url}"\nmodel = "m"\n')
        words = ["model", "diversity", tmp_path / "model.toml", "--gold", f"{tmp_path}/checks.py:score", "--at-once"]
        words += ["--prompts", tmp_path / "prompts.jsonl", "--temperatures", "0.5", "--work", tmp_path / "work"]
        first = CliRunner().invoke(app, [str(word) for word in (*words, "--margin", "0.2", "--json")])
        many = len(requests)
        again = CliRunner().invoke(app, [str(word) for word in (*words, "--margin", "0.2")])
    told = json.loads(first.stdout)
    assert first.exit_code == again.exit_code == 0 and many == len(requests) == 2 * 40 * 4 + 40
    assert (told["state"], told["best"]) == ("better", "4 at once")
    assert [one["name"] for one in told["settings"]] == ["temperature 1", "temperature 0.5", "4 at once"]
    assert [one["lacking"] for one in told["settings"]] == [0, 0, 1] and any(
        "lack an answer" in one for one in told["notes"]
    )
    assert told["settings"][2]["diversity"] > 0.3 > told["settings"][0]["diversity"]
    assert "answers differ more" in again.stdout and "Sample with 4 at once" in again.stdout


def test_a_model_in_a_folder_differs_more_the_hotter_it_is(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def score(completion):\n    return 1.0\n")
    rows = [{"prompt": f"what is {at} plus 2"} for at in range(24)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["model", "diversity", tiny_model, "--gold", f"{tmp_path}/checks.py:score", "--tokens", 6, "--answers", 3]
    words += ["--prompts", tmp_path / "prompts.jsonl", "--temperatures", "0.001", "--work", tmp_path / "work"]
    told = json.loads(CliRunner().invoke(app, [str(word) for word in (*words, "--json")]).stdout)
    at = {one["name"]: one["diversity"] for one in told["settings"]}
    assert at["temperature 0.001"] < 0.1 < 0.5 < at["temperature 1"] and (told["state"], told["exit_code"]) == (
        "same",
        0,
    )
    html = CliRunner().invoke(app, [str(word) for word in (*words, "--html", tmp_path / "page.html")])
    assert html.exit_code == 0 and (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--temperatures", "0"), "above 0"),
        (("--temperatures", "1"), "compared with nothing"),
        (("--temperatures", "hot"), "no list of numbers"),
        (("--answers", "1"), "does not differ"),
    ],
)
def test_what_cannot_be_swept_is_refused_with_the_fix(tiny_model: Path, tmp_path: Path, more: Any, why: str) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    words = ["model", "diversity", tiny_model, "--gold", f"{tmp_path}/checks.py:score"]
    words += ["--prompts", tmp_path / "prompts.jsonl", "--work", tmp_path / "work", *more]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 2 or done.exception is not None
    assert why in f"{done.stderr} {done.exception}"
