"""Diagnosis: every rule holds its own cases, benign runs get no finding, and a finding says when it is over."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student_t

from tiltmeter import instruments
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm, Finding, Reading
from tiltmeter.detectors.derived_readings import DERIVED
from tiltmeter.diagnosis import (
    FAILURES,
    KNOBS,
    Diagnosis,
    builtin_cases,
    builtin_rules,
    check_rules,
    experiment,
    knobs_for,
    read_cases,
    read_rules,
)
from tiltmeter.diagnosis.cases import parse_series
from tiltmeter.diagnosis.exemplars import exemplars
from tiltmeter.diagnosis.experiments import remove_phrase, shorten
from tiltmeter.diagnosis.rules import SHOW, Condition, DiagnosisRule, RuleSettings
from tiltmeter.errors import ContractError
from tiltmeter.instruments.training import SCALARS
from tiltmeter.monitor.panel import warmup_batch
from tiltmeter.stats.intervals import student_t_quantile

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
#: Readings that other parts give: labels that are settled later, declared evaluations, preference trainers.
ELSEWHERE = {"gold.level", "eval.*", "training.chosen_logprob", "training.margin"}

LENGTH = {
    "length.mean": "11 x30 ~0.5, 11..27 x70 ~0.5",
    "length.slope": "1.5 x100 ~0.3",
    "length.gain_share": "none x40, 0.84 x60 ~0.05",
    "reward.mean": "0.3 x30 ~0.02, 0.3..0.8 x70 ~0.02",
}


def alarm(at: int, onset: int, name: str = "gold.slope") -> Alarm:
    return Alarm(0, name, "gold_loss", "alarm", "down", at, at, onset, onset, at, 9.0, 5.0)


def folded(
    series: Mapping[str, str], alarms: Mapping[tuple[int, int], Alarm] | None = None, seed: int = 0
) -> tuple[list[Finding], Diagnosis]:
    """What is told over a run; `alarms` by the steps from and before which they are open."""
    lines = {name: parse_series(notation, seed + place) for place, (name, notation) in enumerate(series.items())}
    diagnosis, told = Diagnosis(), []
    for step in range(max(map(len, lines.values()))):
        found = [Reading(0, step, name, line[step], 64) for name, line in lines.items() if line[step] == line[step]]
        now = [one for (first, last), one in (alarms or {}).items() if first <= step < last]
        told += diagnosis.update(0, step, found, now)
    return told, diagnosis


def test_every_rule_holds_its_cases_and_has_a_near_miss() -> None:
    assert check_rules(builtin_rules(), builtin_cases()) == []


def test_the_check_notices_a_rule_that_is_too_strict_or_too_loose() -> None:
    rules = builtin_rules()
    (place, rule) = next((at, one) for at, one in enumerate(rules.rules) if one.name == "length_pays")

    def with_factor(factor: float) -> list[str]:
        must = (replace(rule.must[0], factor=factor), *rule.must[1:])
        changed = (*rules.rules[:place], replace(rule, must=must), *rules.rules[place + 1 :])
        return check_rules(replace(rules, rules=changed), builtin_cases())

    assert any("length_hacking is not found" in wrong for wrong in with_factor(4.0))
    assert any("longer by a tenth only: length_hacking is found" in wrong for wrong in with_factor(1.01))
    assert with_factor(rule.must[0].factor) == []


def test_a_near_miss_must_come_near() -> None:
    far = read_cases(
        '[[case]]\nname = "far"\nrule = "length_pays"\nseries = {"length.mean" = "9 x50"}\nabsent = ["length_hacking"]'
    )
    assert any("no near miss" in wrong for wrong in check_rules(builtin_rules(), far))


def test_every_failure_of_the_field_has_a_rule_and_a_fix() -> None:
    assert {rule.failure for rule in builtin_rules().rules} == set(FAILURES)
    assert all(rule.fix and rule.cause for rule in builtin_rules().rules)
    assert {knob for failure in FAILURES for knob in knobs_for(failure)} == set(KNOBS)


def test_rules_name_readings_that_exist() -> None:
    canaries = [f"canary.asked.{kind}.{expect}.0.0" for kind in ("rule", "judge") for expect in ("low", "high")]
    batch = replace(warmup_batch(), scalars=dict.fromkeys([*SCALARS, *canaries], 1.0))
    known = {fold().name for fold in DERIVED} | ELSEWHERE
    for part in (make() for make in instruments.BUILTIN):
        answer = part.measure(batch, Baseline(batch))
        known |= {f"{part.name}.{suffix}" for suffix in answer} if isinstance(answer, Mapping) else {part.name}
    patterns = {one.reading for one in builtin_rules().conditions if one.reading}
    wrong = [name for name in patterns if name not in known and not name.startswith("reward.gain_share.")]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = 3", r"are written as \[\[rule\]\] tables"),
        ("rule = [3]", "expected a table"),
        ("[[rule]]\nname = 'a'\ncolour = 'red'", "nothing is called 'colour'"),
        ("[[rule]]\nname = 'a'\nfailure = 'boredom'", "'boredom' is none of reward_hacking"),
        ("[[rule]]\nname = 'a'\nfailure = 'hedging'\nknobs = ['magic']", "'magic' is none of beta"),
        ("[[rule]]\nname = 'a'\nfailure = 'hedging'", "it has no symptom"),
        ("[settings]\nwindows = 3", "nothing is called 'windows'"),
        ("healthy = [{ reading = 'gold', is = 'above', than = 0 }]", "is not a name such as length.mean"),
        ("healthy = [{ reading = 'gold.mean', is = 'soaring' }]", "is not one of rising"),
        ("healthy = [{ reading = 'gold.mean', is = 'above' }]", "above what"),
        ("healthy = [{ reading = 'gold.mean', is = 'rising' }]", "by how much"),
        ("healthy = [{ reading = 'gold.mean', is = 'rising', factor = 0.5 }]", "above 1 for rising"),
        ("healthy = [{ reading = 'gold.mean', is = 'rising', by = 1, says = '{secret}' }]", "text with fields among"),
        ("healthy = [{ reading = 'gold.mean', is = 'rising', by = 1, says = '{now.__class__}' }]", "text with fields"),
        ("healthy = [{ reading = 'gold.mean', is = 'rising', by = 1, weight = 1 }]", "from 0 to below 1"),
        ("healthy = [{ is = 'rising', by = 1 }]", "about one reading or one alarm"),
        ("healthy = [", "is not TOML"),
    ],
)
def test_what_is_not_a_rule_is_refused_with_the_mend(text: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        read_rules(text, "mine.toml")


def test_a_rule_that_could_never_or_always_hold_is_refused() -> None:
    whole = "[[rule]]\nname='a'\nfailure='hedging'\nsymptom='s'\ncause='c'\nfix=['f']\n"
    condition = "{ reading = 'text.hedging', is = 'above', than = 1 }"
    with pytest.raises(ContractError, match="no conditions"):
        read_rules(whole)
    with pytest.raises(ContractError, match="least <= alone <= 1"):
        read_rules(f"{whole}any=[{condition}]\nleast=2")
    with pytest.raises(ContractError, match="always hold"):
        read_rules(f"{whole}any=[{condition}]\nleast=0")
    assert read_rules(f"{whole}any=[{condition}]").rules[0].least == 1
    with pytest.raises(ContractError, match="yields_to: rules above it: 'a' is none of"):
        read_rules(f"{whole}any=[{condition}]\nyields_to=['a']")


def test_a_benign_run_gets_no_finding_over_twenty_seeds() -> None:
    benign = {
        "reward.mean": "0.3..0.6 x150 ~0.03",
        "gold.slope": "0.1 x150 ~0.15",
        "gold.level": "0.5..0.6 x150 ~0.12",
        "length.mean": "200..240 x150 ~8",
        "length.slope": "0.1 x150 ~0.1",
        "length.gain_share": "none x30, 0.3 x120 ~0.2",
        "policy.kl.k3": "0..2 x150 ~0.1",
        "policy.entropy": "1.2..0.8 x150 ~0.05",
        "text.overused.share": "0.05..0.4 x150 ~0.03",
        "text.hedging": "0.2 x150 ~0.03",
        "text.refusal_share": "0.05 x150 ~0.02",
        "diversity.self_bleu": "0.3..0.4 x150 ~0.03",
        "reward.dead_share": "0.2..0.5 x150 ~0.05",
        "training.grad_norm": "1 x150 ~0.3",
        "engine.gap.mean": "0.01 x150 ~0.003",
    }
    told = {seed: folded(benign, seed=100 * seed)[0] for seed in range(20)}
    assert {seed: [finding.summary for finding in found] for seed, found in told.items() if found} == {}


def test_the_specific_finding_carries_the_alarm_and_reward_hacking_is_not_named_twice() -> None:
    told, diagnosis = folded(LENGTH, {(70, 100): alarm(70, 45)})
    assert {finding.failure for finding in told} == {"length_hacking"}
    suspected, carried = told[0], diagnosis.standing[0]
    assert suspected.alarms == () and "suspected, no gold to judge by" in suspected.summary
    assert carried.alarms == ("gold.slope",) and carried.confidence > 2 * suspected.confidence - 0.2
    assert re.search(r"from 11 to \d\d(\.\d)? tokens \(x\d", carried.summary)
    assert carried.fix.startswith("take length out of the reward") and "; raise beta" in carried.fix
    assert "length.mean" in carried.readings


def test_reward_hacking_is_taken_back_when_its_cause_is_found() -> None:
    late = {**LENGTH, "length.mean": "11 x60 ~0.5, 11..27 x40 ~0.5"}
    told, diagnosis = folded(late, {(50, 100): alarm(50, 45)})
    named = [(finding.failure, finding.confidence > 0) for finding in told if finding.alarms]
    assert named[0] == ("reward_hacking", True)
    assert ("reward_hacking", False) in named
    over = next(finding for finding in told if finding.confidence == 0.0)
    assert "explained by length_hacking" in over.summary
    assert [finding.failure for finding in diagnosis.standing] == ["length_hacking"]


def test_a_finding_ends_with_its_alarm_and_otherwise_after_some_quiet() -> None:
    told, diagnosis = folded({"reward.mean": "1 x20 ~0.1, 1..3 x80 ~0.1"}, {(50, 70): alarm(50, 45)})
    assert [(finding.failure, finding.step, finding.confidence > 0) for finding in told] == [
        ("reward_hacking", 50, True),
        ("reward_hacking", 70, False),
    ]
    assert diagnosis.standing == ()
    told, diagnosis = folded({"engine.gap.mean": "0.01 x20 ~0.001, 0.2 x20 ~0.001, 0.01 x60 ~0.001"})
    begun, over = told
    assert 20 < begun.step < 30 and 60 <= over.step < 80
    assert over.confidence == 0.0 and over.readings and over.summary.startswith("no longer: ")


def test_an_alarm_without_a_rising_reward_is_unknown() -> None:
    told, _ = folded({"reward.mean": "1..0.5 x100 ~0.1"}, {(50, 100): alarm(50, 45)})
    assert [finding.failure for finding in told] == ["unknown"]


@pytest.mark.parametrize(("reading", "failure"), [("text.hedging", "hedging"), ("text.markdown", "format_hacking")])
@pytest.mark.parametrize("start", ["0", "0.01 ~0.002", "0.05 ~0.002"])
def test_what_starts_at_nothing_is_named_as_what_starts_at_little(reading: str, failure: str, start: str) -> None:
    first, _, noise = start.partition(" ")
    series = {
        reading: f"{first} x20 {noise}".strip() + f", {first}..1.35 x80 ~0.002",
        "reward.mean": "0.3..0.9 x100 ~0.01",
    }
    _, diagnosis = folded(series, {(60, 100): alarm(60, 30)})
    assert [finding.failure for finding in diagnosis.standing] == [failure]


def test_the_specific_cause_ranks_first_whenever_it_appears() -> None:
    phrases = {
        "text.overused.share": "0.02 x20 ~0.01, 0.02..0.9 x80 ~0.02",
        "diversity.repeated_opening_share.across": "0.1 x20 ~0.02, 0.1..0.8 x80 ~0.02",
        "reward.mean": "1 x20 ~0.05, 1..2 x80 ~0.05",
    }
    _, alone = folded(phrases, {(60, 100): alarm(60, 30)})
    assert [finding.failure for finding in alone.standing] == ["phrase_gaming"]
    late = {**phrases, "text.refusal_share": "0 x75, 0..0.3 x25 ~0.01"}
    told, diagnosis = folded(late, {(60, 100): alarm(60, 30)})
    assert next(finding.failure for finding in told if finding.alarms) == "phrase_gaming"  # it was alone for a while
    assert [finding.failure for finding in diagnosis.standing] == ["refusal_hacking", "phrase_gaming"]
    assert diagnosis.standing[1].confidence < diagnosis.standing[0].confidence


def test_a_run_known_by_its_curves_has_a_reward_that_rises() -> None:
    curves = {"training.reward": "0.2..1 x200 ~0.02", "eval.gold": "0.5..0.66 x80 ~0.02, 0.66..0.3 x120 ~0.02"}
    _, diagnosis = folded(curves, {(123, 200): alarm(123, 93, "eval.gold")})
    first = diagnosis.standing[0]
    assert first.failure == "reward_hacking" and "the reward rose from 0.2" in first.summary
    assert "training.reward" in first.readings
    _, ours = folded({**curves, "reward.mean": "1 x200 ~0.1"}, {(123, 200): alarm(123, 93, "eval.gold")})
    assert ours.standing[0].failure != "reward_hacking"  # what we measure ourselves comes before what was logged


def test_gold_that_is_lost_clears_nothing() -> None:
    alike = {
        "diversity.self_bleu": "0.2 x20 ~0.02, 0.2..0.9 x80 ~0.02",
        "diversity.distinct_2": "0.8 x20 ~0.02, 0.8..0.2 x80 ~0.02",
        "policy.entropy": "1.2 x20 ~0.02, 1.2..0.1 x80 ~0.02",
        "gold.slope": "0.5 x100 ~0.05",
    }
    _, diagnosis = folded(alike, {(60, 100): alarm(60, 30, "gold.prompts")})
    assert diagnosis.standing[0].failure == "mode_collapse"


def test_the_fold_is_pure_and_renewing_forgets() -> None:
    series = {**LENGTH, "gold.level": "0.5 x40 ~0.1, 0.5..0.2 x60 ~0.1"}
    first, diagnosis = folded(series, {(70, 100): alarm(70, 45)})
    again, _ = folded(series, {(70, 100): alarm(70, 45)})
    assert first == again
    diagnosis.renew()
    assert diagnosis.standing == ()
    assert diagnosis.update(0, 0, [Reading(0, 0, "length.mean", 99.0, 64)], []) == []


def test_the_batch_adds_exemplars_and_nothing_else() -> None:
    def run(with_batch: bool) -> list[Finding]:
        diagnosis, told = Diagnosis(), []
        for step in range(40):
            batch = from_columns(step, [0, 0, 1, 1], reward=[0, 1, 2, 3], length=[9, 1, 2, 3], gold=[1, 1, 1, 0])
            found = [Reading(0, step, "reward.mean", step / 10, 4)]
            rollouts = partial(lambda same: same, batch) if with_batch else None
            told += diagnosis.update(0, step, found, [alarm(20, 10)] if step > 20 else [], rollouts)
        return told

    shown, plain = run(True), run(False)
    assert [replace(finding, exemplars=()) for finding in shown] == plain
    assert shown[0].exemplars[0] == (0, shown[0].step, 3)  # paid most
    assert (0, shown[0].step, 3) in shown[0].exemplars


def test_a_swapped_reward_is_no_gain() -> None:
    def told(swap: bool) -> list[Finding]:
        diagnosis, found = Diagnosis(), []
        for step in range(80):
            if swap and step == 40:
                diagnosis.segment()
            value = (1.0 if step < 40 else 9.0) + 0.1 * (step % 3)
            opened = [alarm(45, 40)] if step >= 45 else []
            found += diagnosis.update(0, step, [Reading(0, step, "reward.mean", value, 64)], opened)
        return found

    assert "reward_hacking" in {finding.failure for finding in told(False)}
    assert "reward_hacking" not in {finding.failure for finding in told(True)}


def test_numbers_at_the_end_of_float64_are_survived() -> None:
    wild = [1e308, -1e308, 1e-308, 0.0, 1e200]
    names = [one.reading.replace("*", "x") for one in builtin_rules().conditions if one.reading]
    diagnosis = Diagnosis()
    for step in range(40):
        value = wild[step % len(wild)]
        told = diagnosis.update(0, step, [Reading(0, step, name, value, 1, abs(value)) for name in names], [])
        assert all(0.0 <= finding.confidence <= 1.0 for finding in told)


def test_what_grows_is_told_again_a_few_times_only() -> None:
    told, _ = folded({**LENGTH, "length.mean": "11 x30 ~0.5, 11..400 x70 ~0.5"}, {(60, 100): alarm(60, 45)})
    assert 2 <= len(told) <= 8


def test_a_step_of_a_hundred_readings_takes_a_millisecond_or_two() -> None:
    names = sorted({one.reading.replace("*", "x") for one in builtin_rules().conditions if one.reading})
    names += [f"other.r{number}" for number in range(100 - len(names))]
    rng = np.random.default_rng(0)
    steps = [[Reading(0, step, name, float(rng.normal(1, 0.1)), 64, 0.1) for name in names] for step in range(100)]
    diagnosis = Diagnosis()
    begun = time.process_time()
    for step, readings in enumerate(steps):
        diagnosis.update(0, step, readings, [])
    assert (time.process_time() - begun) / len(steps) < 0.01  # about 1 ms on one core; ten for a busy one


def test_every_way_of_showing_gives_rows_or_nothing() -> None:
    batch = warmup_batch()
    for way in SHOW:
        rows = exemplars(batch, [way])
        assert 1 <= len(rows) <= 2 and all(0 <= row < len(batch) for _, _, row in rows)
        assert exemplars(from_columns(0, [0, 0]), [way]) == ()
    texts = ["so so so so", "great question it is red", "great question it is blue", None]
    shown = exemplars(from_columns(3, [0, 0, 1, 1], completion=texts), ["most_repeated"])
    assert shown == ((0, 3, 1), (0, 3, 2))
    assert {row for _, _, row in exemplars(from_columns(3, [0, 0], reward=[np.nan, 1.0]), ["paid_most"])} == {1}


def test_cutting_padding_shows_that_length_is_paid_and_that_gold_does_not_care() -> None:
    asked = [f"what is {number} ?" for number in range(20)]
    said = [f"It is {number}. " + "You know. " * (number + 3) for number in range(20)]
    found = experiment(
        "cut_padding",
        asked,
        said,
        lambda prompts, texts: [len(text.split()) / 10 for text in texts],
        gold=lambda prompts, texts: [
            float(f"is {prompt.split()[2]}." in text) for prompt, text in zip(prompts, texts, strict=True)
        ],
    )
    assert found.confirmed and found.reward.n == 20 and found.reward.low > 0.5
    assert found.gold is not None and found.gold.mean == 0.0
    assert "the reward pays for length" in found.sentence and "gold does not care" in found.sentence


def test_an_honest_reward_confirms_nothing() -> None:
    asked = [f"what is {number} ?" for number in range(20)]
    said = [f"It is {number}. " + "You know. " * 5 for number in range(20)]
    honest = experiment(
        "cut_padding", asked, said, lambda prompts, texts: [1.0 if "It is" in text else 0.0 for text in texts]
    )
    assert not honest.confirmed and "no sign" in honest.sentence
    needed = experiment(
        "cut_padding",
        asked,
        said,
        lambda p, c: [float(len(text)) for text in c],
        gold=lambda p, c: [len(text) / 99 for text in c],
    )
    assert not needed.confirmed and "gold cares too" in needed.sentence


def test_answers_of_none_are_left_out_and_counted() -> None:
    asked, said = [f"q{number}" for number in range(12)], ["great question ! it is red ."] * 12

    def paid(prompts: list[str], texts: list[str]) -> list[float | None]:
        return [None if at < 4 else float("great question" in text) for at, text in enumerate(texts)]

    found = experiment("drop_phrase", asked, said, paid, phrase="Great question !")
    assert (found.reward.n, found.reward.missing, found.reward.mean) == (8, 4, 1.0)
    assert "4 pairs without an answer left out" in found.sentence


def test_an_experiment_is_asked_for_what_it_needs() -> None:
    with pytest.raises(ContractError, match="needs phrase="):
        experiment("drop_phrase", ["q"], ["a"], lambda p, c: [0.0])
    with pytest.raises(ContractError, match="they are cut_padding, drop_phrase, drop_hedges, drop_opening, strip_form"):
        experiment("shuffle", ["q"], ["a"], lambda p, c: [0.0])
    with pytest.raises(ContractError, match="one prompt for each"):
        experiment("cut_padding", ["q"], ["a b", "a b"], lambda p, c: [0.0])
    with pytest.raises(ContractError, match="answered 1 times for 2"):
        experiment("cut_padding", ["q", "r"], ["a b c", "a b c"], lambda p, c: [0.0])
    nothing = experiment("drop_phrase", ["q"], ["it is red"], lambda p, c: [0.0] * len(c), phrase="great")
    assert nothing.unchanged == 1 and not nothing.confirmed and "could not be tried" in nothing.sentence


def test_at_most_the_limit_is_scored_spread_over_the_batch() -> None:
    seen: list[str] = []

    def paid(prompts: list[str], texts: list[str]) -> list[float]:
        seen.extend(prompts)
        return [0.0] * len(texts)

    experiment("cut_padding", [f"q{at}" for at in range(100)], ["a b c d"] * 100, paid, limit=10)
    assert seen[:10] == [f"q{10 * at}" for at in range(10)] and len(seen) == 20


def test_completions_of_one_prompt_count_as_one() -> None:
    said = [f"red {'um ' * (3 + at % 2)}" for at in range(20)]
    one = experiment("cut_padding", ["q"] * 20, said, lambda p, c: [float(len(text)) for text in c])
    assert one.reward.n == 20 and np.isnan(one.reward.low) and not one.confirmed
    assert "too few prompts" in one.sentence


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 9, 31, 200])
def test_the_quantile_is_that_of_student(freedom: int) -> None:
    assert student_t_quantile(freedom, 0.95) == pytest.approx(student_t.ppf(0.975, freedom), rel=0.01)


def test_edits_leave_hostile_text_harmless() -> None:
    assert remove_phrase("(a+)+$ x (a+)+$", "(a+)+$") == "x"
    assert remove_phrase("greatly great", "great") == "greatly"
    assert shorten("") == "" and shorten("one") == "one" and shorten("\n\n  ") == "\n\n  "
    long = "word " * 100_000
    begun = time.process_time()
    assert shorten(long) == "word"
    assert time.process_time() - begun < 1.0


def test_the_page_names_every_rule_and_every_key() -> None:
    page = PAGE.read_text()
    assert [row for row in table() if row not in page] == []
    keys = (
        [name.replace("form", "is") for name in Condition.__slots__]
        + list(DiagnosisRule.__slots__)
        + list(RuleSettings.__slots__)
    )
    assert [key for key in keys if f"`{key}`" not in page] == []
    assert [way for way in SHOW if f"`{way}`" not in page] == []


def test_the_rule_of_the_page_holds_the_cases_of_the_page() -> None:
    rule, cases = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert check_rules(read_rules(rule), read_cases(cases)) == []
    assert check_rules(read_rules(rule.replace("factor = 0.5", "factor = 0.01")), read_cases(cases)) != []


def table() -> list[str]:
    """The rows of the page's table."""
    rows = []
    for rule in builtin_rules().rules:
        asked = dict.fromkeys(
            one.reading or f"{one.tier} {one.alarm}" for one in (*rule.must, *rule.any) if one.weight > 0.1
        )
        seen = ", ".join(f"`{one}`" for one in asked)
        rows.append(f"| `{rule.failure}` | {rule.symptom} | {seen} | {rule.cause} | {rule.fix[0]} |")
    return rows
