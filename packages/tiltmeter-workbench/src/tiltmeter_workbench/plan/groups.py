"""GRPO group size: the share of groups with no advantage, the rewards' spread, and rollouts per useful group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp, lgamma
from pathlib import Path
from typing import Literal

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.stats.advantages import dead_share, expected_spread

SIZES = (2, 4, 8, 16, 32, 64)
#: A doubling that revives less than this share of the groups is not worth twice the rollouts per prompt.
WORTH = 0.1
MOSTLY_DEAD = 0.5  # share of dead groups from which no group size helps
EXAMPLE = '{"prompt": "2+2?", "correct": 1}'


@dataclass(frozen=True)
class Group:
    """One group size. A dead group, all right or all wrong, has advantage 0: its rollouts give no gradient."""

    size: int
    dead: float  # share of groups in which all rewards are equal
    spread: float  # expected population standard deviation of the rewards in a group
    how: Literal["known", "counted", "extrapolated"]

    @property
    def live(self) -> float:
        return 1.0 - self.dead

    @property
    def cost(self) -> float:
        """Rollouts for one group that is not dead."""
        return math.inf if self.live <= 0.0 else self.size / self.live

    @property
    def noise(self) -> float:
        """Variance that the group's own mean, as a baseline, adds to the gradient: 1 / (G - 1)."""
        return 1.0 / (self.size - 1)


@dataclass(frozen=True)
class Groups:
    """Group sizes side by side, with the recommended one and the reason.

    >>> groups = at_rate(0.5)
    >>> groups.size, round(groups.of(8).dead, 4), round(groups.of(8).spread, 3)
    (8, 0.0078, 0.464)
    """

    rate: float  # mean pass rate
    prompts: int  # 0: the rate was given, the same for every prompt
    never: int  # prompts with no right sample
    always: int  # prompts with no wrong sample
    samples: int  # per prompt, the fewest
    rows: tuple[Group, ...]

    def of(self, size: int) -> Group:
        return next(row for row in self.rows if row.size == size)

    @property
    def size(self) -> int | None:
        """The smallest size whose doubling revives less than a tenth of the groups; None if most stay dead anyway."""
        for row in self.rows:
            double = self._double(row.size)
            if double is not None and row.dead - double.dead < WORTH and row.dead < MOSTLY_DEAD:
                return row.size
        return None if self._mostly_dead else self.rows[-1].size

    def _double(self, size: int) -> Group | None:
        return next((row for row in self.rows if row.size == 2 * size), None)

    @property
    def _mostly_dead(self) -> bool:
        return all(row.dead >= MOSTLY_DEAD for row in self.rows)

    @property
    def why(self) -> str:
        last = self.rows[-1]
        if self.size is None:
            side = "hard" if self.rate < 0.5 else "easy"
            return (
                f"no group size helps: even {last.size} leaves {last.dead:.0%} of the groups dead, the prompts are too "
                f"{side}. Filter them by pass rate, or sample until rewards in a group differ (dynamic sampling, arXiv "
                "2503.14476)."
            )
        row = self.of(self.size)
        double = self._double(row.size)
        if double is None:
            return f"the largest looked at: {row.dead:.1%} of its groups are dead, and a doubling still revives many."
        return (
            f"{row.dead:.1%} of its groups are dead; {double.size} would revive {row.dead - double.dead:.1%} more for "
            "twice the rollouts per prompt."
        )


def at_rate(rate: float, sizes: Sequence[int] = SIZES) -> Groups:
    """For prompts that all pass at this rate. Raises `ValueError` outside [0, 1]."""
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"a pass rate is between 0 and 1, not {rate}")
    rows = tuple(Group(size, dead_share(rate, size), expected_spread(rate, size), "known") for size in sizes)
    return Groups(rate, 0, 0, 0, 0, rows)


