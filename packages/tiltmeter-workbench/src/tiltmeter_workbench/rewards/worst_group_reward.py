"""`worst_group`: of several groups of people, what the answer is worth to those whom it serves least."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.gold.guards.composed_reward import Agree, ComposedReward, OnInfra, Part
from tiltmeter_workbench.rewards.reward_ensemble import MemberScales, ensemble

FIRST_ROWS = 256  # that give the scale of each group's reward where none is given


def worst_group(
    groups: Mapping[str, Part],
    *,
    scale: MemberScales = FIRST_ROWS,
    agree: Agree | None = None,
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """One reward for several groups of people: the least of theirs, each on its own scale.

    A reward fitted to everybody's votes is the majority's where groups differ: it pays what a minority loses by. The
    least of the groups' rewards pays an answer as those find it whom it serves worst, so nothing is gained by trading
    one group for another. It is for groups that want different things (`tiltmeter data preferences` finds them), each
    with a reward of its own, a model trained on its votes for instance. Models of the same thing, of which one may be
    wrong, are an `ensemble`.

    Where no answer serves all, a small or an odd group decides what everybody gets: name groups that you would answer
    for. Scales as in `ensemble`: mean and standard deviation of each on fixed answers, or how many first rows give
    them, then frozen. A row that a group's reward did not score is None. Components are named "group.NAME", so a
    watched run shows which group is served.

    >>> brief = lambda completions, **_: [-float(len(c)) for c in completions]
    >>> full = lambda completions, **_: [float(len(c)) for c in completions]
    >>> reward = worst_group({"brief": brief, "full": full}, scale=[(-4.0, 2.0), (4.0, 2.0)])
    >>> reward(completions=["ab", "abcd", "abcdefgh"]), reward.components
    ([-1.0, 0.0, -2.0], ('group.brief', 'group.full'))
    """
    if len(groups) < 2:
        raise ValueError(f"worst_group needs the rewards of two groups or more, not {len(groups)}")
    return ensemble(dict(groups), "min", scale=scale, agree=agree, name="group", on_infra=on_infra)
