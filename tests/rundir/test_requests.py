"""P14, F20, T13: nothing is applied without permission, and nothing twice.

`TILTMETER_REQUESTS=10000 pytest tests/rundir/test_requests.py` is the campaign.
"""

from __future__ import annotations

import json
import math
import os
import random
import stat
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.data.records import Finding
from tiltmeter.errors import AttachError
from tiltmeter.interventions.policy import InterventionPolicy
from tiltmeter.rundir import receipts, requests
from tiltmeter.rundir.requests import ControlRequest, Knob, Receipt
from tiltmeter.rundir.signing import MAX_FILE_BYTES, make_token, read_token, receipt_key, signature
from tiltmeter.rundir.store import RunDirectory

PLANTED = int(os.environ.get("TILTMETER_REQUESTS", "500"))
LOST = 1000
KNOBS = {
    "beta": Knob("beta", 0.04, 1e-6, 1.0),
    "entropy_coef": Knob("entropy_coef", 0.0, 0.0, 0.05, "TRL's own control is on"),
    "learning_rate": Knob("learning_rate", 1e-5, 1e-7, 1e-5),
    "rollback": Knob("rollback", 0.0, 0.0, math.inf),
    "stop": Knob("stop", 0.0, 0.0, 1.0),
}
NOW = (2, 500)  # attempt and step of the trainer


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # what is tested here is not power cuts
    return RunDirectory.create(tmp_path / "run")


def wanted(number: int, **other: Any) -> ControlRequest:
    """A request that would be followed."""
    name = f"{NOW[0]}-{number}-beta"
    facts = {"knob": "beta", "value": 0.08, "kind": "approve", "who": "operator", "expires_step": 550}
    return ControlRequest(**{"id": f"{name}.approve", "action": name, "attempt": NOW[0], **facts, **other})


def polled(
    run: RunDirectory, known: set[str], token: bytes, mode: requests.Mode = "act"
) -> tuple[list[ControlRequest], list[requests.Refusal]]:
    """What a trainer accepts, over as many polls as the heap takes."""
    good: list[ControlRequest] = []
    refused: list[requests.Refusal] = []
    for _ in range(PLANTED // 100 + 10):
        one, two = requests.read_requests(
            run, known, token, attempt=NOW[0], step=NOW[1], mode=mode, knobs=KNOBS, now=1e9
        )
        if not one and not two:
            break
        good, refused = good + one, refused + two
    return good, refused


def put(run: RunDirectory, name: str, content: bytes) -> None:
    folder = run.path / "control" / "requests"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / name).write_bytes(content)


def signed(facts: Any, token: bytes) -> bytes:
    return json.dumps({"request": facts, "signature": signature(facts, token)}).encode()


def facts_of(number: int, **other: Any) -> dict[str, Any]:
    """What a request says, with something else in it that `ControlRequest` itself would refuse."""
    return asdict(wanted(number)) | other


# -- P14: ways in which somebody might try. Each plants one file that must not be followed. ---------------------------