def from_counts(right: Sequence[int], tried: Sequence[int], sizes: Sequence[int] = SIZES) -> Groups:
    """For prompts of which `right` of `tried` samples passed.

    Up to the fewest samples of a prompt a size is *counted*: the share of all subsets of that size that are dead, which
    is unbiased, where p^G + (1 - p)^G with an estimated p is not. Above it is *extrapolated* by a Beta distribution of
    pass rates with the same mean and agreement between samples of a prompt.

    >>> groups = from_counts([0, 4, 8], [8, 8, 8], sizes=(2, 16))
    >>> round(groups.of(2).dead, 3), groups.of(2).how, groups.of(16).how
    (0.81, 'counted', 'extrapolated')
    """
    if not right or len(right) != len(tried) or any(not 0 <= k <= n for k, n in zip(right, tried, strict=True)):
        raise ValueError("every prompt needs a count of right samples between 0 and its samples")
    counts = [(k, n) for k, n in zip(right, tried, strict=True) if n >= 2]
    if not counts:
        raise ValueError("no prompt has two samples: a pass rate per prompt cannot be seen")
    fewest = min(n for _, n in counts)
    shape = _fit_beta(counts)
    rows = []
    for size in sizes:
        counted = size <= fewest
        laws = [_subset_chances(k, n, size) for k, n in counts] if counted else [_beta_binomial(*shape, size)]
        dead = sum(law[0] + law[-1] for law in laws) / len(laws)
        spread = sum(_mean_spread(law) for law in laws) / len(laws)
        rows.append(Group(size, dead, spread, "counted" if counted else "extrapolated"))
    rate = sum(k / n for k, n in counts) / len(counts)
    never, always = sum(k == 0 for k, _ in counts), sum(k == n for k, n in counts)
    return Groups(rate, len(counts), never, always, fewest, tuple(rows))


def from_file(path: Path, group: str = "prompt", correct: str = "correct", sizes: Sequence[int] = SIZES) -> Groups:
    """From samples, one row each, right or wrong. Raises `AttachError` with the fix."""
    counts: dict[str, list[int]] = {}
    for number, row in enumerate(read_rows(path, EXAMPLE), 1):
        if group not in row or correct not in row:
            missing = group if group not in row else correct
            raise AttachError(f"{path}: row {number} has no {missing}; name the columns, of {', '.join(sorted(row))}")
        value = _parse_correct(row[correct])
        if value is None:
            continue
        counts.setdefault(str(row[group]), []).append(value)
        if value not in (0, 1):
            raise AttachError(f"{path}: row {number} has {correct} {row[correct]!r}; a dead share needs right or wrong")
    try:
        return from_counts([sum(each) for each in counts.values()], [len(each) for each in counts.values()], sizes)
    except ValueError as error:
        raise AttachError(f"{path}: {error}; give several samples of each prompt") from error


def _parse_correct(value: object) -> int | None:
    """A cell of the `correct` column: 0, 1, None if empty, and -1 for anything else."""
    labels = {"true": 1, "1": 1, "1.0": 1, "false": 0, "0": 0, "0.0": 0, "": None, "none": None, "nan": None}
    return labels.get(str(value).strip().lower(), -1)


def _subset_chances(right: int, tried: int, size: int) -> list[float]:
    """Chance of each number of right answers among `size` of the samples, drawn without replacement."""
    whole = comb(tried, size)
    return [comb(right, ones) * comb(tried - right, size - ones) / whole for ones in range(size + 1)]


def _mean_spread(law: Sequence[float]) -> float:
    size = len(law) - 1
    return sum(chance * math.sqrt(ones / size * (1.0 - ones / size)) for ones, chance in enumerate(law))


def _fit_beta(counts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Beta distribution of pass rates: its mean, and how far two samples of a prompt agree beyond chance."""
    mean = sum(k / n for k, n in counts) / len(counts)
    both = sum(k * (k - 1) / (n * (n - 1)) for k, n in counts) / len(counts)
    noise = mean * (1.0 - mean)
    if noise <= 0.0:
        return mean, 0.0
    alike = min(max((both - mean * mean) / noise, 1e-6), 1.0 - 1e-6)
    return mean, alike


def _beta_binomial(mean: float, alike: float, size: int) -> list[float]:
    """Beta-binomial chances of each number of right ones."""
    if not 0.0 < mean < 1.0:
        return [1.0 - mean, *([0.0] * (size - 1)), mean]
    whole = 1.0 / alike - 1.0
    a, b = mean * whole, (1.0 - mean) * whole
    top = lgamma(a + b) - lgamma(a) - lgamma(b) - lgamma(a + b + size)
    return [comb(size, ones) * exp(top + lgamma(a + ones) + lgamma(b + size - ones)) for ones in range(size + 1)]
