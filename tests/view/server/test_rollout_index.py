"""The index of rollouts against brute force over the same files, and what a client cannot make it do."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.sizes import size
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.gold.label_files import Label, LabelRequest, write_label, write_request
from tiltmeter.gold.sampler import Bet
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.reading_room.notes import write_entry
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens import rollouts as rollouts_screen
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import rollout_index, rollout_search
from tiltmeter.view.server import rollouts as pages
from tiltmeter.view.server.rollouts import RolloutIndex

shown, group = as_sent(rollouts_screen.group), as_sent(pages.group)
rollout, rollouts = as_sent(pages.rollout), as_sent(pages.rollouts)

RANKS, STEPS, EACH = 2, 40, size(128, 256)  # 20,480 rollouts in the campaign
REWIND = 30  # attempt 1 goes on from here
ODD = [float("nan"), float("inf"), float("-inf"), None, 10**400, "seven", TimeoutError("judge")]


def columns(rng: np.random.Generator, step: int, rows: int, *, first: int) -> dict[str, Any]:
    """What a rank hands over: a tenth of rewards equal, some that are no numbers, text of all kinds."""
    reward: list[Any] = np.where(rng.random(rows) < 0.1, 0.5, rng.normal(size=rows)).tolist()
    for row in rng.choice(rows, rows // 50, replace=False):
        reward[row] = ODD[int(row) % len(ODD)]
    texts = [f"{'long ' * int(rng.integers(0, 60))}answer {step}.{first + row}" for row in range(rows)]
    texts[0] += " \ud800 half a character, 100%_literal"
    return {
        "reward": reward,
        "rewards": {"correct": rng.random(rows).round(), "style": rng.random(rows)},
        "advantage": rng.normal(size=rows),
        "gold": np.where(rng.random(rows) < 0.02, rng.random(rows), np.nan),
        "length": rng.integers(1, 50, rows),
        "truncated": rng.random(rows) < 0.1,
        "completion": texts,
    }


def write(run: RunDirectory, attempt: int, step: int, rank: int, rows: int = EACH, *, shared: bool = True) -> None:
    """With shared groups a prompt's completions lie on both ranks, so that joining sorts the rows anew."""
    rng = np.random.default_rng([attempt, step, rank])
    ids = rng.permutation(np.repeat(np.arange(rows // 4), 4)) if shared else np.repeat(np.arange(rows // 4), 4)
    # Text and group must go together, so prompts are named by group; the groups of two ranks have the same prompts.
    told = columns(rng, step, rows, first=rank * rows)
    prompt = [f"prompt {(number + step) % 97}" for number in ids]
    batch = from_columns(step, ids, attempt=attempt, prompt=prompt, facts=['{"a": 1}'] * rows, **told)
    run.write(batch, rank, {"time": time.time(), "groups": "shared" if shared else "rank"})


def made(path: Path, *, shared: bool, rewound: bool = True) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="one", ranks=RANKS, resume_step=None)
    for step in range(STEPS):
        for rank in range(RANKS):
            write(run, 0, step, rank, shared=shared)
    if rewound:
        rewind(run, shared=shared)
    return run


def rewind(run: RunDirectory, *, shared: bool = True) -> None:
    attempt = run.open_attempt(launch="two", ranks=RANKS, resume_step=REWIND)
    for step in range(REWIND, REWIND + 4):
        for rank in range(RANKS):
            write(run, attempt, step, rank, rows=64, shared=shared)


def buy(run: RunDirectory, attempt: int, step: int, rows: list[int], answered: int) -> LabelRequest:
    """Ask for labels of these rows of a step, two a bet, and answer the first of them."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    bets = tuple(Bet("slope", (attempt, step, up), (attempt, step, down), 0.5, 0.1) for up, down in pairs)
    asked = LabelRequest(
        attempt, step, ((0, 1),), "ab", {"name": "n", "identity": "i"}, 0.02, {}, bets, (None,) * len(rows)
    )
    write_request(run, asked)
    for number in range(answered):
        write_label(run, asked, number, Label(number / 10.0), "n")
    return asked


Line = dict[str, Any]


def truth(run: RunDirectory, bought: dict[tuple[int, int, int], float]) -> list[Line]:
    """Every rollout, read by the monitor's own reader and joined as it joins."""
    lines: list[Line] = []
    for attempt in run.attempts():
        for step in sorted({file.step for file in run.files(attempt)}):
            batch = read_step(run, attempt, step, [[0, RANKS - 1]])
            lines += [_line(batch, row, bought) for row in range(len(batch))]
            _place(batch, lines[-len(batch) :])
    return lines


def _line(batch: RolloutBatch, row: int, bought: dict[tuple[int, int, int], float]) -> Line:
    assert batch.reward is not None and batch.gold is not None and batch.length is not None
    assert batch.truncated is not None and batch.completion is not None and batch.advantage is not None
    gold = float(batch.gold[row])
    gold = bought.get((batch.attempt, batch.step, row), gold) if np.isnan(gold) else gold
    return {
        "key": (batch.attempt, batch.step, row),
        "group": int(batch.group[row]),
        "reward": float(batch.reward[row]),
        "flag": FLAGS[batch.flags["reward"][row]].replace("ok", "") if "reward" in batch.flags else "",
        "gold": gold,
        "length": int(batch.length[row]),
        "truncated": bool(batch.truncated[row]),
        "advantage": float(batch.advantage[row]),
        "text": batch.completion[row],
        "prompt": "" if batch.prompt is None else batch.prompt[row],
        "abandoned": batch.attempt == 0 and batch.step >= REWIND,
    }


def _place(batch: RolloutBatch, lines: list[Line]) -> None:
    """The gap and the disagreement of each row, which its whole step decides."""
    paid = np.array([line["reward"] for line in lines])
    known = paid[np.isfinite(paid)]
    parts = np.stack([(values - values.mean()) / values.std() for values in batch.rewards.values()])
    width = np.ptp(parts, axis=0)
    edge = np.quantile(width, 0.75, method="higher")
    for line, reward, wide in zip(lines, paid, width, strict=True):
        place = ((known < reward).sum() + (known <= reward).sum()) / (2 * len(known))
        line["gap"] = place - line["gold"] if np.isfinite(reward) else np.nan
        line["disagree"] = bool(wide >= edge)


def expected(lines: list[Line], filters: dict[str, Any], sort: str, order: str) -> list[tuple[int, int, int]]:
    """Brute force: the keys that match, in order."""
    attempt, step, row = np.array([line["key"] for line in lines]).T
    known = {name: np.array([line[name] for line in lines]) for name in ("reward", "gold", "length", "gap")}
    truncated, disagree, abandoned = (
        np.array([line[name] for line in lines]) for name in ("truncated", "disagree", "abandoned")
    )
    kept = np.ones(len(lines), bool) if "attempt" in filters else ~abandoned
    for name, value in filters.items():
        match name.split("_"):
            case [column, "min"]:
                kept &= known[column] >= value
            case [column, "max"]:
                kept &= known[column] <= value
            case ["labelled"]:
                kept &= np.isfinite(known["gold"]) == value
            case ["flagged"]:
                kept &= np.array([line["flag"] != "" for line in lines]) == value
            case _:
                kept &= {
                    "from": step >= value,
                    "to": step <= value,
                    "attempt": attempt == value,
                    "truncated": truncated == value,
                    "disagree": disagree == value,
                }[name]
    sign = 1 if order == "up" else -1
    if sort == "step":
        places = np.lexsort((row, sign * attempt, sign * step))
    else:
        places = np.lexsort((row, -attempt, -step, sign * known[sort]))  # NaN sorts last, whatever its sign
    return [lines[place]["key"] for place in places if kept[place]]


def walked(index: RolloutIndex, filters: dict[str, Any], sort: str, order: str, pages: int, limit: int) -> Any:
    """The ids of so many pages, by cursor, and the total that each page told."""
    keys, totals, after = [], set(), ""
    for _ in range(pages):
        page = rollouts(index, filters, sort, order, after, limit)
        keys += [tuple(map(int, row["id"].split("-"))) for row in page["rows"]]
        totals.add(page["total"])
        after = page["after"]
        if not after:
            break
    return keys, totals


def asking(rng: np.random.Generator) -> dict[str, Any]:
    """A few filters at random."""
    every: dict[str, Any] = {
        "from": int(rng.integers(0, STEPS)),
        "to": int(rng.integers(STEPS // 2, STEPS)),
        "attempt": int(rng.integers(0, 2)),
        "reward_min": float(rng.normal() - 1),
        "reward_max": float(rng.normal() + 1),
        "gold_min": float(rng.random() / 2),
        "gold_max": float(0.5 + rng.random() / 2),
        "length_min": int(rng.integers(0, 20)),
        "length_max": int(rng.integers(20, 50)),
        **{name: int(rng.integers(0, 2)) for name in ("labelled", "truncated", "flagged", "disagree")},
    }
    chosen = rng.choice(list(every), int(rng.integers(0, 4)), replace=False).tolist()
    return {name: every[name] for name in chosen}


@pytest.fixture(scope="module", params=["shared", "packed", "ranks apart"][: size(2, 3)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An index of a rewound run of two ranks with bought labels, and what brute force says of the same files."""
    run = made(tmp_path_factory.mktemp("runs") / "run", shared=request.param != "ranks apart")
    buy(run, 0, 3, [0, 5, 9, 11], answered=3)
    bought = {(0, 3, row): number / 10.0 for number, row in enumerate([0, 5, 9])}
    lines = truth(run, bought)
    if request.param == "packed":
        for rank in range(RANKS):
            run.close_rank(0, rank, {})
            run.close_rank(1, rank, {})
        assert pack(run) == (STEPS + 4) * RANKS
        run = RunDirectory(run.path)
    index = RolloutIndex(RunReader(run))
    index.update()
    yield index, lines
    index.close()


@pytest.mark.parametrize("sort", ["step", "reward", "gold", "length", "gap"])
@pytest.mark.parametrize("order", ["up", "down"])
def test_pages_are_what_brute_force_finds(whole: Any, sort: str, order: str) -> None:
    index, lines = whole
    assert index.rollouts == len(lines) and index.ready == 1.0
    for seed in range(size(1, 6)):
        rng = np.random.default_rng([seed, len(sort), len(order)])
        filters, limit = asking(rng), int(rng.integers(1, 41))
        want = expected(lines, filters, sort, order)
        keys, totals = walked(index, filters, sort, order, 3, limit)
        assert totals == {len(want)}, filters
        assert keys == want[: 3 * limit], filters


def test_a_walk_by_cursor_meets_every_rollout_once_also_those_without_a_value(whole: Any) -> None:
    index, lines = whole
    want = expected(lines, {"from": 2, "to": 3}, "gap", "down")
    assert any(np.isnan(line["gap"]) for line in lines if line["key"] in want[-100:])
    keys, _ = walked(index, {"from": 2, "to": 3}, "gap", "down", 100, 37)
    assert keys == want and len(set(keys)) == len(want)


def test_a_row_says_what_its_file_says(whole: Any) -> None:
    index, lines = whole
    known = {line["key"]: line for line in lines}
    for sort in ("reward", "gold", "length"):
        for row in rollouts(index, {}, sort, "down", limit=20)["rows"]:
            line = known[tuple(map(int, row["id"].split("-")))]
            assert row["text"] == line["text"][:200]
            assert (row["group"], row["flag"], row["length"]) == (line["group"], line["flag"], line["length"])
            for name in ("reward", "gold", "advantage"):
                assert row[name] == (None if np.isnan(line[name]) else line[name])
            full = rollout(index, row["id"])
            assert full["completion"] == line["text"] and full["prompt"].startswith("prompt ")
            assert [part["name"] for part in full["rewards"]] == ["correct", "style"] and full["facts"] == '{"a": 1}'
            json.dumps(full, allow_nan=False)


def test_a_reward_that_is_no_number_is_never_first_and_keeps_its_reason(whole: Any) -> None:
    index, _ = whole
    for order in ("up", "down"):
        for sort in ("reward", "gap"):
            assert all(row["reward"] is not None for row in rollouts(index, {}, sort, order, limit=100)["rows"])
    flags = {row["flag"] for row in rollouts(index, {"flagged": 1}, limit=100)["rows"]}
    assert flags == {"nan", "+inf", "-inf", "missing", "overflow", "type", "infra"}


def test_a_group_is_listed_best_paid_first_with_its_mean_and_spread(whole: Any) -> None:
    index, lines = whole
    line = next(line for line in lines if line["key"] == (0, 20, 17))
    mates = [one for one in lines if one["key"][:2] == (0, 20) and one["group"] == line["group"]]
    told = group(index, "0-20-17")
    paid = np.array([one["reward"] for one in mates])
    assert [row["id"] for row in told["rows"]] == [
        "-".join(map(str, mates[k]["key"])) for k in np.argsort(-paid, kind="stable")
    ]
    assert told["mean"] == pytest.approx(np.nanmean(paid)) and told["spread"] == pytest.approx(np.nanstd(paid))
    assert told["rollout"] == rollout(index, "0-20-17")
    assert told["base"]["step"] == 0 and told["base_why"] == ""
    base = next(one for one in lines if one["text"] == told["base"]["text"])
    assert base["key"][:2] == (0, 0)
    assert rollout(index, "-".join(map(str, base["key"])))["prompt"] == told["rollout"]["prompt"]


def test_a_book_without_an_index_gives_the_same_rollout(whole: Any) -> None:
    index, _ = whole
    assert rollout(index.reader, "0-3-5") == rollout(index, "0-3-5")
    assert rollout(index, "0-3-5")["gold"] == 0.1
    alone = group(index.reader, "0-3-5")
    assert alone["rows"] == group(index, "0-3-5")["rows"]
    assert alone["base"] is None and "indexed" in alone["base_why"]


def test_a_search_finds_the_text_literally_and_says_how_far_it_looked(
    whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, lines = whole
    texts = {line["key"]: line["text"] for line in lines}
    for phrase in ("answer 7.1", "100%_literal", "ANSWER", "[a-z]"):
        want = [key for key in expected(lines, {"from": 5, "to": 9}, "length", "down") if phrase in texts[key]]
        filters = {"from": 5, "to": 9, "phrase": phrase}
        keys, totals = walked(index, filters, "length", "down", 9, 50)
        assert keys == want and totals == {len(want)}
        page = rollouts(index, filters)
        assert page["searched"] == page["to_search"] == 5 * RANKS * EACH
    monkeypatch.setattr(rollout_search, "WAIT_SECONDS", 0.0)
    seen: set[tuple[int, int]] = set()
    while (page := rollouts(index, {"phrase": "answer"}))["searched"] < page["to_search"]:
        seen.add((page["searched"], page["total"]))  # so far, and it goes on
        assert page["total"] <= page["searched"]
    assert page["total"] == sum("answer" in texts[key] for key in expected(lines, {}, "step", "down"))


def test_a_query_is_what_brute_force_finds_with_case_expressions_and_prompts(whole: Any) -> None:
    index, lines = whole
    rows = {line["key"]: line for line in lines}
    keys = expected(lines, {"from": 2, "to": 8}, "step", "down")
    for query, wanted in (
        ('"answer 7."', lambda line: "answer 7." in line["text"] or "answer 7." in line["prompt"]),
        ('text:"ANSWER 7"i', lambda line: "answer 7" in line["text"].lower()),
        (r"text~/answer \d\.[13]/", lambda line: re.search(r"answer \d\.[13]", line["text"])),
        ("prompt~/^PROMPT \\d*3/i", lambda line: re.search(r"(?i)^prompt \d*3", line["prompt"])),
        ('text:"answer" prompt:"3"', lambda line: "answer" in line["text"] and "3" in line["prompt"]),
    ):
        got, _ = walked(index, {"find": f"step:2..8 {query}"}, "step", "down", 40, 100)
        assert got == [key for key in keys if wanted(rows[key])], query
        assert got, "it must be able to fail"
    page = rollouts(index, {"find": "step:3 sort:reward.up reward>0"})
    assert [row["reward"] for row in page["rows"]] == sorted(row["reward"] for row in page["rows"])
    assert page["rows"] and all(row["reward"] > 0 and row["step"] == 3 for row in page["rows"])


def test_hits_are_marked_in_the_list_and_in_the_open_rollout(whole: Any) -> None:
    index, _ = whole
    page = rollouts(index, {"find": "text~/ANSWER [0-9]+/i"})
    row = page["rows"][0]
    assert re.fullmatch("answer [0-9]+", utf16(row["text"], row["hit"]))
    opened = group(index, row["id"], "text~/(ANSWER) [0-9]+/i")
    (hit, *_) = opened["hits"]
    assert hit["where"] == "completion" and re.fullmatch("answer [0-9]+", utf16(opened["rollout"]["completion"], hit))
    assert group(index, row["id"])["hits"] == []


def utf16(text: str, hit: dict[str, Any]) -> str:
    """What JavaScript would cut out."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw[2 * hit["start"] : 2 * hit["stop"]].decode("utf-16-le", "surrogatepass")


@pytest.mark.parametrize(
    "query",
    ["text~/(/", 'text:"', "reward>much", "step:", "step:3..2..1", "reward:3", "sort:nothing", "text~/a{1001}/",
     'prompt:/x/', '"' + "x" * 300 + '"', "x " * 40, "text~/(?=a)/", "gold<0.1 gold<0.2", '"\ud800"'],
)  # fmt: skip
def test_a_query_that_is_not_understood_is_refused_with_a_reason(whole: Any, query: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        rollouts(whole[0], {"find": query})


def test_an_expression_that_would_take_for_ever_elsewhere_takes_none(whole: Any) -> None:
    began = time.process_time()
    rollouts(whole[0], {"find": "text~/(a+)+$/ text~/(.*a){20}/"})
    assert time.process_time() - began < 20


def test_the_filter_of_texts_never_misses(whole: Any) -> None:
    """Every search again, with all files in the filter: the same rows as reading everything gives."""
    index, lines = whole
    texts = {line["key"]: line["text"] for line in lines}
    keys = expected(lines, {"from": 3, "to": 5}, "step", "down")
    for phrase in ("answer", "wer 3", "\u00e9", "x"):
        rollouts(index, {"find": f'text:"{phrase}"'})
        index.searches.clear()
        got, _ = walked(index, {"find": f'step:3..5 text:"{phrase}"'}, "step", "down", 100, 100)
        assert got == [key for key in keys if phrase in texts[key]]


@pytest.mark.parametrize(
    "filters",
    [
        {"sort": "reward"},
        {"1=1; DROP TABLE rollouts": 1},
        {"from": "0 OR TRUE"},
        {"from": -1},
        {"from": "٣"},
        {"to": 2**60},
        {"reward_min": "nan"},
        {"reward_min": True},
        {"gold_max": "1e999"},
        {"labelled": 2},
        {"phrase": "x" * 201},
        {"phrase": "\ud800"},
        {"phrase": ["x"]},
    ],
)
def test_only_what_is_on_the_list_can_be_asked(whole: Any, filters: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        rollouts(whole[0], filters)


def test_orders_cursors_limits_and_ids_are_checked(whole: Any) -> None:
    index, _ = whole
    cursor = rollouts(index, {}, "reward", "up", limit=1)["after"]
    for sort, order, after, limit in [
        ("prompt", "up", "", 5),
        ("reward", "sideways", "", 5),
        ("reward", "down", cursor, 5),
        ("gold", "up", cursor, 5),
        ("reward", "up", cursor.replace("~", "~1e999~", 1), 5),
        ("reward", "up", "reward.up~nan~0-1-2", 5),
        ("reward", "up", "reward.up~0~0-1", 5),
        ("step", "up", "", 0),
        ("step", "up", "", 101),
    ]:
        with pytest.raises(ValueError):
            rollouts(index, {}, sort, order, after, limit)
    for id in ("", "0-1", "0-1-2-3", "../../etc/passwd", "0-1-x", "-1-0-0", "0-1-٣", "0-1-99999999999", "0-1-2\n"):
        for ask in (rollout, group):
            with pytest.raises(ValueError):
                ask(index, id)
    for id in ("7-0-0", "0-999-0", f"0-1-{RANKS * EACH}", "0-9007199254740992-0"):
        for ask in (rollout, group):
            with pytest.raises(KeyError):
                ask(index, id)


def test_the_table_reaches_nothing_but_itself(whole: Any, tmp_path: Path) -> None:
    canary = tmp_path / "canary.csv"
    canary.write_text("a\n1\n")
    for sql in (
        f"SELECT * FROM read_csv('{canary}')",
        f"SELECT * FROM '{canary}'",
        f"COPY rollouts TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'other.db'}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
    ):
        with whole[0].cursor() as cursor, pytest.raises(duckdb.Error):
            cursor.execute(sql)
    assert list(tmp_path.iterdir()) == [canary]


# -- a run that goes on -----------------------------------------------------------------------------------------------


def small(path: Path, steps: int, ranks: int = 1) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=ranks, resume_step=None)
    for step in range(steps):
        for rank in range(ranks):
            write(run, 0, step, rank, rows=16)
    return run


def test_new_steps_and_late_labels_come_in_and_the_trainers_own_gold_stands(
    tmp_path: Path,
) -> None:
    run = small(tmp_path / "run", 3)
    index = RolloutIndex(RunReader(run))
    index.update()
    assert index.rollouts == 48
    write(run, 0, 3, 0, rows=16)
    asked = buy(run, 0, 1, [0, 1, 2, 3], answered=1)
    own = {row["id"]: row["gold"] for row in rollouts(index, {"labelled": 1}, limit=100)["rows"]}
    index.update()
    assert index.rollouts == 64
    assert rollout(index, "0-1-0")["gold"] == own.get("0-1-0", 0.0)
    assert rollout(index, "0-1-3")["gold"] == own.get("0-1-3")
    write_label(run, asked, 3, Label(0.75), "n")
    write_label(run, asked, 3, Label(0.1), "n")  # a second answer is kept beside the first and never used
    write_label(run, asked, 2, Label(None, "no answer"), "n")
    index.update()
    assert rollout(index, "0-1-3")["gold"] == own.get("0-1-3", 0.75)
    assert rollout(index, "0-1-2")["gold"] == own.get("0-1-2")
    buy(run, 0, 4, [0, 1], answered=2)  # and a label that is there before its step
    write(run, 0, 4, 0, rows=16)
    index.update()
    assert rollout(index, "0-4-1")["gold"] is not None
    index.close()


def test_a_tag_finds_its_rollouts_and_those_of_its_step_also_together_with_a_text(tmp_path: Path) -> None:
    run = small(tmp_path / "run", 4)
    index = RolloutIndex(RunReader(run))
    index.update()
    assert rollouts(index, {"find": "tag:odd"})["rows"] == []
    for target in ("0-1-5", "0-2", "", "0-3-7"):
        write_entry(run, "tag", target, "odd")
    tagged = {row["id"] for row in rollouts(index, {"find": "tag:odd"}, limit=100)["rows"]}
    assert tagged == {"0-1-5", "0-3-7", *(f"0-2-{row}" for row in range(16))}, "a tag on the run is for lists of runs"
    write_entry(run, "tag", "0-2-4", "again")
    (both,) = rollouts(index, {"find": "tag:odd tag:again"})["rows"]
    assert both["id"] == "0-2-4" and both["tags"] == ["again"]
    text = rollout(index, "0-2-4")["completion"][:3]
    within = rollouts(index, {"find": f'tag:again text:"{text}"'})
    assert [row["id"] for row in within["rows"]] == ["0-2-4"] and within["to_search"] == 1
    with pytest.raises(ValueError, match="not understood"):
        rollouts(index, {"find": "tag:<b>"})
    index.close()


def test_what_a_rewind_leaves_goes_out_of_sight_until_its_attempt_is_named(tmp_path: Path) -> None:
    run = made(tmp_path / "run", shared=True, rewound=False)
    index = RolloutIndex(RunReader(run))
    index.update()
    assert rollouts(index, {})["total"] == STEPS * RANKS * EACH
    rewind(run)
    index.update()
    left = (STEPS - REWIND) * RANKS * EACH
    assert rollouts(index, {})["total"] == STEPS * RANKS * EACH - left + 4 * RANKS * 64
    assert rollouts(index, {"attempt": 0})["total"] == STEPS * RANKS * EACH
    assert {row["attempt"] for row in rollouts(index, {"from": REWIND}, limit=100)["rows"]} == {1}
    assert rollout(index, f"0-{STEPS - 1}-0")["completion"] is not None
    index.close()


def test_single_steps_are_served_while_the_table_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small(tmp_path / "run", 6)
    index = RolloutIndex(RunReader(run))
    monkeypatch.setattr(RolloutIndex, "keep_up", lambda self: None)  # as if its thread had not come far
    page = rollouts(index, {"from": 4, "to": 4}, "reward", "up")
    assert (page["total"], page["rollouts"], page["ready"]) == (16, 16, 0.0)
    assert page["rows"][0]["text"] and rollout(index, "0-2-3")["prompt"]
    assert "indexed" in group(index, "0-2-3")["base_why"]
    index.update()
    assert index.rollouts == 96 and rollouts(index, {})["ready"] == 1.0
    index.close()


def test_rows_are_counted_as_the_monitor_joined_them_though_a_rank_came_late(tmp_path: Path) -> None:
    run = small(tmp_path / "run", 0, ranks=2)
    for step in range(6):
        for rank in range(2):
            if (step, rank) != (1, 0):
                write(run, 0, step, rank, rows=16)
    index = RolloutIndex(RunReader(run))
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    write(run, 0, 1, 0, rows=16)
    index.update()
    batch = read_step(run, 0, 1, [[1, 1]])
    assert batch.completion is not None
    for row, text in enumerate(batch.completion):
        assert rollout(index, f"0-1-{row}")["completion"] == text
    with pytest.raises(KeyError):
        rollout(index, "0-1-16")
    index.close()


def test_a_step_that_was_taken_early_is_taken_again_as_the_monitor_measured_it(tmp_path: Path) -> None:
    run = small(tmp_path / "run", 0, ranks=2)
    write(run, 0, 0, 1, rows=16)
    index = RolloutIndex(RunReader(run))
    index.update()
    assert index.rollouts == 0  # rank 0 may still come
    assert rollout(index, "0-0-15")["completion"]  # but what is there can be looked at
    write(run, 0, 0, 0, rows=16)
    index.update()
    batch = read_step(run, 0, 0, [[0, 1]])
    assert batch.completion is not None and index.rollouts == 32
    assert [rollout(index, f"0-0-{row}")["completion"] for row in range(32)] == list(batch.completion)
    index.close()


def test_packing_under_an_index_changes_nothing_that_is_shown(tmp_path: Path) -> None:
    run = small(tmp_path / "run", 8)
    index = RolloutIndex(RunReader(run))
    index.update()
    before = rollouts(index, {}, "reward", "down", limit=100)
    run.close_rank(0, 0, {})
    assert pack(RunDirectory(run.path)) == 8
    after = rollouts(index, {}, "reward", "down", limit=100)
    assert after["rows"] == before["rows"] and all(row["text"] for row in after["rows"])
    index.update()
    assert index.rollouts == 128
    index.close()


def test_a_damaged_file_is_noted_and_the_others_are_shown(tmp_path: Path) -> None:
    run = small(tmp_path / "run", 3)
    path = run.step_path(0, 1, 0)
    path.write_bytes(path.read_bytes()[:-100])
    index = RolloutIndex(RunReader(run))
    index.update()
    index.update()
    assert (index.rollouts, index.ready) == (32, 1.0)
    assert list(index.damaged) == [(0, 1)] and str(path) in index.damaged[0, 1]
    with pytest.raises(KeyError, match="cannot be read"):
        rollout(index, "0-1-0")
    run.step_path(0, 2, 0).unlink()  # deleted on purpose since: numbers stay, text is gone
    assert rollout(index, "0-2-0")["completion"] is None
    index.close()


def test_the_base_is_the_references_where_it_has_the_prompt(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_reference(from_columns(0, [0, 1], prompt=["old", "both \ud800"], completion=["from old", "from both"]))
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(2):
        prompts = ["both \ud800", "early", "new" if step else "gone"]
        run.write(from_columns(step, [0, 1, 2], prompt=prompts, completion=["a", f"b{step}", "c"]), 0, {})
    run.write(from_columns(2, [0], reward=[1]), 0, {})
    index = RolloutIndex(RunReader(run))
    index.update()
    assert group(index, "0-1-0")["base"] == {"step": None, "text": "from both", "source": "reference"}
    assert group(index, "0-1-1")["base"] == {"step": 0, "text": "b0", "source": "attempt 0, step 0"}
    lone = group(index, "0-1-2")
    assert lone["base"] is None and "first" in lone["base_why"] and lone["mean"] is None
    bare = group(index, "0-2-0")
    assert bare["base"] is None and "not stored" in bare["base_why"]
    assert (bare["rollout"]["prompt"], bare["rollout"]["completion"], bare["rows"][0]["text"]) == (None, None, "")
    assert (bare["rollout"]["length"], bare["rollout"]["truncated"], bare["rollout"]["gold"]) == (None, None, None)
    index.close()


def test_a_report_finds_the_same_base_without_an_index(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_reference(from_columns(0, [0], prompt=["known"], completion=["from the reference"]))

    def steps(attempt: int, numbers: range) -> None:
        for step in numbers:
            prompts = ["known", f"every {step % 9}", f"own {attempt}-{step // 2}", f"left {min(step, 14)}"]
            said = [f"{attempt}-{step}-{row}" for row in range(4)]
            run.write(
                from_columns(step, range(4), attempt=attempt, prompt=prompts, completion=said, reward=range(4)), 0, {}
            )

    run.open_attempt(launch="x", ranks=1, resume_step=None)
    steps(0, range(20))
    run.open_attempt(launch="y", ranks=1, resume_step=12)
    steps(1, range(12, 20))
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    book = RunReader(run)
    book.refresh()
    index = RolloutIndex(book)
    index.update()
    sources = set()
    for id in [f"{attempt}-{step}-{row}" for attempt, step in ((0, 0), (0, 11), (0, 19), (1, 19)) for row in range(4)]:
        ours, page = shown(book, id), group(index, id)
        assert (id, ours["base"], ours["base_why"]) == (id, page["base"], page["base_why"])
        sources.add("none" if ours["base"] is None else ours["base"]["source"])
    assert {"none", "reference", "attempt 0, step 18", "attempt 1, step 14"} <= sources
    index.close()


def test_an_empty_run_has_an_empty_page(tmp_path: Path) -> None:
    index = RolloutIndex(RunReader(RunDirectory.create(tmp_path / "run")))
    index.update()
    page = rollouts(index, {"phrase": "x"}, "gap", "up")
    assert (page["rows"], page["total"], page["rollouts"], page["after"], page["ready"]) == ([], 0, 0, "", 1.0)
    index.close()


def test_many_threads_ask_while_the_run_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_index, "KEEP_UP_SECONDS", 0.0)
    monkeypatch.setattr(rollout_index, "CHUNK_ROWS", 20)
    run = small(tmp_path / "run", 10)
    index = RolloutIndex(RunReader(run))
    wrong: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(15):
                page = rollouts(index, {"from": 2, "to": 2}, "reward", "down")
                assert page["total"] == 16
                assert group(index, page["rows"][0]["id"])["rows"]
        except BaseException as error:  # noqa: BLE001  # told by the main thread
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(10, 20):
        write(run, 0, step, 0, rows=16)
    for thread in threads:
        thread.join()
    index.update()
    assert wrong == []
    assert index.rollouts == 20 * 16 and rollouts(index, {})["total"] == 20 * 16
    index.close()
