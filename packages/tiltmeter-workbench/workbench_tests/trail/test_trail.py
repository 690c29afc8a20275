"""Gold along checkpoints: what is called a fall, which is called the best, and the verb on real models."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import tiltmeter
from tests.sizes import size

from tiltmeter.stats.checkpoint_falls import ALPHA, PEAK_ALPHA, find_fall
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.common.local_model import LocalModel

CHECKS = """
def score(prompt, completion):
    return min(len(completion), 10) / 10

def points(prompt, completion):
    return float(len(completion))

def better(prompt, first, second):
    return 0.5
"""


def sample_gold(means: list[float], prompts: int, rng: np.random.Generator, answers: int = 4) -> list[Any]:
    """Gold of prompts of unlike difficulty, of which every checkpoint solves some more or some fewer."""
    ease = rng.normal(0.0, 1.5, prompts)
    logits = [np.log(mean / (1.0 - mean)) * 1.6 for mean in means]
    return [rng.binomial(answers, 1.0 / (1.0 + np.exp(-(ease + logit)))) / answers for logit in logits]


def test_a_trail_that_stands_still_is_hardly_ever_called_fallen() -> None:
    rng, trails = np.random.default_rng(3), size(400, 4_000)
    told = [find_fall(sample_gold([0.5] * 6, 60, rng)) for _ in range(trails)]
    falls = sum(one.has_fallen for one in told)
    assert falls / trails <= ALPHA and upper_bound(falls, trails) <= 0.03
    assert sum(3 not in one.candidates for one in told) / trails <= PEAK_ALPHA  # all are the best


def test_gold_past_its_peak_is_called_fallen_and_the_best_is_among_those_named() -> None:
    rng, trails = np.random.default_rng(4), size(60, 1_000)
    told = [find_fall(sample_gold([0.4, 0.5, 0.6, 0.7, 0.6, 0.45], 100, rng)) for _ in range(trails)]
    assert sum(one.has_fallen for one in told) >= 0.95 * trails
    assert sum(3 in one.candidates for one in told) >= (1.0 - PEAK_ALPHA) * trails
    assert np.mean([len(one.candidates) for one in told]) < 4.0
    assert min(one.worst for one in told) > 0.1  # the fall is .25: nothing below may be excluded


def test_few_prompts_exclude_nothing() -> None:
    rng = np.random.default_rng(5)
    few = find_fall(sample_gold([0.5, 0.5], 10, rng))
    many = find_fall(sample_gold([0.5, 0.5], 800, rng))
    assert not few.has_fallen and few.worst > 0.25 > 0.1 > many.worst
    assert find_fall([np.full(20, np.nan)] * 2).worst == 2.0


def test_a_judge_that_fails_on_bad_answers_alone_neither_hides_a_fall_nor_makes_one() -> None:
    rng = np.random.default_rng(6)
    before, now = sample_gold([0.7, 0.4], 300, rng)
    assert find_fall([before, now]).has_fallen
    told = find_fall([before, np.where(now < 0.5, np.nan, now)])  # what is left looks better than before
    assert not told.has_fallen and told.worst > 0.3
    still = sample_gold([0.6, 0.6], 300, rng)
    assert not find_fall([np.where(still[0] < 0.5, np.nan, still[0]), still[1]]).has_fallen


@pytest.fixture(scope="module")
def output(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trainer's output folder: two checkpoints, ever farther from the tiny model."""
    import torch

    folder = tmp_path_factory.mktemp("trail")
    (folder / "base").symlink_to(tiny_model)
    model = LocalModel(tiny_model)
    torch.manual_seed(1)
    for step in (20, 100):
        with torch.no_grad():
            for weight in model.model.parameters():
                weight += 0.04 * torch.randn_like(weight)
        model.model.save_pretrained(folder / "output" / f"checkpoint-{step}")
        model.tokenizer.save_pretrained(folder / "output" / f"checkpoint-{step}")
    (folder / "checks.py").write_text(CHECKS)
    rows = [{"prompt": f"what is {at} plus 2"} for at in range(24)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def trail(output: Path, gold: str, *more: object) -> Any:
    words = ("model", "trail", output / "base", output / "output", "--gold", f"{output}/checks.py:{gold}")
    rest = ("--prompts", output / "prompts.jsonl", "--work", output / "kept", "--tokens", 5, "--answers", 2)
    return tiltmeter(*(str(word) for word in (*words, *rest, *more)))


def test_an_output_folder_is_followed_and_again_without_sampling(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = trail(output, "score", "--json", "--html", output / "trail.html")
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["checkpoints"]] == ["base", "checkpoint-20", "checkpoint-100"]
    assert 0.0 == told["checkpoints"][0]["kl"] < told["checkpoints"][1]["kl"] < told["checkpoints"][2]["kl"]
    assert done.returncode == told["exit_code"] and told["best"] in told["best_among"]
    assert told["peak_kl"] is None and "points and needs" in told["peak_refused"]
    assert (output / "trail.html").read_text("utf-8").startswith("<!doctype html>")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was sampled already")

    monkeypatch.setattr("tiltmeter_workbench.common.local_model.LocalModel.answers", never)
    again = trail(output, "score")
    assert again.returncode == done.returncode and "checkpoint-100" in again.stdout


@pytest.mark.parametrize(
    ("gold", "why"), [("points", "from 0 to 1 is needed"), ("better", "a trail needs a score of each answer")]
)
def test_gold_that_cannot_serve_is_refused_with_the_fix(output: Path, gold: str, why: str) -> None:
    done = trail(output, gold)
    assert done.returncode == 2 and why in " ".join(done.stderr.split())


def test_checkpoints_on_a_server_are_followed_and_asked_once(output: Path, tmp_path: Path) -> None:
    """A server on this machine that runs the tiny model's folders by their names."""
    models = {"base": LocalModel(output / "base")}
    models |= {name: LocalModel(output / "output" / name) for name in ("checkpoint-20", "checkpoint-100")}
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body["model"])
            with lock:
                [(_, [one])] = models[body["model"]].answers(
                    [body["messages"]], limit=body["max_tokens"], seed=body["seed"]
                )
            reason = "stop" if one.ended else "length"
            text = json.dumps({"choices": [{"message": {"content": one.text}, "finish_reason": reason}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

    lock, server = threading.Lock(), ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    files = [tmp_path / f"{name}.toml" for name in models]
    for name, file in zip(models, files, strict=True):
        file.write_text(f'url = "http://127.0.0.1:{server.server_port}/v1"\nmodel = "{name}"\n')
    words = [
        "model",
        "trail",
        *map(str, files),
        "--gold",
        f"{output}/checks.py:score",
        "--work",
        str(tmp_path / "work"),
    ]
    words += ["--prompts", str(output / "prompts.jsonl"), "--tokens", "5", "--answers", "1", "--most", "10", "--json"]
    try:
        done = tiltmeter(*words)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["checkpoints"]] == ["base", "checkpoint-20", "checkpoint-100"]
    assert sorted(requests) == sorted([*models] * 10) and "3 models x 10 prompts x 1 answers: samples 30" in done.stderr
    assert [one["kl"] for one in told["checkpoints"]] == [0.0, None, None] and "is not known" in told["peak_refused"]
    assert all(one["tokens"] is None and one["diversity"] is None for one in told["checkpoints"])  # one answer each
    again = tiltmeter(*words)  # nobody is there any more
    assert again.returncode == done.returncode and json.loads(again.stdout) == told