def noise(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    put(run, f"noise-{n}.json", rng.randbytes(rng.randrange(0, 300)))


def unsigned(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(n)
    made = rng.choice(
        [{"request": facts}, {"request": facts, "signature": ""}, {"request": facts, "signature": None}, facts]
    )
    put(run, f"{facts['id']}.json", json.dumps(made).encode())


def by_another_token(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(n)
    put(run, f"{facts['id']}.json", signed(facts, rng.randbytes(32)))


def changed_after_signing(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(n)
    content = json.loads(signed(facts, token))
    key = rng.choice(["value", "expires_step", "attempt", "knob", "kind"])
    content["request"][key] = {"value": 0.5, "knob": "learning_rate", "kind": "undo"}.get(key, 10**6)
    put(run, f"{facts['id']}.json", json.dumps(content).encode())


def replayed(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(0)  # one that was followed, under a new name
    put(run, f"{NOW[0]}-{n}-again.approve.json", signed(facts, token))


def stale(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    other: dict[str, Any] = rng.choice([{"attempt": 1}, {"attempt": 3}, {"expires_step": 499}, {"expires_time": 0.9e9}])
    facts = facts_of(n, **other)
    put(run, f"{facts['id']}.json", signed(facts, token))


def out_of_range(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    value = rng.choice([0.0, -1.0, 1.0000001, 1e9, -1e-9, 1e308])
    facts = facts_of(n, value=value)
    put(run, f"{facts['id']}.json", signed(facts, token))


def not_finite(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(n, value=rng.choice([math.nan, math.inf, -math.inf, 10**400, True, "0.08", None, [0.08]]))
    put(run, f"{facts['id']}.json", signed(facts, token))


def unknown_knob(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    names = [
        "temperature",
        "",
        "BETA",
        "reward_weight",
        "reward_weight.",
        "reward_weight.x",
        "gold_share",
        7,
        "entropy_coef",
    ]
    facts = facts_of(n, knob=rng.choice(names))
    put(run, f"{facts['id']}.json", signed(facts, token))


def same_again(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    extra = rng.choice([{}, {"with_knob": "stop", "with_value": 1.0}, {"with_knob": "beta", "with_value": 2.0}])
    facts = facts_of(n, knob="rollback", value=400.0, **extra)
    put(run, f"{facts['id']}.json", signed(facts, token))


def malformed(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(n)
    key = rng.choice([*sorted(set(facts) - {"text", "asked", "author"}), "more", "kind", "who"])
    if rng.random() < 0.5 and key in facts:
        del facts[key]
    else:
        facts[key] = rng.choice([{}, [], "../../run", -1.5, "monitor\x00"])
    put(run, f"{facts_of(n)['id']}.json", signed(facts, token))


def too_large(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    facts = facts_of(n, text="a" * MAX_FILE_BYTES)
    put(run, f"{facts['id']}.json", signed(facts, token))


def deep(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    put(run, f"deep-{n}.json", b'{"request":' + b"[" * 2000 + b"]" * 2000 + b"}")


def no_file(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    """A link to a request that would be followed, a pipe, a folder."""
    put(run, f"real-{n}.txt", signed(facts_of(n), token))
    folder = run.path / "control" / "requests"
    path = folder / f"{facts_of(n)['id']}.json"
    kind = rng.randrange(3)
    if kind == 0:
        path.symlink_to(folder / f"real-{n}.txt")
    elif kind == 1:
        os.mkfifo(path)
    else:
        path.mkdir()


def odd_name(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    name = rng.choice([f"a b {n}", f"é{n}", f"-{n}", "x" * 130 + str(n)])
    put(run, f"{name}.json", signed(facts_of(n, id=name), token))


def apply_by_a_person(run: RunDirectory, n: int, rng: random.Random, token: bytes) -> None:
    other: dict[str, Any] = rng.choice([{"who": "monitor"}, {"kind": "apply"}, {"expires_step": None}])
    facts = facts_of(n, **other)
    put(run, f"{facts['id']}.json", signed(facts, token))


#: Each with what its refusal must say.
REASONS = {
    noise: "not JSON|not UTF-8",
    unsigned: "missing required field|unknown field|Expected `str`, got `null`|not signed",
    by_another_token: "not signed",
    changed_after_signing: "not signed",
    replayed: "replayed",
    stale: "stale",
    out_of_range: "outside",
    not_finite: "finite|out of range|Expected `float`",
    unknown_knob: "no knob|cannot be changed|Expected `str`, got `int`",
    same_again: "repeats the same|outside",
    malformed: "malformed|Expected `|Invalid enum value|no knob|replayed|never|stale|its id|only a rollback|outside",
    too_large: "bytes",
    deep: "nested too deeply",
    no_file: "symbolic link|plain file",
    odd_name: "malformed",
    apply_by_a_person: "the monitor applies|never expires",
}
WAYS = tuple(REASONS)


def test_of_all_that_is_planted_nothing_is_accepted_and_a_true_request_still_is(run: RunDirectory) -> None:
    token, known, rng = make_token(run), set[str](), random.Random(14)
    requests.write_request(run, wanted(0), token)
    assert [request.id for request in polled(run, known, token)[0]] == ["2-0-beta.approve"]
    for n in range(1, PLANTED + 1):
        WAYS[n % len(WAYS)](run, n, rng, token)
    requests.write_request(run, wanted(PLANTED + 1), token)
    good, refused = polled(run, known, token)
    assert [request.id for request in good] == [f"2-{PLANTED + 1}-beta.approve"]
    assert len(refused) == PLANTED  # each once, none overlooked
    assert polled(run, known, token) == ([], [])
    assert all(str(refusal).isascii() and len(str(refusal)) < 400 for refusal in refused)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_refused_for_its_own_reason(run: RunDirectory, way: Any) -> None:
    token, known, rng = make_token(run), {"2-0-beta.approve"}, random.Random(7)
    for n in range(1, 13):
        way(run, n, rng, token)
    good, refused = polled(run, known, token)
    assert good == [] and len(refused) == 12
    reasons = REASONS[way].split("|")
    assert all(any(reason in str(refusal) for reason in reasons) for refusal in refused), [str(r) for r in refused]


def test_in_each_mode_only_what_it_allows_is_heard(run: RunDirectory) -> None:
    token = make_token(run)
    for number, (kind, who) in enumerate(
        [
            ("apply", "monitor"),
            ("approve", "operator"),
            ("undo", "operator"),
            ("reject", "operator"),
            ("note", "operator"),
        ]
    ):
        requests.write_request(run, wanted(number, id=f"2-{number}-beta.{kind}", kind=kind, who=who), token)
    heard = {mode: {r.kind for r in polled(run, set(), token, mode)[0]} for mode in ("observe", "advise", "act")}
    assert heard == {"observe": set(), "advise": {"approve", "undo"}, "act": {"apply", "approve", "undo"}}


def test_what_belongs_to_somebody_else_is_refused(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    token = make_token(run)
    requests.write_request(run, wanted(1), token)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    good, refused = polled(run, set(), token)
    assert good == [] and "belongs to user" in str(refused[0])
    with pytest.raises(AttachError, match="not yours alone"):
        read_token(run)


def test_control_and_token_are_for_their_owner_alone(run: RunDirectory, tmp_path: Path) -> None:
    token = make_token(run)
    assert make_token(run) == read_token(run) == token and len(token) >= 64
    requests.write_request(run, wanted(1), token)
    log = receipts.ReceiptLog(run, receipt_key(token))
    log.append(2, Receipt("2-1-beta.approve", 0, "applied", "beta", 0.04, 0.08, 500))
    for folder in (".", "requests", "receipts"):
        assert stat.S_IMODE((run.path / "control" / folder).stat().st_mode) == 0o700
    [path] = (tmp_path / "state" / "tiltmeter").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and run.path not in path.parents
    path.chmod(0o644)
    with pytest.raises(AttachError, match="chmod 600"):
        read_token(run)


@pytest.mark.parametrize("name", ["../../evil", "", None, 7, "a/b", "x" * 100])
def test_a_run_cannot_choose_where_its_token_lies(run: RunDirectory, name: object) -> None:
    facts = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(facts | {"id": name}))
    with pytest.raises(AttachError, match="no usable id"):
        make_token(run)


def test_a_linked_control_folder_is_not_followed(run: RunDirectory, tmp_path: Path) -> None:
    other = RunDirectory.create(tmp_path / "other")
    token = make_token(run)
    requests.write_request(other, wanted(1), token)
    (run.path / "control").symlink_to(other.path / "control")
    assert polled(run, set(), token) == ([], [])


def test_a_heap_of_files_does_not_hold_up_a_step(run: RunDirectory) -> None:
    token, known = make_token(run), set[str]()
    for n in range(600):
        put(run, f"junk-{n}.json", b"{}")
    _, refused = requests.read_requests(run, known, token, attempt=2, step=500, mode="act", knobs=KNOBS)
    assert len(refused) == 256


def test_requests_come_in_the_order_in_which_they_were_asked(run: RunDirectory) -> None:
    token = make_token(run)
    for number, asked in ((3, 1.0), (1, 2.0), (2, 3.0)):
        requests.write_request(run, wanted(number, asked=asked), token)
    assert [r.id[2] for r in polled(run, set(), token)[0]] == ["3", "1", "2"]
    with pytest.raises(FileExistsError):
        requests.write_request(run, wanted(1), token)


def test_what_is_published_is_read_back(run: RunDirectory) -> None:
    requests.publish_knobs(run, 2, "advise", KNOBS, 6.0)
    assert requests.read_knobs(run, 2) == requests.ControlOffer("advise", KNOBS, 6.0)
    with pytest.raises(FileExistsError):
        requests.publish_knobs(run, 2, "act", KNOBS)


# -- F20: a receipt that is lost ---------------------------------------------------------------------------------------


class Trainer:
    """What an adapter does at the end of a step, with a log of it."""

    def __init__(self, run: RunDirectory, token: bytes, attempt: int, beta: float) -> None:
        self.run, self.token, self.attempt, self.beta = run, token, attempt, beta
        self.known, self.receipts = receipts.answered_ids(run), receipts.ReceiptLog(run, receipt_key(token))
        self.applied: list[tuple[str, float]] = []

    def step(self, step: int, lose: bool) -> int:
        offer = {"beta": replace(KNOBS["beta"], value=self.beta)}
        found = requests.read_requests(
            self.run, self.known, self.token, attempt=self.attempt, step=step, mode="act", knobs=offer
        )
        for request in found[0]:
            before, self.beta = self.beta, request.value
            self.applied.append((request.id, request.value))
            if not lose:
                self.receipts.append(self.attempt, Receipt(request.id, 0, "applied", "beta", before, self.beta, step))
        return len(found[0])


def test_a_thousand_lost_receipts_never_apply_anything_twice(run: RunDirectory, tmp_path: Path) -> None:
    """Receipts are lost, files are put back after they were followed, monitor and trainer start again and forget."""
    rng, lost, number = random.Random(20), 0, 0
    while lost < LOST:
        number += 1
        run = RunDirectory.create(tmp_path / f"run-{number}")
        token, followed = make_token(run), Counter[str]()
        for attempt in range(8):
            trainer = Trainer(run, token, attempt, 0.04)
            steward, heard = InterventionPolicy("act", {"beta": KNOBS["beta"]}, patience=3, cool_down=1), set[str]()
            for step in range(1, 40):
                found = [Finding(attempt, step, "kl_failure", 0.9, (), ("policy.kl.k3",))]
                steward.consider(attempt, step, found, (), ())
                for request in steward.requests(steward.open):
                    try:
                        requests.write_request(run, request, token)
                    except FileExistsError:
                        if rng.random() < 0.3:  # somebody puts it there once more
                            (run.path / "control" / "requests" / f"{request.id}.json").unlink()
                            requests.write_request(run, request, token)
                lose = rng.random() < 0.95
                lost += trainer.step(step, lose) * lose
                moved = [
                    action
                    for told in receipts.read_receipts(run, heard, token)[0]
                    for action in steward.heard(told, step)
                ]
                assert trainer.beta in (0.04, 0.08)  # absolute: what nobody heard of is never done on top of itself
                if moved:
                    assert steward.knobs["beta"].value == trainer.beta == 0.08
                    break
                if rng.random() < 0.05:
                    steward, heard = InterventionPolicy("act", {"beta": KNOBS["beta"]}, patience=3, cool_down=1), set()
            followed.update(name for name, _ in trainer.applied)
        assert max(followed.values()) == 1
    assert number > 1
