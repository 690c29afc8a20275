"""`tiltmeter gold`: from a dataset to a check that is known to measure what is meant."""

from __future__ import annotations

import json as json_module
import math
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.options import Json, Seed
from tiltmeter.errors import AttachError
from tiltmeter.gold.try_gold import try_gold
from tiltmeter.monitor.parts import load_gold
from tiltmeter.safety.safe_text import log_line, visible
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.gold_check.beside_reward import CheckTrial, TextKind, try_check
from tiltmeter_workbench.gold_check.drafts import KINDS, draft_check
from tiltmeter_workbench.gold_check.label_page import render_pairs, saved_answers
from tiltmeter_workbench.gold_check.person_labels import (
    PAIRS,
    Choice,
    PersonAgreement,
    ScoredPair,
    choose_pairs,
    label_pairs,
)
from tiltmeter_workbench.probe.reward_target import open_target

EXAMPLE = '{"prompt": "What is 17 + 25?", "answer": "42"}'
LONGEST_SHOWN = 2000  # characters of an answer

Dataset = Annotated[Path, typer.Argument(help="Rows: JSON lines, JSON, CSV or Parquet.", metavar="DATASET")]
Check = Annotated[str, typer.Argument(help="file.py:function, judge.toml, answers or tests.", metavar="CHECK")]
Rollouts = Annotated[Path, typer.Argument(help="Rows with prompt and completion, several a prompt.", metavar="ROWS")]
Reward = Annotated[str | None, typer.Option(help="Your reward: file.py:function, a model's folder.", metavar="REWARD")]
Kind = Annotated[str, typer.Option(help=f"{', '.join(KINDS)}; by the dataset if left out.", metavar="KIND")]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write it.", metavar="FILE")]
Pairs = Annotated[int, typer.Option(help="How many pairs to ask about.", metavar="N", min=1)]
Page = Annotated[Path | None, typer.Option("--html", help="Write the pairs as a page instead.", metavar="FILE")]
Labels = Annotated[Path | None, typer.Option(help="What that page saved, instead of asking.", metavar="FILE")]


def draft(dataset: Dataset, kind: Kind = "", reward: Reward = None, out: Out = None) -> None:
    """Draft a check from what the dataset holds: mathematics, tests of code, a strict format, or a judge by a rubric.

    Example: tiltmeter gold draft train.jsonl --reward rewards.py:right

    It is a file to read and change. With --reward it is then tried beside your reward, as `tiltmeter gold try` does.
    Exit code: 0 it was written, 2 it could not be.
    """
    rows = read_rows(dataset, EXAMPLE)
    result = draft_check(rows, dataset.name, kind)
    path = out or Path(result.file)
    if path.exists():
        raise AttachError(f"{path} exists: give --out FILE, so that a check that is in use does not change")
    path.write_text(result.text.replace(f"{result.file}:score", f"{path.name}:score"), "utf-8")
    console = _console()
    console.print(visible(f"{path}: a draft of kind {result.kind}, because {result.why}"))
    if path.suffix == ".toml":
        console.print(visible(f"Fill in your server and its model, then: tiltmeter gold try {path} {dataset}"))
    elif reward is not None:
        _print_trial(console, _trial(f"{path}:score", rows, reward))


def try_check_verb(check: Check, dataset: Dataset, reward: Reward = None, json: Json = False) -> None:
    """Try a check on texts made of the dataset's answers: what it scores, what it costs, where your reward differs.

    Example: tiltmeter gold try checks.py:score train.jsonl --reward rewards.py:right

    Exit code: 0 it tells a row's own answer from the other texts, 1 it does not, 2 it gave no labels.
    """
    trial = _trial(check, read_rows(dataset, EXAMPLE), reward)
    if json:
        typer.echo(json_module.dumps(_as_json(trial), allow_nan=False))
    else:
        _print_trial(_console(), trial)
    raise typer.Exit(_exit_code(trial))


