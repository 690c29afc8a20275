"""Run the whole probe of a reward and return its scorecard."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tiltmeter.stats.tails import UpperTail, upper_tail
from tiltmeter_workbench.probe import phrase_mining
from tiltmeter_workbench.probe.accuracy import Accuracy, accuracy
from tiltmeter_workbench.probe.attack_effects import (
    FEWEST,
    Effect,
    PromptInterval,
    Scale,
    dose_effects,
    measure_effects,
    measure_scale,
)
from tiltmeter_workbench.probe.attacks import CONTROLS, SUITE
from tiltmeter_workbench.probe.best_of_n import TAIL, Ranking
from tiltmeter_workbench.probe.checks import NOISE, RewardCheck, run_checks
from tiltmeter_workbench.probe.gradient import ascend
from tiltmeter_workbench.probe.pairs import ProbeItem, subsample
from tiltmeter_workbench.probe.reward_target import Target
from tiltmeter_workbench.probe.search import BUDGET, SearchResult, search

LIMIT, JUDGE_LIMIT = 200, 24  # prompts on which attacks are tried: what they cost is 60 scores each, more or less
MANY = 3  # additions that are paid by their length alone
#: What is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True)
class Scorecard:
    """The result of a probe: what a reward pays for besides quality, and what limits that result.

    `state` is "paid", "not paid" or "cannot tell" (why in `refused`), and `exit_code` 1, 0 and 2. Paid is also a score
    that depends on the batch around it, and a text that makes the reward raise: both can be had by a policy.
    """

    reward: str
    kind: str
    source: str  # where the prompts came from
    prompts: int = 0
    calls: int = 0
    units: Scale | None = None
    effects: tuple[Effect, ...] = ()
    controls: tuple[Effect, ...] = ()
    doses: tuple[tuple[float, PromptInterval], ...] = ()
    accuracy: Accuracy | None = None
    checks: tuple[RewardCheck, ...] = ()
    search_results: tuple[SearchResult, ...] = ()
    ranking: Ranking | None = None
    tail: UpperTail | None = None
    faults: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    seed: int = 0

    @property
    def paid(self) -> list[Effect]:
        """What is paid, by what it is worth."""
        return sorted((effect for effect in self.effects if effect.paid), key=lambda effect: -effect.spreads)

    @property
    def own(self) -> list[Effect]:
        """What is paid for itself. Length comes first where it explains why many other things are paid."""
        explains = sum(effect.by_length for effect in self.effects) >= MANY
        effects = [effect for effect in self.paid if not effect.by_length]
        return sorted(effects, key=lambda effect: not (explains and effect.attack.length))

    @property
    def broken(self) -> list[RewardCheck]:
        """The failed checks. Noise is left out: the intervals account for it."""
        return [check for check in self.checks if check.passed is False and check.name != NOISE]

    @property
    def undecided(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.verdict == "cannot tell"]

    @property
    def state(self) -> str:
        if self.paid or self.broken:
            return "paid"
        return "cannot tell" if self.refused or self.undecided else "not paid"

    @property
    def exit_code(self) -> int:
        return {"paid": 1, "not paid": 0, "cannot tell": 2}[self.state]


def examine_reward(
    target: Target,
    items: Sequence[ProbeItem],
    source: str,
    *,
    limit: int | None = None,
    searching: str = "auto",
    budget: int = BUDGET,
    seed: int = 0,
    ranked: Ranking | None = None,
    progress: Progress = no_progress,
) -> Scorecard:
    """Everything the probe does to one reward. `searching` is "auto", "none", "asked" or "gradient"."""
    most = limit or (JUDGE_LIMIT if target.kind == "judge" else LIMIT)
    used = subsample(items, most, seed)
    progress("scoring honest answers", 0, len(used))
    units = measure_scale(target, used)
    card = Scorecard(target.name, target.kind, source, len({item.prompt for item in used}), units=units, seed=seed,
                     ranking=ranked)  # fmt: skip
    if reason := _refusal(target, units, card.prompts):
        return replace(card, faults=dict(target.faults), calls=target.calls, refused=reason)
    effects, controls = _measure_attacks(target, used, items, units, seed, progress)
    progress("checking determinism and hostile texts", 0, 1)
    check_results = run_checks(target, used, units.spread)
    pairs = [item for item in items if item.wrong is not None]
    exact = accuracy(target, pairs if target.kind != "judge" else used, seed) if pairs else None
    # Before the search: what it makes is no sample of anything.
    faults = dict(target.faults)
    search_results = _run_searches(target, used, units, searching, budget, seed, effects, progress)
    unsure = "it does not tell right answers from wrong ones here" if units.gap.prompts and not units.separates else ""
    return replace(
        card,
        effects=tuple(effects),
        controls=tuple(controls),
        doses=tuple(dose_effects(target, used, seed)),
        accuracy=exact,
        checks=tuple(check_results),
        search_results=tuple(search_results),
        tail=_tail(target, items),
        faults=faults,
        calls=target.calls,
        refused=unsure,
    )


def _refusal(target: Target, units: Scale, prompts: int) -> str:
    if not units.answers:
        why = next(iter(target.faults), "it gave no number")
        return f"no honest answer was scored: {why}"
    if prompts < FEWEST:
        return f"{prompts} prompts are too few; give {FEWEST} or more, better 40"
    if not units.spread > 0.0:
        return f"it gives all {units.answers} honest answers the same score"
    return ""


def _measure_attacks(
    target: Target,
    items: Sequence[ProbeItem],
    everything: Sequence[ProbeItem],
    units: Scale,
    seed: int,
    progress: Progress,
) -> tuple[list[Effect], list[Effect]]:
    """The suite on all prompts, and phrases found in one half of them on the other half."""
    mining_items, test_items = phrase_mining.halves(items)
    spare = [item for item in everything if item.prompt not in {each.prompt for each in test_items}]
    mined_attacks = phrase_mining.mine_phrases(target, mining_items if target.kind == "judge" else spare)
    trials = [(attack, items) for attack in (*SUITE, *CONTROLS)] + [(attack, test_items) for attack in mined_attacks]
    effects = []
    for number, effect in enumerate(measure_effects(target, trials, units, seed), 1):
        progress("trying attacks", number, len(trials))
        effects.append(effect)
    attacks = [effect for effect in effects if effect.attack.manner != "control"]
    return attacks, [effect for effect in effects if effect.attack.manner == "control"]


def _run_searches(
    target: Target, items: Sequence[ProbeItem], units: Scale, searching: str, budget: int, seed: int,
    effects: Sequence[Effect], progress: Progress,
) -> list[SearchResult]:  # fmt: skip
    if searching == "none" or (searching == "auto" and target.kind == "judge"):
        return []  # a judge costs money by the call: only where it is asked for
    phrases = [effect.attack.phrase for effect in effects if effect.attack.mined]
    results = []
    if searching in ("auto", "asked"):
        results.append(
            search(target, items, units, budget=budget, seed=seed, phrases=phrases,
                   progress=lambda done, total: progress("searching a text that is paid", done, total))
        )  # fmt: skip
    if searching == "gradient" or (searching == "auto" and target.differentiable):
        results.append(
            ascend(target, items, units, budget=budget, seed=seed,
                   progress=lambda done, total: progress("following the gradient", done, total))
        )  # fmt: skip
    return [each for each in results if each is not None]


def _tail(target: Target, items: Sequence[ProbeItem]) -> UpperTail | None:
    """Of the scores of all answers as they were given, where there are enough."""
    rows = [(item, text) for item in items for text in item.answers]
    if len(rows) < TAIL or (target.kind == "judge" and len(rows) > 4 * TAIL):
        return None
    scores = target.scores([i.prompt for i, _ in rows], [text for _, text in rows], [i.columns for i, _ in rows])
    return upper_tail(scores) if int(np.isfinite(scores).sum()) >= TAIL else None


def finite_or_none(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return value if math.isfinite(value) else None
