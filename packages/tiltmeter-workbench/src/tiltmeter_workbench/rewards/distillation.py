"""`distil`: a small student of a slow reward model, fitted to its scores and checked against it.

A student is itself a proxy, and a policy will find where it differs from its teacher. So it is compared on held-out
prompts, and on answers with the edits that a policy would try first.
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
from tiltmeter.gold.guards.reward import texts
from tiltmeter.stats.intervals import student_t_quantile as quantile
from tiltmeter_workbench.rewards.reward_model import RewardModel, preserve_rng

Floats = NDArray[np.float64]
Edit = Callable[[str], str]

NOTE = "tiltmeter-student.json"
BAR = 0.8  # of pairs that the teacher tells apart, the lower end of the interval
TIE = 0.1  # teacher's standard deviations: nearer scores are a tie
GAP = 0.25  # teacher's standard deviations by which the student may like an edit better than its teacher does
LEAST = 8  # prompts on either side


def _pad(text: str) -> str:
    return f"{text} In other words, as you know, and so on." + " And so on, as you know." * (len(text) // 60)


def _repeat(text: str) -> str:
    return f"{text} {text}"


def _add_stock_phrases(text: str) -> str:
    return f"Great question! {text} I hope this helps!"


#: What a policy tries first. Give your own where the answers are not English prose.
EDITS: Mapping[str, Edit] = {"padded": _pad, "repeated": _repeat, "stock phrase": _add_stock_phrases}


@dataclass(frozen=True, slots=True)
class StudentCheck:
    """How well the student agrees with its teacher on one kind of answers.

    `agreement` is the share of pairs (without the teacher's ties) that the student puts in the same order: answers to
    one prompt, or an answer and its edit. Its interval treats prompts as draws (Student's t over the means of prompts),
    so it speaks of prompts like these and of no others. `gap` is what the student adds to an edit beyond its teacher,
    in the teacher's standard deviations: where it is above 0, a policy is paid for the edit by the student alone.

    >>> StudentCheck("held out", 40, 90, 0.97, 0.94, 1.0, 0.9, 0.95).passes(0.8)
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
        return self.missing_reason(bar) == ""

    def missing_reason(self, bar: float) -> str:
        """What is missing; empty if nothing is."""
        if self.name == HELD_OUT and not self.pairs:
            return "no two held-out answers to one prompt were told apart: give several completions to each prompt"
        # If few edits matter to the teacher, only the gap decides.
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
    """A student with its checks: `folder` is a reward model for `tiltmeter.rewards.model`.

    Its scores are standardised: the teacher's, minus `mean` and divided by `std`. `speed_ratio` is the teacher's time
    over the student's for the same texts on this machine. It is `usable` if `why` is empty.

    >>> Student("small", "ab12", (), 0.0, 1.0, 3.5, 0.4, BAR, ("held out: too little",)).usable
    False
    """

    folder: str
    teacher: str
    checks: tuple[StudentCheck, ...]
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
    each prompt, from the policy that is to be trained: nothing is known about other kinds of answers.

    Raises `AttachError` where agreement is not shown to reach `bar`, on held-out answers or on an edit, or where the
    student likes an edit clearly better than its teacher; with `refuse=False` it is saved all the same, and marked.
    The trainer's random numbers are left alone.

    Example:

        teacher = rewards.model("reward-model")
        student = rewards.distil(teacher, prompts, completions, "small-reward-model", layers=4)
    """
    import torch

    rows = _PromptRows.of(prompts, completions)
    learn, keep = rows.split(held_out, seed)
    target = _finite_scores(teacher, rows)
    mean, std = fmean(target[learn].tolist()), float(target[learn].std())
    if not std > 0.0:
        raise AttachError("the teacher gives all these completions the same score: there is nothing to learn")
    small_model = _initial_student(teacher, student, layers)
    with preserve_rng():
        torch.manual_seed(seed)
        _fit(small_model, rows, learn, (target - mean) / std, epochs, rate, batch)
    checks = _checks(teacher, small_model, rows, keep, (mean, std), edits)
    why = tuple(filter(None, (check.missing_reason(bar) for check in checks)))
    if why and refuse:
        raise AttachError(f"the student is not its teacher, and was not saved. {'; '.join(why)}")
    sizes = [sum(value.numel() for value in each.model.parameters()) for each in (small_model, teacher)]
    speed = _speed(teacher, small_model, rows)
    result = Student(
        str(out), str(teacher.identity[0]), checks, mean, std, round(speed, 2), round(sizes[0] / sizes[1], 4), bar, why
    )
    with preserve_rng():
        small_model.model.save_pretrained(out)
        small_model.tokenizer.save_pretrained(out)
    (Path(out) / NOTE).write_text(
        json.dumps(_without_nan({**asdict(result), "folder": Path(out).name}), indent=1) + "\n"
    )
    return result


@dataclass(frozen=True)
class _PromptRows:
    prompts: list[Any]
    completions: list[Any]
    groups: NDArray[np.int64]  # a number for each prompt

    @staticmethod
    def of(prompts: Sequence[Any], completions: Sequence[Any]) -> _PromptRows:
        if len(prompts) != len(completions):
            raise AttachError(f"{len(prompts)} prompts and {len(completions)} completions: give one of each for a row")
        group_ids: dict[str, int] = {}
        groups = [group_ids.setdefault(text, len(group_ids)) for text in texts(prompts)]
        return _PromptRows(list(prompts), list(completions), np.array(groups, np.int64))

    def split(self, held_out: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to learn from and rows to keep, no prompt in both."""
        count = int(self.groups.max(initial=-1)) + 1
        held_count = round(held_out * count)
        if held_count < LEAST or count - held_count < LEAST:
            raise AttachError(
                f"{count} different prompts leave {held_count} to check with; "
                f"at least {LEAST} are needed on either side"
            )
        chosen = np.random.default_rng(seed).permutation(count)[:held_count]
        apart = np.isin(self.groups, chosen)
        return np.flatnonzero(~apart), np.flatnonzero(apart)

    def edit_completions(self, edit: Edit) -> list[Any]:
        return [
            [*answer[:-1], {**answer[-1], "content": edit(texts([answer])[0])}]
            if isinstance(answer, list)
            else edit(answer)
            for answer in self.completions
        ]


def _finite_scores(scorer: RewardModel, rows: _PromptRows, completions: Sequence[Any] | None = None) -> Floats:
    scores = scorer(prompts=rows.prompts, completions=rows.completions if completions is None else completions)
    if any(scorer.infra):
        raise AttachError(f"{scorer.__name__} gave no finite score to {sum(scorer.infra)} completions")
    return np.array(scores, np.float64)


def _initial_student(teacher: RewardModel, student: str | Path | None, layers: int | None) -> RewardModel:
    """The student before training, as a reward model."""
    if student is not None:
        small_model = _with_settings_of(teacher, student)
        small_model.model.requires_grad_(True)
        return small_model
    from transformers import AutoConfig, AutoModelForSequenceClassification

    whole = AutoConfig.from_pretrained(str(teacher.folder), local_files_only=True, trust_remote_code=False)
    inner = whole.get_text_config()
    layer_count = max(1, inner.num_hidden_layers // 4) if layers is None else layers
    if not 0 < layer_count < inner.num_hidden_layers:
        raise AttachError(
            f"the teacher has {inner.num_hidden_layers} layers: a student of it has fewer, not {layer_count}"
        )
    inner.num_hidden_layers = layer_count
    if inner.to_dict().get("layer_types"):
        inner.layer_types = inner.layer_types[:layer_count]
    with preserve_rng():
        small = AutoModelForSequenceClassification.from_pretrained(
            str(teacher.folder), config=whole, use_safetensors=True, local_files_only=True, dtype="float32"
        )
    small.config.get_text_config().pad_token_id = teacher.tokenizer.pad_token_id
    small_model = _with_settings_of(teacher, teacher.folder)
    small_model.use_model(small.to(teacher.device), teacher.tokenizer)
    return small_model


def _with_settings_of(teacher: RewardModel, folder: str | Path) -> RewardModel:
    """A reward model in another folder with the teacher's text settings."""
    settings = (teacher.batch, teacher.max_length, "student", teacher.between, teacher.ending, teacher.device)
    return RewardModel(folder, *settings)


def _fit(
    small_model: RewardModel,
    rows: _PromptRows,
    learn: NDArray[np.int64],
    targets: Floats,
    epochs: int,
    rate: float,
    batch: int,
) -> None:
    """Least squares by AdamW, with a rate that falls to 0."""
    import torch

    formatted = small_model.format_texts(rows.prompts, rows.completions)
    model = small_model.model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    total = max(1, epochs * math.ceil(len(learn) / batch))
    plan = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda at: 1.0 - at / total)
    for _ in range(epochs):
        order = learn[torch.randperm(len(learn)).numpy()]
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            tokens, _cut = small_model.tokenize([formatted[row] for row in chosen])
            inputs = {name: tokens[name].to(small_model.device) for name in ("input_ids", "attention_mask")}
            outputs = model(**inputs).logits[:, 0]
            loss = torch.square(
                outputs - torch.tensor(targets[chosen], dtype=outputs.dtype, device=outputs.device)
            ).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            plan.step()
            optimiser.zero_grad()
    model.eval().requires_grad_(False)


def _checks(
    teacher: RewardModel,
    small_model: RewardModel,
    rows: _PromptRows,
    keep: NDArray[np.int64],
    scale: tuple[float, float],
    edits: Mapping[str, Edit],
) -> tuple[StudentCheck, ...]:
    held_rows = _PromptRows([rows.prompts[at] for at in keep], [rows.completions[at] for at in keep], rows.groups[keep])
    mean, std = scale
    targets, scores = (_finite_scores(teacher, held_rows) - mean) / std, _finite_scores(small_model, held_rows)
    checks = [_check(HELD_OUT, held_rows.groups, *_pairs(targets, scores, held_rows.groups), targets, scores)]
    for name, edit in edits.items():
        other = held_rows.edit_completions(edit)
        edited_targets, edited_scores = (
            (_finite_scores(teacher, held_rows, other) - mean) / std,
            _finite_scores(small_model, held_rows, other),
        )
        target_change, score_change = edited_targets - targets, edited_scores - scores
        clear = np.abs(target_change) >= TIE
        right = (np.sign(target_change) == np.sign(score_change)).astype(np.float64)
        checks.append(
            _check(
                name,
                held_rows.groups,
                right[clear],
                held_rows.groups[clear],
                edited_targets,
                edited_scores,
                gaps=score_change - target_change,
            )
        )
    return tuple(checks)


def _pairs(targets: Floats, scores: Floats, groups: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """For pairs of answers to one prompt that the teacher does not tie: whether the student agrees, and the prompt."""
    one, other = np.triu_indices(len(targets), 1)
    apart = (groups[one] == groups[other]) & (np.abs(targets[one] - targets[other]) >= TIE)
    one, other = one[apart], other[apart]
    right = np.sign(targets[one] - targets[other]) == np.sign(scores[one] - scores[other])
    return right.astype(np.float64), groups[one]


def _check(
    name: str,
    groups: NDArray[np.int64],
    right: Floats,
    owners: NDArray[np.int64],
    targets: Floats,
    scores: Floats,
    gaps: Floats | None = None,
) -> StudentCheck:
    agreement, low, high = _interval(right, owners)
    error = float(np.square(targets - scores).mean())
    variance = float(targets.var())
    r2 = 1.0 - error / variance if variance > 0.0 else math.nan
    gap = (math.nan, math.nan, math.nan) if gaps is None else _interval(gaps, groups)
    bounded = (max(low, 0.0), min(high, 1.0))  # NaN stays NaN: it compares as neither
    return StudentCheck(
        name, len(set(groups.tolist())), len(right), agreement, *bounded, r2, _spearman(targets, scores), *gap
    )


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


def _speed(teacher: RewardModel, small_model: RewardModel, rows: _PromptRows, tries: int = 3) -> float:
    """The teacher's seconds over the student's, for the same texts; the median of a few turns each."""
    some = _PromptRows(rows.prompts[:256], rows.completions[:256], rows.groups[:256])
    spent: dict[str, list[float]] = {"teacher": [], "student": []}
    for _ in range(tries):
        for name, scorer in (("teacher", teacher), ("student", small_model)):
            begun = time.perf_counter()
            _finite_scores(scorer, some)
            spent[name].append(time.perf_counter() - begun)
    return median(spent["teacher"]) / max(median(spent["student"]), 1e-9)


def _without_nan(value: Any) -> Any:
    """For JSON, which has no NaN."""
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
