"""The verdict of a comparison: healthy, costs, drift or cannot tell, from all measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tiltmeter_workbench.compare.measures.difference import percent
from tiltmeter_workbench.compare.measures.measure import Measure

State = Literal["healthy", "costs", "drift", "cannot tell"]

DRIFT = 100.0  # nats per completion, in the mean: farther than this without wins is drift without gain
LOSING = 0.45  # wins: a rate below may be chance, and is not called healthy either
BEATEN = 0.25  # wins: as long as three losses in four are not excluded, too little was judged to call it healthy
WINS, KL = "win_rate", "kl"
CODES: dict[State, int] = {"healthy": 0, "costs": 1, "drift": 1, "cannot tell": 2}


@dataclass(frozen=True)
class CheckpointVerdict:
    """A state, the names of what got worse, and a sentence; `line` is both, to paste.

    >>> CheckpointVerdict("costs", "sycophancy. It gives up 40 % of right answers.", ("sycophancy",)).line
    'Costs: sycophancy. It gives up 40 % of right answers.'
    """

    state: State
    sentence: str
    costs: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        return f"{self.state.capitalize()}: {self.sentence}"

    @property
    def exit_code(self) -> int:
        return CODES[self.state]


def verdict(measures: Sequence[Measure], *, opinion: bool = False) -> CheckpointVerdict:
    """Drift if it went far and no wins are shown; else costs if anything got worse; else healthy if it was judged.

    Healthy does not need wins: it needs a judge, enough pairs to exclude that it is plainly beaten, a win rate that is
    not on the losing side by more than matters, and nothing shown to be worse. A win rate of 55 % at 2 nats is a
    healthy run, whether or not its interval leaves out one half. `opinion`: a model judged.

    >>> wins = Measure("win_rate", "Wins", "cannot tell", "55 %", checkpoint=0.55, low=-0.03, high=0.13, n=200)
    >>> verdict([wins, Measure("kl", "KL from base", "shown", "2 nats", checkpoint=2.0)]).state
    'healthy'
    >>> verdict([wins, Measure("kl", "KL from base", "shown", "150 nats", checkpoint=150.0)]).state
    'drift'
    >>> verdict([Measure("kl", "KL from base", "shown", "2 nats", checkpoint=2.0)]).exit_code
    2
    """
    by_name = {measure.name: measure for measure in measures}
    wins, kl = by_name.get(WINS), by_name.get(KL)
    costs = tuple(dict.fromkeys(measure.cost or measure.name for measure in measures if measure.is_cost))
    judged = wins is not None and math.isfinite(wins.checkpoint)
    far = kl is not None and kl.checkpoint > DRIFT
    summary = _summary(measures, opinion)
    if far and judged and not shows_wins(measures):
        return CheckpointVerdict("drift", _drift(measures, costs, summary), costs)
    if costs:
        return CheckpointVerdict("costs", f"{_costs(measures, costs, summary)}{_caveats(measures)}", costs)
    if not judged:
        return CheckpointVerdict("cannot tell", _unjudged_sentence(wins, kl))
    if wins is not None and (wins.checkpoint < LOSING or 0.5 + wins.low < BEATEN):
        few = f"so few pairs do not exclude that it wins fewer than {percent(BEATEN)}"
        why = "it loses more often, which may be chance" if wins.checkpoint < LOSING else few
        return CheckpointVerdict("cannot tell", f"{summary}: {why}.{_caveats(measures)} Give more prompts.")
    return CheckpointVerdict("healthy", f"{summary}; {_no_cost_sentence(measures)}.{_caveats(measures)}")


def shows_wins(measures: Sequence[Measure]) -> bool:
    """Whether wins are shown: better on the prompts of training, and not shown to be worse at equal length."""
    by_name = {measure.name: measure for measure in measures}
    wins, fair = by_name.get(WINS), by_name.get(f"{WINS}_length_controlled")
    return wins is not None and wins.state == "better" and not (fair is not None and fair.high < 0.0)


def _drift(measures: Sequence[Measure], costs: Sequence[str], summary: str) -> str:
    rest = f" It also costs {_join_names(costs)}." if costs else ""
    return f"{summary}, and no wins are shown for it.{rest}{_caveats(measures)}"


def _costs(measures: Sequence[Measure], costs: Sequence[str], summary: str) -> str:
    sentences = " ".join(measure.sentence for measure in measures if measure.is_cost)
    return f"{_join_names(costs)}. {sentences}{f' In all: {summary}.' if summary else ''}"


def _summary(measures: Sequence[Measure], opinion: bool) -> str:
    by_name = {measure.name: measure for measure in measures}
    wins, kl = by_name.get(WINS), by_name.get(KL)
    parts = []
    if wins is not None and math.isfinite(wins.checkpoint):
        low, high = 0.5 + wins.low, 0.5 + wins.high
        about = " (about this judge)" if opinion else ""
        parts.append(f"{percent(wins.checkpoint)} wins [{percent(low)}, {percent(high)}]{about}")
    if kl is not None and math.isfinite(kl.checkpoint):
        parts.append(f"{kl.checkpoint:.3g} nats from its base")
    return " at ".join(parts)


def _no_cost_sentence(measures: Sequence[Measure]) -> str:
    tested = sum(bool(measure.cost) and measure.state != "not asked" for measure in measures)
    return f"no cost is shown by {tested} measures that could show one"


def _caveats(measures: Sequence[Measure]) -> str:
    """Caveats appended to the sentence."""
    by_name = {measure.name: measure for measure in measures}
    wins, fair = by_name.get(WINS), by_name.get(f"{WINS}_length_controlled")
    open_ = [m.title for m in measures if m.cost and m.state == "cannot tell" and m is not wins]
    text = f" Cannot tell: {', '.join(open_)}." if open_ else ""
    if wins is not None and wins.state == "better" and fair is not None and not fair.low > 0.0:
        text += " At equal length the wins are not shown."
    return text


def _unjudged_sentence(wins: Measure | None, kl: Measure | None) -> str:
    why = "nobody judged the answers: give --judge" if wins is None or wins.state == "not asked" else wins.sentence
    far = ""
    if kl is not None and kl.checkpoint > DRIFT:
        far = f" It is {kl.checkpoint:.3g} nats from its base, and whether that bought anything is not known."
    return f"{why.rstrip('.')}.{far}"


def _join_names(names: Sequence[str]) -> str:
    *most, last = (name.replace("_", " ") for name in names)
    return f"{', '.join(most)} and {last}" if most else last
