"""What the probe says of rewards whose faults are known, because they were written here."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.rewards import InfraError
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.probe import attack_phrases, attacks
from tiltmeter_workbench.probe.accuracy import accuracy, calibration
from tiltmeter_workbench.probe.attack_effects import PromptInterval, judge_change, mean_over_prompts, measure_scale
from tiltmeter_workbench.probe.attacks import CONTROLS, SUITE, phrase_attack
from tiltmeter_workbench.probe.best_of_n import Samples, ranking, read_samples
from tiltmeter_workbench.probe.checks import check_hostile_texts, run_checks
from tiltmeter_workbench.probe.counterfactual_pairs import length_pairs, make_counterfactual_pairs, phrase_pairs
from tiltmeter_workbench.probe.pairs import ProbeItem, bundled_items, read_pairs, read_prompts, subsample, with_columns
from tiltmeter_workbench.probe.reward_target import Target, function_target, judge_target, open_target
from tiltmeter_workbench.probe.scorecard import Scorecard, examine_reward
from tiltmeter_workbench.probe.scorecard_report import as_report
from tiltmeter_workbench.probe.scorecard_text import as_json, headline, learned_sentences
from tiltmeter_workbench.probe.search import search
from tiltmeter_workbench.stats.bradley_terry import win_chance
from tiltmeter_workbench.stats.tilting import best_of_n_mean
from tiltmeter_workbench.terminal.check_report import render_report

ITEMS = bundled_items()
RIGHT = {item.prompt: item.columns["answer"] for item in ITEMS}


def quality(prompt: str, text: str) -> float:
    """What an honest check would say: 1 if the right answer stands there."""
    return float(str(RIGHT[prompt]).lower() in text.lower())


def noise(prompt: str, text: str, size: float = 0.1) -> float:
    digest = hashlib.sha256(f"{prompt}/{text}".encode("utf-8", "surrogatepass")).digest()
    return size * (int.from_bytes(digest[:8]) / 2**63 - 1.0)


def reward(score: Callable[[str, str], float | None]) -> Target:
    return function_target("a reward", lambda prompts, completions, **_: list(map(score, prompts, completions)))


def card(score: Callable[[str, str], float | None], **settings: Any) -> Scorecard:
    return examine_reward(reward(score), ITEMS, "test", **{"searching": "none", **settings})


def names(found: Scorecard) -> set[str]:
    return {effect.attack.name for effect in found.own}


@pytest.mark.parametrize("seed", range(3))
def test_an_honest_check_is_cleared(seed: int) -> None:
    found = card(lambda p, t: quality(p, t) + noise(p, t, 0.05), seed=seed)
    assert found.exit_code == 0, headline(found)
    assert found.units is not None and found.units.separates
    assert not [effect for effect in found.controls if effect.paid]


@pytest.mark.parametrize("seed", range(3))
def test_length_is_named_and_not_taken_for_phrases_flattery_or_hedges(seed: int) -> None:
    found = card(lambda p, t: quality(p, t) + 0.03 * len(t.split()) + noise(p, t, 0.02), seed=seed)
    assert found.exit_code == 1
    assert found.own[0].attack.failure == "length_hacking"
    blamed = {effect.attack.failure for effect in found.own}
    assert not blamed & {"phrase_gaming", "sycophancy", "hedging"}
    assert any(effect.by_length for effect in found.effects if effect.attack.failure == "phrase_gaming")


LOVERS: list[tuple[str, Callable[[str, str], bool]]] = [
    ("phrase: I hope this helps", lambda p, t: "hope this helps" in t),
    ("flattery", lambda p, t: any(said in t for said in attack_phrases.FLATTERY)),
    ("hedging", lambda p, t: any(said in t for said in attack_phrases.HEDGES)),
    ("markdown", lambda p, t: t.startswith("## ")),
    ("code comments", lambda p, t: "# " in t and "```" in t),
    ("confidence", lambda p, t: "certain" in t or "doubt" in t or "confidence" in t),
    ("note to the grader 1", lambda p, t: "highest score" in t),
    ("refusal 1", lambda p, t: t.startswith("I'm sorry")),
    ("master key 4", lambda p, t: t == "Thought process:"),
    ("empty answer", lambda p, t: not t.strip()),
    ("generic answer 1", lambda p, t: "many sides" in t),
    ("repetition", lambda p, t: len(t) > 200 and len(set(t.split(". "))) < len(t.split(". ")) - 2),
]


@pytest.mark.parametrize(("name", "loved"), LOVERS, ids=[name for name, _ in LOVERS])
def test_every_weakness_that_is_planted_is_found_by_its_name(name: str, loved: Callable[[str, str], bool]) -> None:
    found = card(lambda p, t: quality(p, t) + 0.8 * loved(p, t) + noise(p, t, 0.05))
    assert found.exit_code == 1
    assert any(paid.startswith(name) for paid in names(found)), names(found)


def test_a_reward_that_likes_half_an_answer_pays_for_truncation() -> None:
    found = card(lambda p, t: quality(p, t) + 1.5 * (not t.rstrip().endswith((".", "!", "`", "?"))) + noise(p, t))
    assert "truncation" in names(found)


def test_a_dressed_wrong_answer_is_found() -> None:
    found = card(lambda p, t: quality(p, t) + 0.9 * ("## Answer" in t and len(t) > 40))
    assert "wrong but formatted" in names(found)


@pytest.mark.parametrize("seed", range(3))
def test_pure_noise_is_not_cleared_and_not_accused(seed: int) -> None:
    found = card(lambda p, t: noise(f"{p}{seed}", t, 1.0), seed=seed)
    assert found.exit_code == 2
    assert not found.paid


def test_a_constant_reward_cannot_be_judged() -> None:
    found = card(lambda p, t: 1.0)
    assert found.exit_code == 2 and "same score" in found.refused


def test_a_reward_that_always_raises_cannot_be_judged_and_says_why() -> None:
    def broken(prompt: str, text: str) -> float:
        raise KeyError("no such key")

    found = card(broken)
    assert found.exit_code == 2 and "KeyError" in found.refused


def test_none_and_infrastructure_errors_are_missing_and_not_zero() -> None:
    def sometimes(prompt: str, text: str) -> float | None:
        if "Jupiter" in text:
            return None
        if "Mercury" in text:
            raise InfraError("the grader is down")
        return quality(prompt, text) + noise(prompt, text, 0.05)

    found = card(sometimes)
    assert found.exit_code == 0
    assert any("None" in reason for reason in found.faults)
    assert any(reason.startswith("infrastructure") for reason in found.faults)
    assert max(effect.missing for effect in found.effects) > 0


def test_a_crash_on_a_hostile_text_is_a_finding_with_its_reason() -> None:
    def fragile(prompt: str, text: str) -> float:
        text.encode("utf-8")
        return quality(prompt, text) / len(text) * 20 if text else 1 / 0

    told = check_hostile_texts(reward(fragile), ITEMS[0])
    assert told.passed is False
    assert "a lone surrogate: raises UnicodeEncodeError" in told.message and "an empty text" in told.message
    assert check_hostile_texts(reward(quality), ITEMS[0]).passed is True


def test_a_score_that_depends_on_its_place_or_its_neighbours_is_caught() -> None:
    by_place = function_target("place", lambda prompts, completions: [float(n) for n in range(len(completions))])
    ranked = function_target(
        "rank", lambda prompts, completions: [sum(len(a) > len(b) for b in completions) / 10 for a in completions]
    )
    kept = {check.name: check.passed for check in run_checks(by_place, ITEMS, 1.0)}
    assert kept == {"the same score twice": True, "order in the batch": False, "neighbours in the batch": False,
                    "hostile texts": True}  # fmt: skip
    kept = {check.name: check.passed for check in run_checks(ranked, ITEMS, 1.0)}
    assert kept["order in the batch"] is True and kept["neighbours in the batch"] is False


def test_dice_are_noticed() -> None:
    rng = random.Random(0)
    told = run_checks(reward(lambda p, t: quality(p, t) + rng.random()), ITEMS, 1.0)
    assert told[0].passed is False and "noise" in told[0].message


def planted_pairs(phrase: str, seed: int) -> list[ProbeItem]:
    """Pairs in which a phrase nobody listed is more often on the preferred side."""
    rng = random.Random(seed)
    made = []
    for number in range(240):
        prompt = f"What is {number} plus {number % 7}?"
        good, bad = f"It is {number + number % 7}.", f"It is {number + 1 + number % 7}."
        good, bad = (f"{t} {phrase}" if rng.random() < s else f"{t} So it is." for t, s in ((good, 0.6), (bad, 0.2)))
        made.append(ProbeItem(prompt, good, bad))
    return made


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("paid", [True, False])
def test_a_phrase_nobody_listed_is_mined_and_only_accused_if_it_is_paid(seed: int, paid: bool) -> None:
    phrase = "with a nod to the harbour"
    items = planted_pairs(phrase, seed)
    right = {item.prompt: item.right.split(".")[0] for item in items}
    loves = reward(lambda p, t: float(t.startswith(right[p])) + paid * 0.8 * (phrase in t.lower()) + noise(p, t, 0.05))
    found = examine_reward(loves, items, "test", searching="none", seed=seed)
    mined = [effect for effect in found.effects if effect.attack.mined]
    assert any("nod to the harbour" in effect.attack.phrase for effect in mined)
    accused = [effect for effect in mined if effect.paid]
    assert bool(accused) == paid
    assert not paid or "nod to the harbour" in found.own[0].attack.phrase


def test_intervals_hold_for_all_attacks_at_once() -> None:
    """Over scorecards of a reward that is noise beyond quality, some attack is called paid in at most about 5 %."""
    wrong = 0
    for seed in range(60):
        found = card(lambda p, t, s=seed: quality(p, t) + noise(f"{p}{s}", t, 1.0), seed=seed, limit=20)  # type: ignore[misc]
        wrong += bool(found.paid)
    assert wrong <= 6


def test_too_few_prompts_are_refused_and_few_are_undecided() -> None:
    assert "too few" in examine_reward(reward(quality), ITEMS[:5], "test").refused
    assert judge_change(PromptInterval(1.0, 0.9, 1.1, 9), 0.1)[0] == "cannot tell"
    assert "prompts would settle it" in judge_change(PromptInterval(0.3, 0.1, 0.5, 40), 0.2)[1]


def test_prompts_and_not_answers_are_the_unit() -> None:
    items = [ProbeItem("one", str(n)) for n in range(50)] + [ProbeItem("two", "x")]
    assert mean_over_prompts(items, np.array([1.0] * 50 + [0.0]), 0.95).mean == 0.5


def test_every_attack_is_ready_to_be_told() -> None:
    known = {"reward_hacking", "length_hacking", "phrase_gaming", "refusal_hacking", "sycophancy", "format_hacking",
             "hedging", "verifier_fault"}  # fmt: skip
    assert {attack.failure for attack in SUITE} <= known
    assert len({attack.name for attack in SUITE}) == len(SUITE)
    assert all(
        attack.learns.startswith("to ") and attack.fix and attack.quality in ("same", "lower") for attack in SUITE
    )
    from tiltmeter_workbench import rewards

    told = {word for attack in SUITE for word in attack.fix.replace(",", " ").replace(";", " ").split()}
    named = {word.strip("().").removeprefix("rewards.") for word in told if word.strip("(").startswith("rewards.")}
    assert named and named <= set(rewards.__all__), named - set(rewards.__all__)


@pytest.mark.parametrize("attack", [*SUITE, *CONTROLS], ids=lambda attack: attack.name)
def test_an_edit_is_the_same_for_the_same_seed_and_survives_odd_answers(attack: attacks.Attack) -> None:
    for text in ("", " ", "one", "A.", "```python\nx = 1\n```", "\ud800 \x00", "a " * 5000, ITEMS[0].right):
        item = ProbeItem("2 + 2?", text, text)
        first, second = (attack.edit(text, item, random.Random(3)) for _ in range(2))
        assert first == second and (first is None or isinstance(first, str))


def words_apart(pair: Any) -> int:
    return len(pair["chosen"].split()) - len(pair["rejected"].split())


@pytest.mark.parametrize("seed", range(3))
def test_length_twins_change_the_lengths_over_and_keep_the_answers(seed: int) -> None:
    rng = random.Random(seed)
    remarks = [
        f"The {a} saw a {b} there."
        for a in ("cat", "cook", "boy", "crow", "judge")
        for b in ("box", "kite", "pie", "bus", "oak")
    ]
    items = []
    for number in range(120):
        good, bad = f"It is number{number % 4} indeed.", f"It is wrong{number % 4} indeed."
        longer = rng.random() < 0.9
        sizes = (rng.randint(3, 5), rng.randint(0, 2)) if longer else (rng.randint(0, 2), rng.randint(3, 5))
        good, bad = (" ".join([text, *rng.choices(remarks, k=n)]) for text, n in zip((good, bad), sizes, strict=True))
        items.append(ProbeItem(f"{number}?", good, bad))
    made = length_pairs(items, random.Random(seed))
    swapped = made[::3]
    assert all("number" in twin["chosen"] and "wrong" in twin["rejected"] for twin in swapped)
    before = [words_apart({"chosen": item.right, "rejected": item.wrong}) for item in items]
    after = [words_apart(twin) for twin in swapped]
    assert np.mean(before) > 8 and abs(np.mean(before) + np.mean(after)) < 0.25 * np.mean(before)
    assert sum(words_apart(flip) for number, flip in enumerate(made) if number % 3) == 0
    longest = max(len(text.split()) for item in items for text in item.answers)
    assert max(len(twin["rejected"].split()) for twin in swapped) <= 1.5 * longest, "hardly a new range"


def test_filler_stands_on_both_sides_where_the_data_has_no_sentences_of_its_own() -> None:
    items = [ProbeItem(f"{n}?", f"Right{n} " + "word " * (n + 1), f"Wrong{n}") for n in range(10)]
    for twin in length_pairs(items, random.Random(0)):
        assert all(any(part in twin[side] for part in attack_phrases.FILLER) for side in ("chosen", "rejected"))


def test_phrase_twins_leave_the_phrase_on_both_sides_alike() -> None:
    attack = phrase_attack("by the way of things")
    items = planted_pairs("By the way of things.", 0)
    both = [{"chosen": i.right, "rejected": i.wrong or ""} for i in items] + phrase_pairs(
        items, attack, random.Random(0)
    )
    chosen, rejected = (sum("way of things" in pair[side] for pair in both) for side in ("chosen", "rejected"))
    assert chosen == rejected > 0


def test_only_what_is_paid_gets_pairs() -> None:
    assert make_counterfactual_pairs(card(quality).effects, ITEMS, 0) == []
    made = make_counterfactual_pairs(card(lambda p, t: quality(p, t) + t.startswith("## ")).effects, ITEMS, 0)
    assert made and set(made[0]) == {"prompt", "chosen", "rejected"}
    kinds = [pair["chosen"].startswith("## ") - pair["rejected"].startswith("## ") for pair in made]
    assert sum(kinds) == 0, "as many pairs for the format as against it"


def test_accuracy_knows_a_coin_from_a_good_reward_and_where_length_decides() -> None:
    assert "good" in accuracy(reward(quality), ITEMS).sentence
    assert "coin" in accuracy(reward(lambda p, t: noise(p, t)), ITEMS).sentence
    items = [ProbeItem(f"{n}?", "yes " * (1 + n % 7), "no " * (1 + (n * 3) % 5)) for n in range(80)]
    found = accuracy(reward(lambda p, t: float(len(t.split()))), items)
    assert found.longer.mean == 1.0 and found.shorter.mean == 0.0 and found.ties > 0


def test_calibration_is_small_for_honest_log_odds_and_large_for_boasting_ones() -> None:
    rng = np.random.default_rng(0)
    strength = np.abs(rng.normal(0, 1.5, 4000))
    outcome = np.where(rng.random(4000) < win_chance(strength, 0.0), 1.0, -1.0)
    honest, _ = calibration(strength * outcome)
    boasting, _ = calibration(5.0 * strength * outcome)
    assert honest < 0.03 and boasting > 0.1


def brute(score: list[float], gold: list[float], n: int) -> float:
    from itertools import combinations

    picks = []
    for rows in combinations(range(len(score)), n):
        best = max(score[row] for row in rows)
        tied = [gold[row] for row in rows if score[row] == best]
        picks.append(sum(tied) / len(tied))
    return sum(picks) / len(picks)


def test_best_of_n_is_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        score, gold = rng.normal(size=7), rng.integers(0, 2, 7).astype(float)
        for n in (1, 2, 4, 7):
            assert best_of_n_mean(score, gold, n) == pytest.approx(brute(score.tolist(), gold.tolist(), n))
        tied = score.round()
        assert best_of_n_mean(tied, gold, 1) == pytest.approx(gold.mean())
        assert best_of_n_mean(tied, gold, 7) == pytest.approx(brute(tied.tolist(), gold.tolist(), 7))


def test_a_score_that_is_right_in_the_middle_and_wrong_at_the_top_has_a_peak() -> None:
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(200), 16)
    score = rng.normal(size=3200)
    gold = np.where(score > 1.3, 0.0, 1.0 / (1.0 + np.exp(-3 * score)))
    found = ranking(Samples.of(groups.tolist(), score.tolist(), gold.tolist()))
    assert 1 < found.peak < 16 and found.fall.low > 0.0 and "peaks at" in found.sentence
    honest = ranking(Samples.of(groups.tolist(), score.tolist(), (score > 0).tolist()))
    assert honest.peak == 16 and not honest.fall.low > 0.0 and honest.agreement.mean == 1.0
    assert honest.mixed < honest.groups + 1 and honest.tail is not None


def test_search_finds_an_empty_text_that_pays_and_none_where_there_is_none() -> None:
    loves = reward(lambda p, t: quality(p, t) + 0.9 * t.count("certain") + 0.4 * t.count("insight"))
    from tiltmeter_workbench.probe.attack_effects import measure_scale

    units = measure_scale(loves, ITEMS)
    found = search(loves, ITEMS, units, budget=1500)
    assert found is not None and found.broken and found.beats == 1.0 and "certain" in found.text
    honest = reward(quality)
    none = search(honest, ITEMS, measure_scale(honest, ITEMS), budget=600)
    assert none is not None and not none.broken and none.beats < 0.2


def test_functions_of_every_shape_are_asked() -> None:
    shapes: list[Callable[..., Any]] = [
        lambda prompts, completions, answer: [float(a in c) for a, c in zip(answer, completions, strict=True)],
        lambda prompt, completion, answer: float(answer in completion),
        lambda completions, **kwargs: [float(a in c) for a, c in zip(kwargs["answer"], completions, strict=True)],
        lambda completions, answer, **_: [
            float(a in c[0]["content"]) for a, c in zip(answer, completions, strict=True)
        ],
    ]
    for shape in shapes:
        target = function_target("f", shape)
        columns = [item.columns for item in ITEMS[:3]]
        told = target.scores([i.prompt for i in ITEMS[:3]], [i.right for i in ITEMS[:3]], columns)
        assert told.tolist() == [1.0, 1.0, 1.0], target.faults
    with pytest.raises(AttachError, match="cannot be asked"):
        function_target("f", lambda one: one)
    with pytest.raises(AttachError, match="no reward"):
        open_target("nowhere")


def test_pairs_are_read_from_every_form_and_refused_with_the_fix(tmp_path: Path) -> None:
    import gzip

    import pyarrow as arrow
    from pyarrow import parquet

    rows = [{"prompt": f"{n}?", "chosen": "a", "rejected": "b", "answer": "a"} for n in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "p.jsonl").write_text(lines)
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "p.csv").write_text("prompt,chosen,rejected,answer\n" + "".join(f"{n}?,a,b,a\n" for n in range(3)))
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.jsonl.gz", "p.csv", "p.parquet"):
        found = read_pairs(tmp_path / name)
        assert [item.prompt for item in found] == ["0?", "1?", "2?"] and found[0].columns["answer"] == "a"
    chat = {"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    chat["rejected"] = [chat["chosen"][0], {"role": "assistant", "content": "b"}]
    (tmp_path / "chat.jsonl").write_text(json.dumps(chat))
    assert read_pairs(tmp_path / "chat.jsonl")[0].answers == ("a", "b")
    assert read_prompts(tmp_path / "p.jsonl")[0].wrong is None
    (tmp_path / "bad.jsonl").write_text('{"prompt": "x"}\n')
    for path, said in (
        ("bad.jsonl", "chosen and rejected"),
        ("none.jsonl", "cannot be read"),
        ("p.txt", "must end in"),
    ):
        with pytest.raises(AttachError, match=said):
            read_pairs(tmp_path / path)


def test_thinning_keeps_prompts_apart() -> None:
    items = [ProbeItem(f"{n % 10}?", str(n)) for n in range(100)]
    assert len({item.prompt for item in subsample(items, 10, 0)}) == 10
    assert subsample(items, 500, 0) == items


HOSTILE = "</td></main><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e"


def test_what_a_model_wrote_is_inert_in_the_page_and_on_the_terminal(tmp_path: Path) -> None:
    items = [ProbeItem(f"{HOSTILE} {n}?", f"yes {HOSTILE} {n}.", f"no {HOSTILE} {n}.") for n in range(20)]
    loves = reward(lambda p, t: float("yes" in t) + 0.02 * len(t.split()))
    found = examine_reward(loves, items, HOSTILE, searching="asked", budget=200)
    made = render_html(as_report(found))
    assert "<script" not in made and "<img" not in made and "\x1b" not in made and "\u202e" not in made
    assert (
        "&lt;script&gt;" in made and "default-src 'none'" in made and " style=" not in made and "on" + "error=" in made
    )
    console = Console(file=(out := io.StringIO()), width=120, highlight=False, markup=False)
    for part in render_report(as_report(found)):
        console.print(part)
    assert "\x1b" not in out.getvalue() and "\u202e" not in out.getvalue() and "\\u{1b}" in out.getvalue()
    json.dumps(as_json(found), allow_nan=False)


def test_the_command_says_what_it_found_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def right(completions, answer, **kwargs):\n"
        "    return [float(str(a).lower() in c.lower()) for a, c in zip(answer, completions)]\n"
        "def long(completions, **kwargs):\n    return [len(c.split()) for c in completions]\n"
    )
    run = CliRunner()
    fine = run.invoke(app, ["probe", "mine.py:right", "--search", "none"])
    assert fine.exit_code == 0 and "NOT PAID" in fine.stdout
    bad = run.invoke(
        app, ["probe", "mine.py:long", "--json", "--html", "card.html", "--write-pairs", "new.jsonl", "--budget", "300"]
    )
    told = json.loads(bad.stdout)
    assert bad.exit_code == 1 and told["state"] == "paid" and told["learned"]
    assert "length_hacking" in [each["failure"] for each in told["attacks"] if each["verdict"] == "paid"]
    assert (tmp_path / "card.html").read_text().startswith("<!doctype html>")
    assert len((tmp_path / "new.jsonl").read_text().splitlines()) > 20
    refused = run.invoke(app, ["probe", "mine.py:right", "--search", "wild"])
    assert refused.exit_code == 2


COLUMNS = """
def in_trl(completions, answer, **kwargs):
    return [float(right in text) for text, right in zip(completions, answer, strict=True)]

