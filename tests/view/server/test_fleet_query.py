"""Which runs a query finds, in which order and groups; nothing that needs a person is buried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from tiltmeter.verdict.gold_standing import GoldLevel
from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.overview import FleetRow
from tiltmeter.view.server.fleet_query import choose_rows, group_rows, setting_names, sort_rows
from tiltmeter.view.server.run_list import ListedRun


def run(
    name: str, state: State = "OK", gold: float | None = None, tags: str = "", archived: bool = False, **settings: str
) -> ListedRun:
    level = None if gold is None else GoldLevel(gold, gold, 0.0, 0.0, 0.0, "gold.mean", 0, 9, 0, 9)
    rest: dict[str, Any] = {"agreement": None, "kl": None, "did": "", "labels": 0, "last_good": None, "picture": None}
    rest["reward"] = None if gold is None else 2.0 * gold
    row = FleetRow(
        run=name, name=name, state=state, sentence="", live=state != "STALE", attempt=0, step=3, age_s=1.0,
        level=level, tags=tags.split(), archived=archived, what=f"{state} it is", unread=False, settings=settings,
        **rest,
    )  # fmt: skip
    return ListedRun(row, 0.0, False)


RUNS = [
    run("lr-1e-5", gold=0.2, beta="0.1"),
    run("lr-1e-6", "ACT", gold=0.9, beta="0.1", model="org/a"),
    run("<img src=x>", "STALE", beta="0.04"),
    run("other", "BLIND", gold=0.5, tags="keep Baseline"),
]
ARCHIVED = run("old", "ACT", tags="keep", archived=True)


def names(runs: list[ListedRun]) -> list[str]:
    return [one.row.name for one in runs]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ["lr-1e-5", "lr-1e-6", "<img src=x>", "other"]),
        ("LR", ["lr-1e-5", "lr-1e-6"]),
        ("/^lr-1e-[6]$/", ["lr-1e-6"]),
        ("state:act", ["lr-1e-6"]),
        ("live:no", ["<img src=x>"]),
        ("beta=0.1 org/a", ["lr-1e-6"]),
        ('"<img src"', ["<img src=x>"]),
        ("nothing-of-it", []),
        ("tag:keep", ["other"]),
        ("tag:baseline", ["other"]),
        ("tag:base", []),
        ("tag:keep archived:yes", ["old"]),
        ("tag:keep archived:any", ["other", "old"]),
        ("old archived:no", []),
    ],
)
def test_a_query_finds_by_name_state_and_setting(query: str, wanted: list[str]) -> None:
    assert names(choose_rows([*RUNS, ARCHIVED], query)) == wanted


@pytest.mark.parametrize("query", ["/(/", "state:fine", '"open', "a " * 20, "/(?=x)/", "archived:maybe"])
def test_a_query_that_is_not_understood_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        choose_rows(RUNS, query)


def test_the_worst_comes_first_and_what_is_missing_last() -> None:
    assert names(sort_rows(RUNS, "state", up=True))[:2] == ["lr-1e-6", "<img src=x>"]
    assert names(sort_rows(RUNS, "gold", up=True)) == ["lr-1e-5", "other", "lr-1e-6", "<img src=x>"]
    assert names(sort_rows(RUNS, "gold", up=False)) == ["lr-1e-6", "other", "lr-1e-5", "<img src=x>"]


def test_groups_have_their_counts_and_those_in_trouble_come_first() -> None:
    rows, groups = group_rows(RUNS, "beta")
    assert [(one.value, one.runs, one.states.get("ACT", 0)) for one in groups] == [
        ("0.1", 2, 1), ("0.04", 1, 0), ("not known", 1, 0),
    ]  # fmt: skip
    assert names(rows)[:2] == ["lr-1e-5", "lr-1e-6"] and setting_names(RUNS) == ["beta"]


def test_groups_are_compared_by_mean_and_spread_of_the_runs_that_have_the_number() -> None:
    groups = {one.value: one for one in group_rows([*RUNS, run("third", gold=0.4, beta="0.1")], "beta")[1]}
    gold = groups["0.1"].gold
    assert gold.values == [0.2, 0.4, 0.9] and gold.n == 3
    assert gold.mean == pytest.approx(np.mean([0.2, 0.4, 0.9])) and gold.sd == pytest.approx(
        np.std([0.2, 0.4, 0.9], ddof=1)
    )
    assert groups["0.1"].reward.mean == pytest.approx(1.0) and (groups["0.1"].first, groups["0.1"].last) == (3, 3)
    lacks = groups["0.04"].gold
    assert (lacks.n, lacks.mean, lacks.sd, lacks.values) == (0, None, None, []), "no gold is not 0"
    assert groups["not known"].gold.n == 1 and groups["not known"].gold.sd is None
    many = group_rows([run(str(k), gold=k / 998, beta="1") for k in range(999)], "beta")[1][0].reward
    assert many.n == 999 and len(many.values) <= 200 and many.mean == pytest.approx(1.0)
