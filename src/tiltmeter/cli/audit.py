"""`tiltmeter audit`: audit a finished run from its files, those of any trainer or tracker."""

from __future__ import annotations

import json as json_module
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tiltmeter.audit import AuditedRun
from tiltmeter.audit import Progress as AuditProgress
from tiltmeter.audit import audit as audit_runs
from tiltmeter.audit.addresses import fetch_run, is_address
from tiltmeter.audit.dataset_join import open_dataset
from tiltmeter.audit.engine.open_engine import open_engine
from tiltmeter.audit.label_file import SUFFIXES, read_labels
from tiltmeter.audit.readers import BY_NAME, is_trainers_file
from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.guess_columns import guess_file
from tiltmeter.cli.options import Html, Json, Markdown, More, Plain, file_stem, write_report
from tiltmeter.cli.run.report import Most, Redact
from tiltmeter.cli.run.watch import Plugins
from tiltmeter.cli.terminal.run_screen import as_json, emit, write_stdout
from tiltmeter.errors import StoreError
from tiltmeter.gold.find_gold import TrainingSetup, find_gold
from tiltmeter.monitor.parts import Config
from tiltmeter.safety.safe_text import log_line, terminal
from tiltmeter.verdict.states import STATES
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.report.answers import ROLLOUTS
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.run_reader import RunReader

READERS = ", ".join(BY_NAME)
AGAIN = "the same with --more; with --keep FOLDER, then tiltmeter view FOLDER"
FETCHED = ".fetched"  # below --keep: what an address gave

Where = Annotated[
    Path,
    typer.Argument(
        help="A run, a folder or file of rollouts or metrics, or an address as wandb:A/B/RUN.", metavar="RUN_OR_FILES"
    ),
]
Format = Annotated[str, typer.Option("--format", help=f"Whose files: {READERS}.", metavar="NAME")]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map", help="Our column and theirs, as reward=score; run=COLUMN splits a file.", metavar="OURS=THEIRS"
    ),
]
GroupSize = Annotated[
    int | None, typer.Option("--group-size", help="Consecutive rows of one prompt.", metavar="N", min=1)
]
Weight = Annotated[
    list[str] | None, typer.Option("--weight", help="Weight of a reward function in the total.", metavar="NAME=W")
]
Evals = Annotated[
    list[str] | None,
    typer.Option("--eval", help="A column of held-out scores, and how many items or which column says so.",
                 metavar="COLUMN=N"),
]  # fmt: skip
Gold = Annotated[
    str | None,
    typer.Option(
        "--gold",
        help="Gold source: file.py:function, judge.toml, tests, answers, auto, or a labels file.",
        metavar="GOLD",
    ),
]
Share = Annotated[
    float | None,
    typer.Option(
        "--gold-share", help="Share of rollouts to label; 1: all. Without it, by what a label costs.", metavar="SHARE"
    ),
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="processes, or ray for a cluster that is there.", metavar="NAME")
]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Workers; as many as there are cores.", metavar="N", min=1)]
Keep = Annotated[
    Path | None, typer.Option("--keep", help="Keep the audit here, to view or to go on.", metavar="FOLDER")
]
Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="The training data, joined by prompt: a file, a saved folder or hf:OWNER/NAME[:SPLIT].",
        metavar="DATASET",
    ),
]
On = Annotated[
    str,
    typer.Option("--on", help="The dataset's column of prompts; prompt, question, ... if not given.", metavar="COLUMN"),
]


