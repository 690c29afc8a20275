"""Stop advice: whether to continue training, and which checkpoint is the best so far, estimated from gold labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from tiltmeter.data.reading_table import ReadingTable, by_name
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.stats.gold_curve import GoldCurve
from tiltmeter.verdict.gold_standing import MIN_LABELS, PAIR_LEVEL, Estimate, GoldStanding, stand
from tiltmeter.verdict.run_facts import RunFacts

Word = Literal["continue", "stop", "cannot tell"]

STOP_Z = NormalDist().inv_cdf(0.995)  # that duels are lost by, to advise a stop without an alarm
WINDOW = 10  # steps that a drift is read over
RECENT_STEPS = 40  # steps after which gold is too old; or twice the usual gap between labels, if that is larger
LEAST_DUELS = 20  # recent duels below which they say nothing
MAX_KL = 100.0  # nats of KL to the reference; beyond it, gold should have risen
MIN_ENTROPY_RATIO = 0.2  # of the entropy at the start

CHECKPOINT = "training.checkpoint"
HARDER = "gold is lower than it was: worse answers or harder prompts"
ASK_AGAIN = "harder prompts would look the same; anchors, or an evaluation on fixed prompts, would tell"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with the run now, why, and which checkpoint to keep; `best` None: no checkpoint can be named."""

    word: Word
    why: str
    best: Estimate | None
    now: Estimate | None
    source: str  # the reading that was used; empty without gold
    fall: float | None = None  # of gold below its best stretch: a larger one is excluded (95 %); None: nothing is
    lower: bool = False  # gold stands lower than it did, by more than chance
    excluded: bool = False  # that a quarter of gold is lost, against every earlier stretch: without it no run is OK
    as_of: int | None = None  # the last step at which it was, where too few labels came since to change a live state
    doubt: str = ""  # why gold cannot tell, in a few words, where more labels alone would not help
    slices: str = ""  # what single slices say, in a clause; empty: there are none


def advise(
    step: int, readings: Iterable[Reading], alarms: Sequence[Alarm] = (), checkpoints: Sequence[int] = ()
) -> Advice:
    """Continue, stop or cannot tell, and the best checkpoint up to `step`, from the readings of the current lineage.

    The reward cannot say when to stop: it keeps rising during reward hacking. Inputs are `gold.mean`, else
    `gold.answers`, else `gold.level`, else the evaluation series with most items; `gold.slope`, `policy.kl.k3` and
    `policy.entropy_ratio` if present; `alarms` that are open; and `checkpoints`, at which the model was saved.
    `gold.level`, from audited pairs alone, orders checkpoints and never advises a stop by itself.

    What gold is, was at its best and is around a checkpoint is said in `gold_standing`; the intervals are not valid if
    labels were selected by their value, and are about this gold source only.

    *Stop*: an alarm on gold is open; or gold now is below an earlier stretch of the run by more than chance (99 % over
    all looks at all stretches, nearly; unlike the alarm, this test is not valid under continuous monitoring); or
    answers of now lose to earlier ones; or the KL is above 100 nats, or entropy is below a fifth, and gold has not
    risen. *Cannot tell*: no gold, no recent gold, or labels do not exclude that a quarter of it is lost against every
    earlier stretch (`stats/gold_curve.py`). Otherwise *continue*. `fall` is the largest fall below the best stretch
    that is not excluded.

    >>> rise = [Reading(0, t, "gold.mean", 0.4 + 0.004 * min(t, 100 - t), 64, 0.05) for t in range(100)]
    >>> advice = advise(99, rise, checkpoints=[20, 50, 80])
    >>> advice.word, advice.best.step, round(advice.best.gold, 2)
    ('stop', 50, 0.58)
    """
    return advise_by_name(step, by_name(readings), alarms, checkpoints)


def advise_by_name(
    step: int, readings: Mapping[str, ReadingTable], alarms: Sequence[Alarm], checkpoints: Sequence[int]
) -> Advice:
    """As `advise`, of readings by their names."""
    open_alarms = [alarm for alarm in alarms if alarm.tier == "alarm" and alarm.resolved is None]
    standing = stand(step, readings, open_alarms)
    series = {name: part for name, one in readings.items() if len(part := one.where(one.steps <= step))}
    return advise_on_gold(step, series, standing, open_alarms, checkpoints)


