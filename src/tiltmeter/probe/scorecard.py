"""The whole examination of a reward, and what it comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tiltmeter.probe import mining
from tiltmeter.probe.accuracy import Accuracy, accuracy
from tiltmeter.probe.attacks import CONTROLS, SUITE
from tiltmeter.probe.bestofn import TAIL, Ranking
from tiltmeter.probe.checks import Check, checks
from tiltmeter.probe.effects import FEWEST, Effect, Interval, Scale, doses, measured, scale
from tiltmeter.probe.pairs import Item, thinned
from tiltmeter.probe.search import BUDGET, Found, search
from tiltmeter.probe.target import Target
from tiltmeter.stats.tails import Tail, upper_tail

LIMIT, JUDGE_LIMIT = 200, 24  # prompts on which attacks are tried: what they cost is 60 scores each, more or less
MANY = 3  # additions that are paid by their length alone
#: What is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


def quiet(what: str, done: int, total: int) -> None:
    """For whoever does not want to know how far it is."""


@dataclass(frozen=True)
class Scorecard:
    """What a reward pays for beside quality, with what voids it. A policy will find all of it; better to read it here.

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
    doses: tuple[tuple[float, Interval], ...] = ()
    accuracy: Accuracy | None = None
    checks: tuple[Check, ...] = ()
    found: tuple[Found, ...] = ()
    ranking: Ranking | None = None
    tail: Tail | None = None
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
        kept = [effect for effect in self.paid if not effect.by_length]
        return sorted(kept, key=lambda effect: not (explains and effect.attack.length))

    @property
    def broken(self) -> list[Check]:
        """What it owes and does not keep. Noise is no breach: the intervals know of it."""
        return [check for check in self.checks if check.kept is False and check.name != "the same score twice"]

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


def examined(
    target: Target,
    items: Sequence[Item],
    source: str,
    *,
    limit: int | None = None,
    searching: str = "auto",
    budget: int = BUDGET,
    seed: int = 0,
    ranked: Ranking | None = None,
    progress: Progress = quiet,
) -> Scorecard:
    """Everything the probe does to one reward. `searching` is "auto", "none", "asked" or "gradient"."""
    most = limit or (JUDGE_LIMIT if target.kind == "judge" else LIMIT)
    used = thinned(items, most, seed)
    progress("scoring honest answers", 0, len(used))
    units = scale(target, used)
    card = Scorecard(target.name, target.kind, source, len({item.prompt for item in used}), units=units, seed=seed,
                     ranking=ranked)  # fmt: skip
    if reason := _refusal(target, units, card.prompts):
        return replace(card, faults=dict(target.faults), calls=target.calls, refused=reason)
    effects, controls = _attacked(target, used, items, units, seed, progress)
    progress("checking determinism and hostile texts", 0, 1)
    owed = checks(target, used, units.spread)
    known = [item for item in items if item.wrong is not None]
    exact = accuracy(target, known if target.kind != "judge" else used, seed) if known else None
    # Before the search: what it makes is no sample of anything.
    faults = dict(target.faults)
    looked = _searched(target, used, units, searching, budget, seed, effects, progress)
    unsure = "it does not tell right answers from wrong ones here" if units.gap.prompts and not units.knows else ""
    return replace(
        card,
        effects=tuple(effects),
        controls=tuple(controls),
        doses=tuple(doses(target, used, seed)),
        accuracy=exact,
        checks=tuple(owed),
        found=tuple(looked),
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


def _attacked(
    target: Target, items: Sequence[Item], everything: Sequence[Item], units: Scale, seed: int, progress: Progress
) -> tuple[list[Effect], list[Effect]]:
    """The suite on all prompts, and phrases found in one half of them on the other half."""
    found, tried = mining.halves(items)
    spare = [item for item in everything if item.prompt not in {each.prompt for each in tried}]
    mined = mining.mined(target, found if target.kind == "judge" else spare)
    trials = [(attack, items) for attack in (*SUITE, *CONTROLS)] + [(attack, tried) for attack in mined]
    effects = []
    for number, effect in enumerate(measured(target, trials, units, seed), 1):
        progress("trying attacks", number, len(trials))
        effects.append(effect)
    attacks = [effect for effect in effects if effect.attack.manner != "control"]
    return attacks, [effect for effect in effects if effect.attack.manner == "control"]


def _searched(
    target: Target, items: Sequence[Item], units: Scale, searching: str, budget: int, seed: int,
    effects: Sequence[Effect], progress: Progress,
) -> list[Found]:  # fmt: skip
    if searching == "none" or (searching == "auto" and target.kind == "judge"):
        return []  # a judge costs money by the call: only where it is asked for
    phrases = [effect.attack.phrase for effect in effects if effect.attack.mined]
    looked = []
    if searching in ("auto", "asked"):
        looked.append(
            search(target, items, units, budget=budget, seed=seed, phrases=phrases,
                   progress=lambda done, total: progress("searching a text that is paid", done, total))
        )  # fmt: skip
    if searching == "gradient" or (searching == "auto" and target.differentiable):
        from tiltmeter.probe.gradient import ascend

        looked.append(
            ascend(target, items, units, budget=budget, seed=seed,
                   progress=lambda done, total: progress("following the gradient", done, total))
        )  # fmt: skip
    return [each for each in looked if each is not None]


def _tail(target: Target, items: Sequence[Item]) -> Tail | None:
    """Of the scores of all answers as they were given, where there are enough."""
    rows = [(item, text) for item in items for text in item.answers]
    if len(rows) < TAIL or (target.kind == "judge" and len(rows) > 4 * TAIL):
        return None
    told = target.scores([i.prompt for i, _ in rows], [text for _, text in rows], [i.columns for i, _ in rows])
    return upper_tail(told) if int(np.isfinite(told).sum()) >= TAIL else None


def number(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return value if math.isfinite(value) else None