def audit(
    path: Where,
    format: Format = "",
    map: Map = None,
    group_size: GroupSize = None,
    weight: Weight = None,
    eval: Evals = None,
    gold: Gold = None,
    gold_share: Share = None,
    dataset: Dataset = None,
    on: On = "",
    engine: EngineName = None,
    jobs: Jobs = None,
    keep: Keep = None,
    md: Markdown = None,
    html: Html = None,
    more: More = False,
    json: Json = False,
    plain: Plain = False,
    redact_text: Redact = False,
    rollouts: Most = ROLLOUTS,
    plugin: Plugins = None,
) -> None:
    """Audit a finished run from its files: what happened, since when, why, and what to do.

    Example: tiltmeter audit outputs/my-grpo-run --gold checks.py:score --md -

    Reads TRL, veRL, prime-rl and other trainers' dumps, TensorBoard, W&B and tables, and changes none of them; runs by
    their address too: wandb:ENTITY/PROJECT/RUN, trackio:PROJECT/RUN, mlflow:RUN_ID, hf:OWNER/NAME. Says
    first what it recognised and what is missing. Exit code: 0 healthy, 1 an alarm, 2 could not judge, 3 hollow; of
    several runs, 1 before 3 before 2 before 0.
    """
    if (str(md) == "-") + json + plain > 1:
        raise typer.BadParameter("choose one of --md -, --json and --plain")
    if redact_text and md is None and html is None:
        raise typer.BadParameter("texts are redacted in reports: add --md or --html", param_hint="--redact-text")
    options = ReadOptions(
        format,
        dict(_pair(one, "--map") for one in map or ()),
        group_size,
        {name: _number(value, "--weight") for name, value in (_pair(one, "--weight") for one in weight or ())},
        {name: int(n) if n.isdecimal() else n for name, n in (_pair(one, "--eval") for one in eval or ())},
        excluded=tuple(str(Path(name).resolve()) for name in (gold, dataset) if name is not None),
    )
    if on and dataset is None:
        raise typer.BadParameter("it names a column of --dataset", param_hint="--on")
    rows = None if dataset is None else open_dataset(dataset, on)
    gold_lines: tuple[str, ...] = ()
    if rows is not None and gold is None:
        result = find_gold(TrainingSetup({}, rows=rows.sample, columns=[key for row in rows.sample[:1] for key in row]))
        gold, gold_lines = result.name or None, result.lines
    labels = read_labels(Path(gold)) if gold is not None and gold.endswith(SUFFIXES) else None
    config = Config.standard(plugin or (), gold=None if labels is not None else gold, gold_share=gold_share)
    work = open_engine(engine or "processes", jobs)
    note = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    workspace = tempfile.TemporaryDirectory(prefix="tiltmeter-audit-") if keep is None else nullcontext(str(keep))
    with workspace as home:
        options = _ask_about_columns(path, options)
        where = fetch_run(str(path), Path(home) / FETCHED) if is_address(str(path)) else path
        with _progress() as progress:
            audits = list(
                audit_runs(
                    where, Path(home), options, config,
                    engine=work, forced=engine is not None, labels=labels, dataset=rows, progress=progress,
                )
            )  # fmt: skip
        if len(audits) > 1:
            note.out(f"{len(audits)} runs; how each was read: --json")
        for line in gold_lines[:2]:
            note.out(f"- {line}")
        for line in audits[0].notes if len(audits) == 1 else ():
            note.out(f"- {log_line(line, 400)}")
        codes = _emit_reports(
            audits, md=md, html=html, json=json, plain=plain, more=more, redact=redact_text, rollouts=rollouts,
            place=str(path), look="" if keep else AGAIN,
        )  # fmt: skip
        if gold is None and not options.evals and 2 in codes:
            note.out("To judge the reward: --gold checks.py:score, a judge's file, or a file of labels")
        if keep is not None:
            note.out(f"Look closer: tiltmeter view {keep}")
    raise typer.Exit(next(code for code in (1, 3, 2, 0) if code in codes or not code))