def advise_on_gold(
    step: int,
    series: Mapping[str, ReadingTable],
    standing: GoldStanding | None,
    open_alarms: Sequence[Alarm],
    checkpoints: Sequence[int],
    *,
    new_prompts: bool = False,
) -> Advice:
    """As `advise`, from how gold stands. `new_prompts`: prompts do not come back."""
    if standing is None:
        if open_alarms:
            return Advice("stop", _alarm_reason(open_alarms), None, None, "")
        why = "no gold to judge by; gold= at attach, or declared evaluations, would tell"
        return Advice("cannot tell", why, None, None, "")
    saved_steps = sorted({at for at in checkpoints if at <= step})
    best = standing.checkpoint(saved_steps, open_alarms)
    curve, doubt, look = standing.curve, "", standing.curve.last_look
    lower = look is not None and look.is_lower
    if open_alarms:
        word, why = _stop(_alarm_reason(standing.date(open_alarms)))
    elif standing.source == PAIR_LEVEL:
        word, why = _decide_by_pairs(step, series, curve)
    else:
        word, why = _decide(step, series, curve)
        if lower and new_prompts and not standing.source.startswith("eval."):
            doubt = HARDER
            if standing.fallen is not None:
                word, why = "cannot tell", f"{why}. No prompt comes back, so {ASK_AGAIN}"
    if saved_steps and best is None:
        why += "; no checkpoint has gold around it" + (" from before the onset" if open_alarms else "")
    fall = None if look is None else look.fall
    as_of = None if curve.excludes_loss else curve.held_step
    return Advice(word, why, best, standing.latest, standing.source, fall, lower, curve.excludes_loss, as_of, doubt)


def _decide_by_pairs(step: int, series: Mapping[str, ReadingTable], curve: GoldCurve) -> tuple[Word, str]:
    """The advice from audited pairs without an alarm. Pairs come from prompts whose rewards differ, so their mean gold
    falls too when prompts become always solved: a fall of it is no proof that gold fell, and forbids to go on calmly.
    Their slope along the reward shows where gold is going, duels whether answers got worse."""
    duels = _since(series, "gold.duel", step - RECENT_STEPS)
    counts, values = duels.counts, duels.values
    if counts.sum() >= LEAST_DUELS:
        mean = float((counts * values).sum() / counts.sum())
        error = sqrt(float((counts**2 * (values - mean) ** 2).sum())) / float(counts.sum())
        if mean < -STOP_Z * error - 0.02:
            return _stop(f"answers of now lose to earlier ones in duels by {-mean:.2g} of gold: more than chance")
    if (look := curve.last_look) is not None and (was := look.lower_than) is not None:
        return "cannot tell", (
            f"gold of audited pairs is lower than at steps {was.first} to {was.last}, where it was {was.mean:.2f}: "
            "either gold has fallen, or solved prompts left the pairs; an evaluation, or gold for all completions of "
            "some prompts, would tell"
        )
    if not curve.excludes_loss:
        return "cannot tell", say_what_is_missing(curve)
    if (slope := _positive_slope(series, step)) is not None:
        return "continue", f"no alarm, and the reward still points towards gold (slope {slope:.2g})"
    why = (
        "no alarm, and audited pairs do not say more: gold for all completions of some prompts, or an evaluation, would"
    )
    return "cannot tell", why


def advise_on_run(run_facts: RunFacts) -> Advice | None:
    """Advice on a recorded run; None without labels, evaluations and traps."""
    return read_gold(run_facts)[0]


def read_gold(run_facts: RunFacts) -> tuple[Advice | None, GoldStanding | None]:
    """Advice on a recorded run, and how its gold stands; none without labels, evaluations and traps."""
    if not run_facts.steps or not (run_facts.labels or run_facts.evaluations or run_facts.traps):
        return None, None
    spans, alarms = run_facts.spans(), run_facts.open_alarms("alarm")
    series = {name: one for name, history in run_facts.history.items() if len(one := history.on_lineage(spans))}
    saved_steps = [] if CHECKPOINT not in series else sorted({int(at) for at in series[CHECKPOINT].values})
    new = run_facts.prompts.come_back is False
    standing = stand(run_facts.last_step, series, alarms, new_prompts=new)
    return advise_on_gold(run_facts.last_step, series, standing, alarms, saved_steps, new_prompts=new), standing


