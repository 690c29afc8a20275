"""`tiltmeter probe`: attack a reward before a policy does."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import Html, Json, Seed, write_report
from tiltmeter.cli.terminal.progress import progress
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.common.table_files import write_rows
from tiltmeter_workbench.probe.best_of_n import ranking, read_samples
from tiltmeter_workbench.probe.counterfactual_pairs import make_counterfactual_pairs
from tiltmeter_workbench.probe.pairs import ProbeItem, bundled_items, read_pairs, read_prompts, with_columns
from tiltmeter_workbench.probe.reward_target import open_target
from tiltmeter_workbench.probe.scorecard import Scorecard, examine_reward
from tiltmeter_workbench.probe.scorecard_report import as_report
from tiltmeter_workbench.probe.scorecard_text import as_json
from tiltmeter_workbench.probe.search import BUDGET
from tiltmeter_workbench.terminal.check_report import print_report
from tiltmeter_workbench.terminal.verifier_audit import audit_reward

SEARCHES = ("auto", "none", "asked", "gradient")

Reward = Annotated[
    str, typer.Argument(help="A reward model's folder, file.py:function, or a judge's file.toml.", metavar="REWARD")
]
Pairs = Annotated[Path | None, typer.Option(help="Your pairs: prompt, chosen, rejected.", metavar="FILE")]
Prompts = Annotated[Path | None, typer.Option(help="Your prompts, each with an answer.", metavar="FILE")]
Samples = Annotated[Path | None, typer.Option(help="Samples that were scored and checked.", metavar="FILE")]
Group = Annotated[str, typer.Option(help="Column of --samples that tells the prompts apart.", metavar="NAME")]
Score = Annotated[str, typer.Option(help="Column of --samples with the score.", metavar="NAME")]
Correct = Annotated[str, typer.Option(help="Column of --samples that says how right it is, 0 to 1.", metavar="NAME")]
Tasks = Annotated[Path | None, typer.Option(help="Tasks for a verifier, to forge answers to.", metavar="FILE")]
Run = Annotated[Path | None, typer.Option(help="With --tasks: a run to add the audit to.", metavar="RUN")]
Most = Annotated[
    int | None, typer.Option("--most", help="Prompts to try attacks on; 200, of a judge 24.", metavar="N", min=1)
]
Search = Annotated[str, typer.Option(help="auto, none, asked or gradient.", metavar="HOW")]
Budget = Annotated[int, typer.Option(help="Texts that a search may score.", metavar="N", min=1)]
Ending = Annotated[str | None, typer.Option(help="What a model reads after a plain text.", metavar="TEXT")]
Write = Annotated[Path | None, typer.Option(help="Write pairs to retrain on.", metavar="FILE")]
Training = Annotated[Path | None, typer.Option(help="Pairs that --write-pairs balances.", metavar="FILE")]


def probe(
    reward: Reward,
    pairs: Pairs = None,
    prompts: Prompts = None,
    samples: Samples = None,
    group_column: Group = "prompt",
    score_column: Score = "score",
    correct_column: Correct = "correct",
    tasks: Tasks = None,
    run: Run = None,
    most: Most = None,
    search: Search = "auto",
    budget: Budget = BUDGET,
    ending: Ending = None,
    write_pairs: Write = None,
    training: Training = None,
    seed: Seed = 0,
    html: Html = None,
    json: Json = False,
) -> None:
    """Stress-test a reward: what it pays for beside quality, with intervals, and what to do about it.

    Example: tiltmeter probe my_reward_model --pairs held_out.jsonl --html scorecard.html

    Without --pairs or --prompts it uses 45 questions of its own. A reward function that needs columns of your dataset
    gets them from the file, by name; `answer` also from the 45 questions. A function runs in this process: it is your
    code.
    Exit code: 0 nothing is paid, 1 something is, 2 could not judge.
    """
    if search not in SEARCHES:
        raise typer.BadParameter(f"choose one of {', '.join(SEARCHES)}", param_hint="--search")
    if pairs is not None and prompts is not None:
        raise typer.BadParameter("give --pairs or --prompts, not both")
    code = 0
    audited = tasks is not None
    if tasks is not None:
        beside = html.with_stem(f"{html.stem}-tasks") if html is not None and (pairs or prompts) else html
        code = audit_reward(reward, tasks, json=json, html=beside, run=run)
    if not audited or pairs is not None or prompts is not None:
        ranked = None
        if samples is not None:
            ranked = ranking(read_samples(samples, group_column, score_column, correct_column))
        items, source = _items(pairs, prompts)
        target = open_target(reward, ending=ending)
        items = with_columns(items, target.needs, source) if target.needs else items
        with progress() as report_progress:
            card = examine_reward(
                target, items, source, limit=most, searching=search, budget=budget, seed=seed, ranked=ranked,
                progress=report_progress,
            )  # fmt: skip
        _write_outputs(card, items if training is None else read_pairs(training), write_pairs, html)
        if json:
            sys.stdout.write(json_module.dumps(as_json(card), allow_nan=False) + "\n")
        else:
            print_report(as_report(card))
        code = worst(code, card.exit_code)
    raise typer.Exit(code)


def worst(first: int, second: int) -> int:
    """Of two exit codes: paid before could not judge before fine."""
    return 1 if 1 in (first, second) else max(first, second)


def _items(pairs: Path | None, prompts: Path | None) -> tuple[list[ProbeItem], str]:
    if pairs is not None:
        return read_pairs(pairs), pairs.name
    if prompts is not None:
        return read_prompts(prompts), prompts.name
    return bundled_items(), "this package"


def _write_outputs(card: Scorecard, items: list[ProbeItem], pairs: Path | None, html: Path | None) -> None:
    if pairs is not None:
        new_pairs = make_counterfactual_pairs(card.effects, items, card.seed)
        if not any(item.wrong is not None for item in items):
            raise typer.BadParameter(
                "pairs can only be made of pairs: give --pairs or --training", param_hint="--write-pairs"
            )
        write_rows(pairs, new_pairs)
        sys.stderr.write(f"{pairs}: {len(new_pairs)} pairs to add to {len(items)}\n")
    if html is not None:
        write_report(render_html(as_report(card)), html, "probe.html", "--html")