def _ask_about_columns(path: Path, options: ReadOptions) -> ReadOptions:
    """Where a table has names of its own: ask whether it is read as its contents suggest; say so where nobody is."""
    guess = guess_file(path, options)
    if guess is None or is_trainers_file(path, options):
        return options
    truth = "".join(f" --map gold={name}, if that is what you really want" for name in guess.gold[:1])
    command = log_line(f"tiltmeter audit {path} {guess.options()}{truth}", 600)
    if not _on_terminal():
        raise StoreError(f"{path}: its columns have names of its own; by what they hold it reads as: {command}")
    note = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    note.out(f"{path} has column names of its own. By what they hold:")
    columns = dict(guess.columns)
    for ours, theirs in columns.items():
        note.out(f"  {ours:10} is {log_line(theirs, 60)}, as {log_line(guess.examples[theirs], 60)!r}")
    if not typer.confirm("Read it so?", default=True, err=True):
        raise StoreError(f"say which column is which, as: {command}")
    question = "Is {} gold: what you really want, and never paid?"
    gold = next((one for one in guess.gold if typer.confirm(question.format(log_line(one, 60)), err=True)), None)
    columns |= {} if gold is None else {"gold": gold}
    return replace(options, columns=columns)


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _emit_reports(
    audits: list[AuditedRun],
    *,
    md: Path | None,
    html: Path | None,
    json: bool,
    plain: bool,
    more: bool,
    redact: bool,
    rollouts: int,
    place: str,
    look: str,
) -> list[int]:
    """Print the audits in the requested form and write the reports; returns the exit code of each run."""
    codes: list[int] = []
    objects: list[dict[str, Any]] = []
    printed = json or str(md) == "-"
    several = len(audits) > 1
    for target, option in ((md, "--md"), (html, "--html")):
        if several and target is not None and str(target) != "-":
            _make_folder(target, option)
    if several and not (printed or plain):
        Console(highlight=False, markup=False).print(_table(audits))
    for one in audits:
        if one.problem:
            codes.append(2)
            sys.stderr.write(f"{log_line(one.name, 100)} could not be audited: {log_line(one.problem, 400)}\n")
            objects.append({"name": one.name, "state": "BLIND", "problem": one.problem})
            continue
        verdict, run_facts, events = judge_run(one.run)
        codes.append(verdict.exit_code)
        name = file_stem(one.run.path.name)
        if json:
            objects.append({**json_module.loads(as_json(one.run, verdict, run_facts, events)), "said": list(one.notes)})
        elif not printed and (plain or not several):
            emit(one.run, verdict, run_facts, events, json_=False, plain_=plain, more=more, place=place, look=look)
        if md is not None:
            text = render_markdown(RunReader(one.run), redact=redact) + _reading_notes(one)
            write_report(text, md, f"{name}.md", "--md")
        if html is not None:
            text = render_html(RunReader(one.run), rollouts=rollouts, redact=redact)
            write_report(text, html, f"{name}.html", "--html")
    if json:
        result: Any = objects[0] if len(objects) == 1 else {"runs": objects}
        write_stdout(json_module.dumps(result, allow_nan=False) + "\n")
    return codes


def _make_folder(target: Path, option: str) -> None:
    """The folder for the reports of several runs."""
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{error.strerror}: {target} (there are several runs: name a folder)",
                                 param_hint=option) from error  # fmt: skip


def _table(audits: Iterable[AuditedRun]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("run", "verdict", "steps", "since", "why"):
        table.add_column(title, overflow="fold")
    for one in audits:
        if one.problem:
            table.add_row(terminal(one.name, 60), Text("not read"), "", "", log_line(one.problem, 100))
            continue
        verdict, run_facts, _ = judge_run(one.run)
        since = str(verdict.alarms[0].onset) if verdict.alarms else ""
        state = Text(f"{STATES[verdict.state].icon} {verdict.state}", STATES[verdict.state].colour.terminal)
        name = str(one.run.identity().get("name", one.run.path.name))
        table.add_row(
            terminal(name, 60),
            state,
            str(len(run_facts.last_measured) and run_facts.last_step),
            since,
            log_line(verdict.sentence, 100),
        )
    return table


def _reading_notes(one: AuditedRun) -> str:
    return "\n**How the files were read**\n\n" + "".join(
        f"- `{log_line(line, 300).replace('`', chr(39))}`\n" for line in one.notes
    )


def _pair(text: str, option: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise typer.BadParameter(f"{text!r}: write it as left=right", param_hint=option)
    return left, right


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=option) from error


@contextmanager
def _progress() -> Iterator[AuditProgress]:
    """A progress bar on standard error, on a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("read")
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)