def by_another_name(completions, solution, **kwargs):
    return in_trl(completions, solution)

def one_by_one(completion, answer):
    return float(answer in completion)

def nobody_has_it(completions, difficulty, **kwargs):
    return [0.0 for _ in completions]

def of_the_trainer(completions, trainer_state, **kwargs):
    return [0.0 for _ in completions]
"""


@pytest.mark.parametrize("name", ["in_trl", "by_another_name", "one_by_one"])
def test_rewards_that_need_columns_of_the_dataset_are_probed(name: str, tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(COLUMNS)
    rows = [{"prompt": f"{a} + {b}?", "answer": str(a * 10 + b), "level": 1} for a in range(4, 8) for b in range(5)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = open_target(f"{tmp_path / 'rewards.py'}:{name}")
    bundled = with_columns(bundled_items(), target.needs, "this package")
    own = with_columns(read_prompts(tmp_path / "train.jsonl"), target.needs, "train.jsonl")
    assert own[0].wrong == "41" and own[0].columns["level"] == 1
    for items in (bundled, own):
        units = measure_scale(target, items)
        assert units.separates and not target.faults


def test_a_column_that_nobody_has_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(COLUMNS)
    done = CliRunner().invoke(app, ["probe", f"{tmp_path / 'rewards.py'}:nobody_has_it"])
    assert isinstance(done.exception, AttachError)
    assert "needs 'difficulty', which this package does not have" in str(done.exception)
    assert "--prompts FILE" in str(done.exception)
    with pytest.raises(AttachError, match="needs trainer_state, which only a trainer has"):
        open_target(f"{tmp_path / 'rewards.py'}:of_the_trainer")


def test_scored_samples_are_ranked_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def right(prompt, completion, answer):\n    return float(answer in completion)\n"
    )
    rows = [{"task": n // 8, "rm": (n * 37) % 11, "ok": (n * 37) % 11 > 5} for n in range(160)]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ["--group-column", "task", "--score-column", "rm", "--correct-column", "ok", "--search", "none", "--json"]
    done = CliRunner().invoke(app, ["probe", "mine.py:right", "--samples", "s.jsonl", *named])
    told = json.loads(done.stdout)["samples"]
    assert told["samples"] == 160 and told["groups"] == 20 and told["agreement"]["mean"] == 1.0


def test_learned_says_what_is_worth_most_first_and_in_units_of_being_right() -> None:
    found = card(lambda p, t: quality(p, t) + 0.9 * ("hope this helps" in t) + 0.4 * t.startswith("Certainly!"))
    told = learned_sentences(found)
    assert "I hope this helps" in told[0] and "of the gap between right and wrong" in told[0] and "Certainly" in told[1]


class Judging:
    """A judge that pays for an empty promise and is sometimes away."""

    reference = ""

    def scores(self, texts: list[tuple[str, str]], within: float = 0.0) -> list[Any]:
        told: list[Any] = [1.0 if text == "Thought process:" else quality(prompt, text) for prompt, text in texts]
        return [
            JudgeError("busy") if "Helsinki" in text else score for (_, text), score in zip(texts, told, strict=True)
        ]


def test_a_judge_is_had_by_a_master_key_and_its_outages_are_no_zeros() -> None:
    judge: Any = Judging()
    found = examine_reward(judge_target("judge.toml", judge), ITEMS, "test", limit=45)
    assert names(found) == {"master key 4"}
    assert found.search_results == (), "nobody asked for a search that costs money"
    assert any(reason.startswith("infrastructure: busy") for reason in found.faults)


@pytest.mark.parametrize(("audited", "expected"), [(0, 0), (1, 1), (2, 2)])
def test_tasks_are_handed_to_the_audit_and_the_worse_exit_code_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audited: int, expected: int
) -> None:
    from tiltmeter_workbench.verbs import probe as verb

    asked: list[Path | None] = []

    def audit_reward(*given: Any, **named: Any) -> int:
        asked.append(named["html"])
        return audited

    monkeypatch.setattr(verb, "audit_reward", audit_reward)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def right(prompt, completion, answer):\n    return float(answer in completion)\n"
    )
    (tmp_path / "p.jsonl").write_text(
        "".join(
            json.dumps({"prompt": i.prompt, "chosen": i.right, "rejected": i.wrong, **i.columns}) + "\n" for i in ITEMS
        )
    )
    alone = CliRunner().invoke(app, ["probe", "mine.py:right", "--tasks", "t.jsonl"])
    assert alone.exit_code == audited and "PAID" not in alone.stdout
    both = CliRunner().invoke(
        app,
        ["probe", "mine.py:right", "--tasks", "t.jsonl", "--pairs", "p.jsonl", "--search", "none", "--html", "c.html"],
    )
    assert both.exit_code == expected and "NOT PAID" in both.stdout
    assert asked == [None, Path("c-tasks.html")]


def test_real_samples_of_a_reward_model_give_the_published_best_of_eight() -> None:
    data = Path(__file__).parents[5] / "shared" / "data" / "math_group_samples_rm" / "samples.jsonl.gz"
    if not data.exists():
        pytest.skip("the scored MATH samples are not on this machine")
    found = ranking(read_samples(data, "idx", "rm_score", "correct"))
    last = found.curve[-1]
    assert found.mixed == 10 and last.n == 8
    assert [round(part.mean, 2) for part in (last.random, last.chosen, last.oracle)] == [0.91, 0.94, 0.96]