def _decide(step: int, series: Mapping[str, ReadingTable], curve: GoldCurve) -> tuple[Word, str]:
    old, first, now, look = step - curve.newest, curve.first, curve.now, curve.last_look
    if old > max(RECENT_STEPS, 2.0 * curve.gap) or now.n < MIN_LABELS:
        return (
            "cannot tell",
            f"the newest gold is {old} steps old, or of fewer than {MIN_LABELS} labels; label more recent steps",
        )
    if look is not None and (was := look.fallen_from) is not None:
        return _stop(
            f"gold is lower than at steps {was.first} to {was.last}, where it was {was.mean:.2f}: more than chance"
        )
    gained = now.ends(2.0)[0] > first.ends(2.0)[1]
    drift = "" if gained else _drift_reason(series)
    if drift and first.last < now.first and first.first + 4 * WINDOW <= step:
        return _stop(f"{drift}, and gold has not risen ({first.mean:.2f} at first, {now.mean:.2f} now)")
    if look is None or not curve.excludes_loss:
        return "cannot tell", say_what_is_missing(curve)
    trend = "" if _positive_slope(series, step) is None else "; the reward still points towards gold"
    return (
        "continue",
        f"no sign that gold is lost: it is {now.mean:.2f}, a fall above {look.fall:.2f} is excluded{trend}",
    )


def _stop(why: str) -> tuple[Word, str]:
    return "stop", why


def say_what_is_missing(curve: GoldCurve) -> str:
    """Why a loss of gold is not excluded, and what would tell."""
    look = curve.last_look
    if look is None:
        return f"{curve.labels} labels are too few to compare gold now with gold before; label more"
    where = f"at steps {look.best.first} to {look.best.last}"
    if look.lower_than is not None:
        part = look.lower_than
        return (
            f"gold of the newest steps is lower than at steps {part.first} to {part.last}, where it was "
            f"{part.mean:.2f}: more than chance"
        )
    if look.more_labels is None:
        return (
            f"gold was {look.best.mean:.2f} {where} and is {look.now.mean:.2f}: a loss of {look.allowed:.2f} is likely"
        )
    if look.margins[0] > 0.0:
        return (
            f"{look.now.n} labels of the newest steps do not exclude a loss of {look.allowed:.2f} of gold, which was "
            f"{look.best.mean:.2f} {where}; about {look.more_labels} more would tell"
        )
    return f"a loss of {look.allowed:.2f} of gold is excluded at the last steps only: a few more will tell"


def _drift_reason(series: Mapping[str, ReadingTable]) -> str:
    """Why gold should have risen by now: a large KL or a collapsed entropy; empty if neither."""
    kl, entropy = (_recent_mean(series, name) for name in ("policy.kl.k3", "policy.entropy_ratio"))
    if kl is not None and kl > MAX_KL:
        return f"the KL to the reference is {kl:.0f} nats"
    if entropy is not None and entropy < MIN_ENTROPY_RATIO:
        return f"entropy is {100 * entropy:.0f} % of what it was"
    return ""


def _since(series: Mapping[str, ReadingTable], name: str, step: int) -> ReadingTable:
    """The readings of a name after a step."""
    readings = series.get(name, ReadingTable(name))
    return readings.where(readings.steps > step)


def _positive_slope(series: Mapping[str, ReadingTable], step: int) -> float | None:
    """The mean slope of gold along the reward in recent steps, if it is above 0 by more than chance."""
    recent = _since(series, "gold.slope", step - RECENT_STEPS).values
    if len(recent) < MIN_LABELS:
        return None
    mean, error = float(np.mean(recent)), float(np.std(recent, ddof=1)) / sqrt(len(recent))
    return mean if mean > 2.0 * error else None


def _recent_mean(series: Mapping[str, ReadingTable], name: str) -> float | None:
    newest = max(series[name].steps, default=0) if name in series else 0
    values = _since(series, name, newest - WINDOW).values
    return float(values.mean()) if len(values) else None


def _alarm_reason(alarms: Sequence[Alarm]) -> str:
    first = min(alarms, key=lambda alarm: alarm.onset)
    return f"an alarm is open on {first.name}: gold is being lost since about step {first.onset}"
