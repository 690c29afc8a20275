"""The labelling screen without a browser: what raters are told, what they are not, and an alarm that rests on them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.as_sent import as_sent

from tiltmeter.adapters.arguments import Gold, Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.batches import from_columns
from tiltmeter.gold.label_files import read_request
from tiltmeter.gold.people import PeopleSource, RaterAnswers, people_folder
from tiltmeter.gold.sampler import Bet, Sampler
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import labelling
from tiltmeter.view.server.access import RequestError
from tiltmeter.view.server.labelling import COMMAND, GUIDE

next_task, submit_answer = as_sent(labelling.next_task), as_sent(labelling.submit_answer)
undo = as_sent(labelling.undo)

KEYS = {
    "task", "kind", "prompt", "texts", "done", "left", "guide", "why", "rater", "agreement", "consistency",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of its own, with a secret of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    restart()


def restart() -> None:
    labelling._SESSIONS.clear()
    labelling._ASSIGNMENTS.clear()
    labelling._secret_in.cache_clear()


def directory(path: Path, steps: int, *, name: str = "secret-run-name", harm: bool = False) -> RunDirectory:
    """Answers whose last word is their worth; the reward agrees with it, or contradicts it. Prompts come back."""
    run = RunDirectory.create(path / name, {"id": f"id of {name}"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        rng = np.random.default_rng([step, harm])
        worth = rng.integers(0, 2, 64).astype(float)
        reward = np.where(worth > 0, 1.0, -1.0) * (-1.0 if harm else 1.0) + 0.3 * rng.normal(size=64)
        group = np.repeat(np.arange(8), 8)
        texts = [f"answer {step * 64 + row} is worth {worth[row]:g}" for row in range(64)]
        prompts = [f"question {k}" for k in group]
        run.write(
            from_columns(step, group, reward=reward, prompt=prompts, completion=texts), 0, {"counters": {"seen": steps}}
        )
    run.close_rank(0, 0, {"seen": steps})
    return run


def lean() -> Config:
    standard = Config.standard()
    few = [part for part in standard.instruments if part.name in ("reward.mean", "gold.mean", "gold.slope")]
    return Config(tuple(few), (), standard.detectors)


def watched(run: RunDirectory, raters: int = 1) -> MonitorLoop:
    watch = MonitorLoop(run, lean().with_gold(PeopleSource(raters), 0.5), strict=True)
    watch.poll()
    return watch


def worth(text: str) -> float:
    return float(text.split()[-1])


def honest(task: dict[str, Any]) -> str:
    """A rater who sees what is better."""
    if task["kind"] == "single":
        return f"{worth(task['texts'][0]):g}"
    one, two = map(worth, task["texts"])
    return "tie" if one == two else "a" if one > two else "b"


def work(
    books: list[RunReader], rater: str, judge: Callable[[dict[str, Any]], str] = honest, most: int = 10_000
) -> list[dict[str, Any]]:
    """Answer until nothing is left, or so many; the tasks that were shown, and what was said at the end."""
    shown = [next_task(books, rater)]
    while shown[-1]["task"] and len(shown) <= most:
        shown.append(submit_answer(books, rater, shown[-1]["task"], judge(shown[-1]), 900))
    return shown


def said(run: RunDirectory, steps: int) -> Iterator[Any]:
    for step in range(steps):
        if (asked := read_request(run, 0, step)) is not None:
            yield from RaterAnswers(run, asked).read_new().history


def test_a_rater_answers_all_that_is_asked_and_the_labels_are_what_they_said(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watch = watched(run)
    book = RunReader(run)
    shown = work([book], "ada")
    assert len(shown) > 50
    watch.poll()
    watch.close()
    assert not watch.waiting
    closed = [event for event in journal.read_events(run.path / "events") if event.kind == "labels_closed"]
    assert len(closed) == 12
    us = [u for event in closed for u in (event.data["measured"].get("gold.slope") or [0, 0, None, []])[3]]
    assert us
    assert min(us) >= 0.0
    assert max(us) > 0.5
    assert replay(run, lean()).difference is None


def test_nothing_that_is_sent_says_what_was_paid_or_when_or_where(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watched(run).close()
    shown = work([RunReader(run)], "ada")
    for task in shown:
        assert set(task) == KEYS
        text = json.dumps({**task, "texts": [], "prompt": "", "guide": ""}).lower()
        for word in ("reward", "step", "attempt", "slope", "duel", "chance", "secret-run-name", str(tmp_path)):
            assert word not in text, word
        assert set(task["task"]) <= set("0123456789abcdef")
        assert task["kind"] != "pair" or len(task["texts"]) == 2
    assert len({task["task"] for task in shown}) == len(shown)


def test_sides_are_mixed_kept_over_a_restart_and_each_raters_own(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watched(run, raters=2).close()
    before = next_task([RunReader(run)], "ada")
    restart()
    assert next_task([RunReader(run)], "ada") == before
    shown = work([RunReader(run)], "ada")
    restart()
    others = work([RunReader(run)], "bob")
    pairs = [one for one in said(run, 12) if len(one.shown) == 2 and not one.repeat]
    left = [one.shown[0] < one.shown[1] for one in pairs]
    assert 0.3 < np.mean(left) < 0.7
    mine = {(frozenset(t["texts"])): t["texts"] for t in shown if t["kind"] == "pair"}
    swapped = [mine[key] != t["texts"] for t in others if (key := frozenset(t["texts"])) in mine]
    assert 0.25 < np.mean(swapped) < 0.75
    assert {t["task"] for t in shown if t["task"]}.isdisjoint(t["task"] for t in others if t["task"])


def test_a_task_from_before_a_restart_can_still_be_answered(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watched(run).close()
    task = next_task([RunReader(run)], "ada")
    restart()
    after = submit_answer([RunReader(run)], "ada", task["task"], "tie", 10)
    assert after["task"] != task["task"]
    assert after["done"] == 1


def test_the_oldest_step_comes_first_and_inside_it_raters_have_orders_of_their_own(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watched(run, raters=2).close()
    orders = []
    for rater in ("ada", "bob"):
        shown = work([RunReader(run)], rater)
        mine = sorted((one.time, one.file) for one in said(run, 12) if one.rater == rater and not one.repeat)
        place = {
            one.file: step
            for step in range(12)
            if (asked := read_request(run, 0, step)) is not None
            for one in RaterAnswers(run, asked).read_new().history
        }
        steps = [place[file] for _, file in mine]
        assert steps == sorted(steps)
        orders.append([frozenset(task["texts"]) for task in shown])
    assert orders[0] != orders[1]


def test_one_task_in_ten_is_an_earlier_pair_with_sides_swapped_and_is_no_label(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watched(run).close()
    shown = work([RunReader(run)], "ada")
    given = list(said(run, 12))
    repeats = [one for one in given if one.repeat]
    assert len(repeats) == pytest.approx(len(given) / 10, abs=2)
    by_text: dict[frozenset[str], list[list[str]]] = {}
    for task in shown:
        if task["kind"] == "pair":
            by_text.setdefault(frozenset(task["texts"]), []).append(task["texts"])
    twice = [texts for texts in by_text.values() if len(texts) == 2]
    assert len(twice) == len(repeats)
    assert all(one == two[::-1] for one, two in twice)
    assert all(task["consistency"] is None and task["agreement"] == [] for task in shown[:-1])
    assert shown[-1]["consistency"] == {"same": len(repeats), "of": len(repeats)}


def test_a_rater_who_always_presses_a_is_found_out_at_the_end(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watched(run).close()
    end = work([RunReader(run)], "ada", lambda task: "a" if task["kind"] == "pair" else "1")[-1]
    assert end["consistency"]["of"] > 3
    assert end["consistency"]["same"] == 0


def test_progress_counts_down_to_nothing_whatever_comes_twice(tmp_path: Path) -> None:
    run = directory(tmp_path, 12)
    watched(run).close()
    shown = work([RunReader(run)], "ada")
    left = [task["left"] for task in shown]
    assert left == sorted(left, reverse=True)
    assert left[0] == pytest.approx(len(shown) - 1, abs=2)
    assert [task["done"] for task in shown] == list(range(len(shown)))
    assert left[-1] == 0


def test_each_pair_wants_as_many_raters_as_were_named_and_they_are_compared_at_the_end(tmp_path: Path) -> None:
    run = directory(tmp_path, 8)
    watch = watched(run, raters=2)
    books = [RunReader(run)]
    mine = work(books, "ada")
    watch.poll()
    assert mine[-1]["agreement"] == []
    assert not any(e.data["answered"] for e in journal.read_events(run.path / "events") if e.kind == "labels_closed")
    other = work(books, "bob", lambda task: "a" if task["kind"] == "pair" else "1")
    (agreed,) = other[-1]["agreement"]
    assert agreed["with"] == "ada"
    assert 0 < agreed["same"] < agreed["of"]
    assert work(books, "cleo")[-1]["done"] == 0, "a third rater is not asked"
    watch.poll()
    watch.close()
    assert not watch.waiting
    assert replay(run, lean()).difference is None


def test_undo_gives_the_same_task_again_and_both_answers_stay(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watched(run).close()
    books = [RunReader(run)]
    nothing = undo(books, "ada")
    assert "no answer to take back" in nothing["why"]
    task = next_task(books, "ada")
    submit_answer(books, "ada", task["task"], "a", 5)
    again = undo(books, "ada")
    assert {**again, "why": ""} == {**task, "why": ""}
    submit_answer(books, "ada", again["task"], "b", 5)
    given = list(said(run, 6))
    assert sorted(one.answer for one in given) == ["a", "b"]
    (standing,) = (
        one
        for step in range(6)
        if (asked := read_request(run, 0, step)) is not None
        for one in RaterAnswers(run, asked).read_new().standing
    )
    assert standing.answer == "b"


def test_after_a_step_is_closed_an_undo_and_a_late_answer_are_kept_and_change_nothing(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watch = watched(run)
    books = [RunReader(run)]
    late = next_task(books, "bob")  # on bob's screen while ada answers everything
    work(books, "ada")
    watch.poll()
    watch.close()
    before = len(list(said(run, 6)))
    labels = sorted((path, path.read_bytes()) for path in run.path.glob("gold/labels/*/*.json"))
    assert "closed" in undo([RunReader(run)], "ada")["why"]
    assert submit_answer([RunReader(run)], "bob", late["task"], "b", 5)["task"] == ""
    assert len(list(said(run, 6))) == before + 1
    assert labels == sorted((path, path.read_bytes()) for path in run.path.glob("gold/labels/*/*.json"))
    assert replay(run, lean()).difference is None


def test_a_second_press_of_a_key_is_no_second_answer(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watched(run).close()
    books = [RunReader(run)]
    task = next_task(books, "ada")
    after = submit_answer(books, "ada", task["task"], "a", 5)
    assert submit_answer(books, "ada", task["task"], "b", 5) == after
    assert [one.answer for one in said(run, 6)] == ["a"]


def test_what_is_no_task_or_no_answer_is_refused(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watched(run).close()
    books = [RunReader(run)]
    task = next_task(books, "ada")
    for name, given in ((task["task"], "0.25"), (task["task"], "up"), ("../../etc", "a"), ("0" * 32, "a")):
        with pytest.raises(RequestError):
            submit_answer(books, "ada", name, given, 5)
    with pytest.raises(RequestError):  # another rater's screen
        submit_answer(books, "bob", task["task"], "a", 5)
    with pytest.raises(RequestError):
        next_task(books, "")
    assert list(said(run, 6)) == []


def test_answers_to_different_prompts_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of earlier versions have duels between prompts: which of the two is better would be no question."""
    draw = Sampler.draw

    def draw_unpaired(sampler: Sampler, attempt: int, step: int, *more: Any) -> list[Bet]:
        bets = draw(sampler, attempt, step, *more)
        return [*bets[:-1], *(Bet("duel", bet.up, (0, step - 1, 0), 1.0, 0.5) for bet in bets[-1:] if len(bets) > 1)]

    monkeypatch.setattr(Sampler, "draw", draw_unpaired)
    run = RunDirectory.create(tmp_path / "run", {"id": "x"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    rng = np.random.default_rng(0)
    for step in range(40):
        prompts = [f"question {step * 8 + k}" for k in np.repeat(np.arange(8), 8)]  # none comes back
        texts = [f"answer to {prompt}" for prompt in prompts]
        reward = rng.normal(size=64)
        item = from_columns(step, np.repeat(np.arange(8), 8), reward=reward, prompt=prompts, completion=texts)
        run.write(item, 0, {"counters": {"seen": 40}})
    run.close_rank(0, 0, {"seen": 40})
    watch = watched(run)
    shown = work([RunReader(run)], "ada", lambda task: "a" if task["kind"] == "pair" else "0.5")
    assert {task["kind"] for task in shown} == {"pair", "single", ""}
    for task in shown[:-1]:
        assert all(text == f"answer to {task['prompt']}" for text in task["texts"])
    watch.poll()
    watch.close()
    assert not watch.waiting
    duels = [
        u
        for event in journal.read_events(run.path / "events")
        if event.kind == "labels_closed" and "gold.duel" in event.data["measured"]
        for u in event.data["measured"]["gold.duel"][3]
    ]
    assert set(duels) == {0.0}


def test_a_run_has_its_own_guide_or_ours_and_a_link_out_of_it_is_not_followed(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watched(run).close()
    book = RunReader(run)
    assert next_task([book], "ada")["guide"] == GUIDE
    (tmp_path / "private").write_text("a secret of this machine")
    (run.path / "guide.md").symlink_to(tmp_path / "private")
    assert next_task([book], "ada")["guide"] == GUIDE
    (run.path / "guide.txt").write_text("Prefer whatever rhymes.")
    task = next_task([book], "ada")
    assert task["guide"] == "Prefer whatever rhymes."
    submit_answer([book], "ada", task["task"], "a", 5)
    (path,) = run.path.glob("gold/people/*/*.json")
    facts = json.loads(path.read_text())
    assert len(facts["guide"]) == 8
    assert facts["milliseconds"] == 5


def test_without_people_or_a_monitor_the_screen_says_the_command(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    nobody = MonitorLoop(run, lean(), strict=True)
    nobody.poll()
    nobody.close()
    assert COMMAND == "tiltmeter watch RUN --gold people"
    assert COMMAND in next_task([RunReader(run)], "ada")["why"]
    assert COMMAND in next_task([], "ada")["why"]
    other = directory(tmp_path, 6, name="other")
    watched(other).close()
    assert COMMAND in next_task([RunReader(other)], "ada")["why"]
    with monitor_lock(other):
        assert next_task([RunReader(other)], "ada")["why"] == ""
    assert COMMAND in work([RunReader(other)], "ada")[-1]["why"]


def test_only_runs_whose_gold_is_people_now_are_offered(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watched(run).close()
    assert next_task([RunReader(run)], "ada")["task"]
    MonitorLoop(run, lean(), strict=True).close()  # watched without gold from here on
    assert next_task([RunReader(run)], "ada")["task"] == ""


def test_what_was_picked_by_hand_is_judged_last_and_never_bet_on(tmp_path: Path) -> None:
    run = directory(tmp_path, 6)
    watch = watched(run)
    (run.path / "gold" / "picked").mkdir()
    (run.path / "gold" / "picked" / "0-2-17.json").write_text(json.dumps({"rollout": "0-2-17"}))
    shown = work([RunReader(run)], "ada")
    last = shown[-2]
    assert last["kind"] == "single"
    assert last["texts"][0].startswith(f"answer {2 * 64 + 17} ")
    watch.poll()
    watch.close()
    assert not watch.waiting
    assert replay(run, lean()).difference is None
    asked = read_request(run, 0, 2)
    assert asked is not None
    others = [json.loads(path.read_text()) for path in people_folder(run, asked).glob("*.json")]
    assert len([facts for facts in others if facts["request"] != asked.digest]) == 1


def test_several_runs_are_labelled_together(tmp_path: Path) -> None:
    runs = [directory(tmp_path, 4, name=name) for name in ("one", "two")]
    for run in runs:
        watched(run).close()
    books = [RunReader(run) for run in runs]
    task = next_task(iter(books), "ada")
    assert submit_answer(iter(books), "ada", task["task"], "tie", 5)["task"]
    assert undo(iter(books), "ada")["task"] == task["task"]
    work(books, "ada")
    assert all(list(said(run, 4)) for run in runs)


def test_people_raise_an_alarm_about_a_live_run(tmp_path: Path) -> None:
    """A trainer, its monitor in a process of its own, and a rater who dislikes what is paid; then the monitor that was
    left is started again and closes what is still open."""
    rng = np.random.default_rng(3)
    steps = 40
    with open_run(
        tmp_path / "run", options=Options(on_full="wait"), gold=Gold("people", share=0.5, steps=steps)
    ) as run:
        for step in range(steps):
            long = rng.integers(0, 2, 64)
            run.observe(
                step=step, group=np.repeat(np.arange(8), 8), reward=long + 0.1 * rng.normal(size=64),
                prompt=[f"question {k}" for k in np.repeat(np.arange(8), 8)],
                completion=[f"answer {row} of step {step} is worth {1 - long[row]}" for row in range(64)],
            )  # fmt: skip
        store = run.store
        assert store is not None
        books = [RunReader(store)]
        deadline = time.monotonic() + 60.0
        while not (first := next_task(books, "ada"))["task"] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert first["task"], first["why"]
        assert first["why"] == "", "the trainer's own monitor is at work"
        work(books, "ada", most=40)
        while not closed(store) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert closed(store), "labels close while the run is live"
    before = time.monotonic()
    run.verdict(timeout=30.0)
    assert time.monotonic() - before < 25.0, "the verdict does not wait for people"
    work(books, "ada")
    command = [
        sys.executable,
        "-m",
        "tiltmeter",
        "watch",
        str(store.path),
        "--gold",
        "people",
        "--gold-share",
        "0.5",
    ]
    done = subprocess.run([*command, "--plain"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "people" in done.stdout
    events = journal.read_events(store.path / "events")
    assert sum(event.data["answered"] for event in events if event.kind == "labels_closed") > 100
    alarms = [event for event in events if event.kind == "alarm" and event.data["tier"] == "alarm"]
    assert alarms
    assert alarms[0].data["name"] in ("gold.slope", "gold.duel")
    assert not RunReader(store).refresh().checks["gold"].why.startswith("no gold")


def closed(run: RunDirectory) -> list[journal.Event]:
    told = (event for event in journal.read_events(run.path / "events") if event.kind == "labels_closed")
    return [event for event in told if event.data["answered"]]
