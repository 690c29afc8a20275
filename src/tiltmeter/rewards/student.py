"""A small student of a reward model, for where the teacher is too slow: fitted to its scores, and checked against it.

A student is itself a proxy, and a policy will find where it departs from its teacher. So it is compared on prompts it
was not fitted to, and on answers edited in the ways a policy would try first.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter.rewards import texts
from tiltmeter.rewards.model import RewardModel, untouched
from tiltmeter.stats.intervals import student as quantile

Floats = NDArray[np.float64]
Edit = Callable[[str], str]

NOTE = "tiltmeter-student.json"
BAR = 0.8  # of pairs that the teacher tells apart, the lower end of the interval
TIE = 0.1  # teacher's standard deviations: nearer scores are not told apart
GAP = 0.25  # teacher's standard deviations by which the student may like an edit better than its teacher does
LEAST = 8  # prompts on either side


def _padded(text: str) -> str:
    return f"{text} In other words, as you know, and so on." + " And so on, as you know." * (len(text) // 60)


def _repeated(text: str) -> str:
    return f"{text} {text}"


def _stock(text: str) -> str:
    return f"Great question! {text} I hope this helps!"


#: What a policy tries first. Give your own where the answers are not English prose.
EDITS: Mapping[str, Edit] = {"padded": _padded, "repeated": _repeated, "stock phrase": _stock}


@dataclass(frozen=True, slots=True)
class Check:
    """How far the student is its teacher, on one kind of answers.

    `agreement` is the share of pairs, told apart by the teacher, that the student puts in the same order: answers to
    one prompt, or an answer and its edit. Its interval treats prompts as draws (Student's t over the means of prompts),
    so it speaks of prompts like these and of no others. `gap` is what the student adds to an edit beyond its teacher,
    in the teacher's standard deviations: where it is above 0, a policy is paid for the edit by the student alone.

    >>> Check("held out", 40, 90, 0.97, 0.94, 1.0, 0.9, 0.95).passes(0.8)
    True
    """

    name: str
    prompts: int
    pairs: int
    agreement: float
    low: float
    high: float
    r2: float
    spearman: float
    gap: float = math.nan
    gap_low: float = math.nan
    gap_high: float = math.nan

    def passes(self, bar: float) -> bool:
        return self.wanting(bar) == ""

    def wanting(self, bar: float) -> str:
        """What is missing; empty if nothing is."""
        if self.name == HELD_OUT and not self.pairs:
            return "no two held-out answers to one prompt were told apart: give several completions to each prompt"
        # Few edits may matter to the teacher: then only the gap can tell.
        if self.pairs and not self.low >= bar:
            return (
                f"{self.name}: agreement {self.agreement:.2f}, and no more than {self.low:.2f} is shown; {bar} is asked"
            )
        if self.gap_low > GAP:
            return f"{self.name}: liked better than the teacher likes it, by {self.gap:.2f} standard deviations"
        return ""


HELD_OUT = "held out"


@dataclass(frozen=True, slots=True)
class Student:
    """A student with what is known of it: `folder` is a reward model for `tiltmeter.rewards.model`.

    It speaks standard scores: its teacher's, less `mean` and divided by `std`. `speed_ratio` is the teacher's time over
    the student's for the same texts on this machine. With a `why` it is not `usable`.

    >>> Student("small", "ab12", (), 0.0, 1.0, 3.5, 0.4, BAR, ("held out: too little",)).usable
    False
    """

    folder: str
    teacher: str
    checks: tuple[Check, ...]
    mean: float
    std: float
    speed_ratio: float
    size_ratio: float  # the student's parameters over the teacher's
    bar: float
    why: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        return not self.why


def distil(
    teacher: RewardModel,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    out: str | Path,
    *,
    student: str | Path | None = None,
    layers: int | None = None,
    edits: Mapping[str, Edit] = EDITS,
    held_out: float = 0.25,
    epochs: int = 4,
    rate: float = 1e-4,
    batch: int = 16,
    seed: int = 0,
    bar: float = BAR,
    refuse: bool = True,
) -> Student:
    """Fit a student to the teacher's scores of these completions, check it, and save it in `out`.

    The student is the folder `student` (a reward model of any family and size, whose tokenizer is kept), or the teacher
    with its first `layers` layers only, a quarter of them unless said otherwise. It is fitted by least squares to the
    teacher's standardised scores, on some prompts; the others (`held_out` of them) decide. Give several completions to
    each prompt, from the policy that is to be trained: what neither saw is not vouched for.

    Raises `AttachError` where agreement is not shown to reach `bar`, on held-out answers or on an edit, or where the
    student likes an edit clearly better than its teacher; with `refuse=False` it is saved all the same, and marked.
    The trainer's random numbers are left alone.
    """
    import torch

    rows = _Rows.of(prompts, completions)
    learn, keep = rows.split(held_out, seed)
    target = _known(teacher, rows)
    mean, std = fmean(target[learn].tolist()), float(target[learn].std())
    if not std > 0.0:
        raise AttachError("the teacher gives all these completions the same score: there is nothing to learn")
    made = _start(teacher, student, layers)
    with untouched():
        torch.manual_seed(seed)
        _fit(made, rows, learn, (target - mean) / std, epochs, rate, batch)
    checks = _checks(teacher, made, rows, keep, (mean, std), edits)
    why = tuple(filter(None, (check.wanting(bar) for check in checks)))
    if why and refuse:
        raise AttachError(f"the student is not its teacher, and was not saved. {'; '.join(why)}")
    sizes = [sum(value.numel() for value in each.model.parameters()) for each in (made, teacher)]
    speed = _speed(teacher, made, rows)
    found = Student(
        str(out), str(teacher.identity[0]), checks, mean, std, round(speed, 2), round(sizes[0] / sizes[1], 4), bar, why
    )
    with untouched():
        made.model.save_pretrained(out)
        made.tokenizer.save_pretrained(out)
    (Path(out) / NOTE).write_text(json.dumps(_plain({**asdict(found), "folder": Path(out).name}), indent=1) + "\n")
    return found


@dataclass(frozen=True)
class _Rows:
    prompts: list[Any]
    completions: list[Any]
    groups: NDArray[np.int64]  # a number for each prompt

    @staticmethod
    def of(prompts: Sequence[Any], completions: Sequence[Any]) -> _Rows:
        if len(prompts) != len(completions):
            raise AttachError(f"{len(prompts)} prompts and {len(completions)} completions: give one of each for a row")
        seen: dict[str, int] = {}
        groups = [seen.setdefault(text, len(seen)) for text in texts(prompts)]
        return _Rows(list(prompts), list(completions), np.array(groups, np.int64))

    def split(self, held_out: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to learn from and rows to keep, no prompt in both."""
        count = int(self.groups.max(initial=-1)) + 1
        kept = round(held_out * count)
        if kept < LEAST or count - kept < LEAST:
            raise AttachError(
                f"{count} different prompts leave {kept} to check with; at least {LEAST} are needed on either side"
            )
        chosen = np.random.default_rng(seed).permutation(count)[:kept]
        apart = np.isin(self.groups, chosen)
        return np.flatnonzero(~apart), np.flatnonzero(apart)

    def edited(self, edit: Edit) -> list[Any]:
        return [
            [*answer[:-1], {**answer[-1], "content": edit(texts([answer])[0])}]
            if isinstance(answer, list)
            else edit(answer)
            for answer in self.completions
        ]


def _known(judge: RewardModel, rows: _Rows, completions: Sequence[Any] | None = None) -> Floats:
    told = judge(prompts=rows.prompts, completions=rows.completions if completions is None else completions)
    if any(judge.infra):
        raise AttachError(f"{judge.__name__} gave no finite score to {sum(judge.infra)} completions")
    return np.array(told, np.float64)


def _start(teacher: RewardModel, student: str | Path | None, layers: int | None) -> RewardModel:
    """The student before it has learnt anything, as a reward model of its own."""
    if student is not None:
        made = _like(teacher, student)
        made.model.requires_grad_(True)
        return made
    from transformers import AutoConfig, AutoModelForSequenceClassification

    whole = AutoConfig.from_pretrained(str(teacher.folder), local_files_only=True, trust_remote_code=False)
    inner = whole.get_text_config()
    wanted = max(1, inner.num_hidden_layers // 4) if layers is None else layers
    if not 0 < wanted < inner.num_hidden_layers:
        raise AttachError(f"the teacher has {inner.num_hidden_layers} layers: a student of it has fewer, not {wanted}")
    inner.num_hidden_layers = wanted
    if inner.to_dict().get("layer_types"):
        inner.layer_types = inner.layer_types[:wanted]
    with untouched():
        small = AutoModelForSequenceClassification.from_pretrained(
            str(teacher.folder), config=whole, use_safetensors=True, local_files_only=True, dtype="float32"
        )
    small.config.get_text_config().pad_token_id = teacher.tokenizer.pad_token_id
    made = _like(teacher, teacher.folder)
    made.give(small.to(teacher.device), teacher.tokenizer)
    return made


def _like(teacher: RewardModel, folder: str | Path) -> RewardModel:
    """A reward that reads as the teacher does."""
    read = (teacher.batch, teacher.max_length, "student", teacher.between, teacher.ending, teacher.device)
    return RewardModel(folder, *read)


def _fit(
    made: RewardModel, rows: _Rows, learn: NDArray[np.int64], wanted: Floats, epochs: int, rate: float, batch: int
) -> None:
    """Least squares by AdamW, with a rate that falls to 0."""
    import torch

    written = made.written(rows.prompts, rows.completions)
    model = made.model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    total = max(1, epochs * math.ceil(len(learn) / batch))
    plan = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda at: 1.0 - at / total)
    for _ in range(epochs):
        order = learn[torch.randperm(len(learn)).numpy()]
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            tokens, _cut = made.encoded([written[row] for row in chosen])
            given = {name: tokens[name].to(made.device) for name in ("input_ids", "attention_mask")}
            told = model(**given).logits[:, 0]
            loss = torch.square(told - torch.tensor(wanted[chosen], dtype=told.dtype, device=told.device)).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            plan.step()
            optimiser.zero_grad()
    model.eval().requires_grad_(False)


def _checks(
    teacher: RewardModel,
    made: RewardModel,
    rows: _Rows,
    keep: NDArray[np.int64],
    scale: tuple[float, float],
    edits: Mapping[str, Edit],
) -> tuple[Check, ...]:
    held = _Rows([rows.prompts[at] for at in keep], [rows.completions[at] for at in keep], rows.groups[keep])
    mean, std = scale
    wanted, said = (_known(teacher, held) - mean) / std, _known(made, held)
    found = [_check(HELD_OUT, held.groups, *_pairs(wanted, said, held.groups), wanted, said)]
    for name, edit in edits.items():
        other = held.edited(edit)
        wanted_then, said_then = (_known(teacher, held, other) - mean) / std, _known(made, held, other)
        moved, told = wanted_then - wanted, said_then - said
        clear = np.abs(moved) >= TIE
        right = (np.sign(moved) == np.sign(told)).astype(np.float64)
        found.append(
            _check(name, held.groups, right[clear], held.groups[clear], wanted_then, said_then, gaps=told - moved)
        )
    return tuple(found)


def _pairs(wanted: Floats, said: Floats, groups: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Of pairs of answers to one prompt that the teacher tells apart: whether the student agrees, and the prompt."""
    one, other = np.triu_indices(len(wanted), 1)
    apart = (groups[one] == groups[other]) & (np.abs(wanted[one] - wanted[other]) >= TIE)
    one, other = one[apart], other[apart]
    right = np.sign(wanted[one] - wanted[other]) == np.sign(said[one] - said[other])
    return right.astype(np.float64), groups[one]


def _check(
    name: str,
    groups: NDArray[np.int64],
    right: Floats,
    owners: NDArray[np.int64],
    wanted: Floats,
    said: Floats,
    gaps: Floats | None = None,
) -> Check:
    agreement, low, high = _interval(right, owners)
    error = float(np.square(wanted - said).mean())
    spread = float(wanted.var())
    r2 = 1.0 - error / spread if spread > 0.0 else math.nan
    gap = (math.nan, math.nan, math.nan) if gaps is None else _interval(gaps, groups)
    bounded = (max(low, 0.0), min(high, 1.0))  # NaN stays NaN: it compares as neither
    return Check(name, len(set(groups.tolist())), len(right), agreement, *bounded, r2, _spearman(wanted, said), *gap)


def _interval(values: Floats, groups: NDArray[np.int64]) -> tuple[float, float, float]:
    """Mean over prompts, with Student's 95 % interval; NaN where there are fewer than two prompts."""
    means = [float(values[groups == group].mean()) for group in np.unique(groups)]
    if len(means) < 2:
        return (means[0] if means else math.nan), math.nan, math.nan
    reach = quantile(len(means) - 1, 0.95) * stdev(means) / math.sqrt(len(means))
    return fmean(means), fmean(means) - reach, fmean(means) + reach


def _spearman(one: Floats, other: Floats) -> float:
    """Correlation of ranks, ties at their middle."""
    ranked = np.array([_ranks(one), _ranks(other)])
    return float(np.corrcoef(ranked)[0, 1]) if (ranked.std(axis=1) > 0.0).all() else math.nan


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[place], np.float64)


def _speed(teacher: RewardModel, made: RewardModel, rows: _Rows, tries: int = 3) -> float:
    """The teacher's seconds over the student's, for the same texts; the median of a few turns each."""
    some = _Rows(rows.prompts[:256], rows.completions[:256], rows.groups[:256])
    spent: dict[str, list[float]] = {"teacher": [], "student": []}
    for _ in range(tries):
        for name, judge in (("teacher", teacher), ("student", made)):
            begun = time.perf_counter()
            _known(judge, some)
            spent[name].append(time.perf_counter() - begun)
    return median(spent["teacher"]) / max(median(spent["student"]), 1e-9)


def _plain(value: Any) -> Any:
    """For JSON, which has no NaN."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