def label(
    check: Check,
    rollouts: Rollouts,
    pairs: Pairs = PAIRS,
    seed: Seed = 0,
    out: Out = None,
    html: Page = None,
    labels: Labels = None,
) -> None:
    """Say yourself which of two answers is better, blind, and see how often the check prefers the same.

    Example: tiltmeter gold label checks.py:score rollouts.jsonl --out my-labels.jsonl

    Without a terminal: --html pairs.html writes a page that needs no network; what it saves is given back as --labels.

    Exit code: 0 it agrees with you more often than a coin would, 1 it does not, 2 too few pairs to say.
    """
    console = _console()
    source = load_gold(check)
    chosen = choose_pairs(source, read_rows(rollouts, '{"prompt": "2 + 2?", "completion": "4"}'), pairs, seed)
    if html is not None:
        html.write_text(render_pairs(chosen), "utf-8")
        console.print(visible(f"{html}: {len(chosen)} pairs. Then the same with --labels labels.jsonl for --html"))
        return
    if labels is not None:
        _finish(console, source.name, label_pairs(chosen, saved_answers(read_rows(labels), chosen), out))
    console.print(f"{len(chosen)} pairs. a or b: the better answer; t: as good as each other; s: skip; q: stop here.")

    def ask(pair: ScoredPair, number: int, count: int) -> Choice | None:
        console.rule(f"{number} of {count}")
        for head, text in (("", pair.prompt), ("A  ", pair.first), ("B  ", pair.second)):
            console.print(Text(f"{head}{visible(text[:LONGEST_SHOWN])}\n"))
        choices: dict[str, Choice | None] = {"a": "first", "b": "second", "t": "tie", "s": "skip", "q": None}
        while True:
            answer = typer.prompt("a, b, t, s or q", prompt_suffix=": ").strip().lower()[:1]
            if answer in choices:
                return choices[answer]

    _finish(console, source.name, label_pairs(chosen, ask, out))


def _finish(console: Console, name: str, agreement: PersonAgreement) -> NoReturn:
    console.print(describe_agreement(name, agreement))
    raise typer.Exit(agreement.exit_code)


def describe_agreement(name: str, result: PersonAgreement) -> str:
    """In two lines."""
    if not result.decided:
        return "No pair was decided, so nothing is known of the check."
    low, high = result.interval
    rest = f"; {result.ties} ties and {result.skips} skipped are left out" if result.ties or result.skips else ""
    meaning = {
        0: "It prefers what you prefer, more often than a coin would.",
        1: "It does not prefer what you prefer: change it before it judges a run.",
        2: "Too few to say: label more pairs.",
    }[result.exit_code]
    return (
        f"{visible(name)} prefers what you prefer in {result.agreed} of {result.decided} pairs, {result.share:.0%} "
        f"[{low:.0%}, {high:.0%}] (exact, 95 %){rest}.\n{meaning}"
    )


def _trial(check: str, rows: list[dict[str, Any]], reward: str | None) -> CheckTrial:
    source = load_gold(check)
    try_gold(source, rows)  # raises with the fix for what can never work
    return try_check(source, rows, None if reward is None else open_target(reward))


def _exit_code(trial: CheckTrial) -> int:
    own, *others = trial.kinds
    if all(not math.isfinite(value) for kind in trial.kinds for value in kind.check):
        return 2
    return 0 if all(_mean(own.check) > _mean(other.check) for other in others) else 1


def _print_trial(console: Console, trial: CheckTrial) -> None:
    has_reward = any(kind.reward for kind in trial.kinds)
    table = Table(box=None, pad_edge=False)
    for head in ("text", "check", *(["reward"] if has_reward else []), "without a label"):
        table.add_column(head)
    for kind in trial.kinds:
        table.add_row(*_cells(kind, has_reward))
    console.print(table)
    console.print(f"A label takes {1e3 * trial.seconds:.2g} ms.")
    if has_reward:
        same, both = trial.same
        console.print(f"Check and reward are on the same side of one half in {same} of {both} texts.")
    if _exit_code(trial) == 1:
        console.print("It does not score a row's own answer above all other texts: too lenient, or of another form?")


def _cells(kind: TextKind, has_reward: bool) -> list[str]:
    missing = [value for value in kind.check if not math.isfinite(value)]
    why = f"{len(missing)} of {len(kind.check)}: {log_line(kind.why, 80)}" if missing else ""
    return [visible(kind.what), _shown(kind.check), *([_shown(kind.reward)] if has_reward else []), why]


def _mean(values: tuple[float, ...]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else -math.inf


def _shown(values: tuple[float, ...]) -> str:
    mean = _mean(values)
    return f"{mean:.2f}" if math.isfinite(mean) else "none"


def _as_json(trial: CheckTrial) -> dict[str, Any]:
    def plain(values: tuple[float, ...]) -> list[float | None]:
        return [value if math.isfinite(value) else None for value in values]

    kinds = [{"text": k.what, "check": plain(k.check), "reward": plain(k.reward), "why": k.why} for k in trial.kinds]
    return {"check": trial.name, "seconds_a_label": trial.seconds, "texts": kinds, "same_side": list(trial.same)}


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True)
