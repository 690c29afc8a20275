"""`tiltmeter lab`: simulate runs with known ground truth, score every alarm on them, and write the report."""

from __future__ import annotations

import json as json_module
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from tiltmeter.audit.engine.engine import cores
from tiltmeter.cli.options import Json, Seed
from tiltmeter.errors import AttachError, StoreError
from tiltmeter_lab import campaign
from tiltmeter_lab import report as reports
from tiltmeter_lab.campaign_records import RECORDED, Line, Thresholds, compact, expand, load_recorded
from tiltmeter_lab.score import score as scored
from tiltmeter_lab.score_network import score_network
from tiltmeter_lab.worlds.families import NETWORK
from tiltmeter_lab.worlds.world import load_worlds

TINY, HELD_OUT_TINY = "tiny-lm", "tiny-lm-2"

Split = Annotated[
    str | None, typer.Option(help="A set of families: dev, calibration, heldout or network.", metavar="NAME")
]
Worlds = Annotated[str | None, typer.Option(help="Worlds of your own instead.", metavar="FILE.py:NAME")]
Families = Annotated[str | None, typer.Option(help="Only these, with commas.", metavar="A,B")]
Runs = Annotated[int, typer.Option(help="How many runs of each family.", min=1, metavar="N")]
Out = Annotated[Path | None, typer.Option(help="Keep the runs here, and go on from those it has.", metavar="FOLDER")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Workers; as many as there are cores.", metavar="N", min=1)]
Record = Annotated[Path | None, typer.Option(help="Also write the compact record, as committed.", metavar="FILE")]
Recorded = Annotated[str | None, typer.Option(help="A recorded campaign: heldout, dev, ...", metavar="NAME")]
Place = Annotated[
    Path | None, typer.Argument(help="A folder of `run --out`, or a file of `run --record`.", metavar="CAMPAIGN")
]
Suite = Annotated[
    str | None,
    typer.Option(
        help=f"Runs of another kind: {TINY}, a tiny language model under TRL, or {HELD_OUT_TINY}, its held-out runs.",
        metavar="NAME",
    ),
]
Into = Annotated[Path, typer.Option(help="Where tables and plots go.", metavar="FOLDER")]


def run(
    split: Split = None,
    worlds: Worlds = None,
    families: Families = None,
    runs: Runs = 20,
    seed: Seed = 0,
    out: Out = None,
    jobs: Jobs = None,
    record: Record = None,
    suite: Suite = None,
    json: Json = False,
) -> None:
    """Make runs, let every method watch them, and print how each did.

    Example: tiltmeter lab run --split heldout --runs 20 --seed 7

    With --suite tiny-lm, --families are scenarios: each is trained by TRL with Tiltmeter attached, a minute or two a
    run, and what was found is printed beside what really happened (needs the extra trl).

    Thresholds of the baselines are those of the recorded campaign of the same split; where there is none, they are
    taken from these very runs. Exit code: 0 scored, 2 could not.
    """
    if suite is not None:
        tiny_runs(check_suite(suite), families, runs, seed, out, json)
        return
    split = split or ("" if worlds else "dev")
    family_names, updates = members(split, worlds, families)
    facts = {
        "split": split,
        "date": datetime.now(UTC).date().isoformat(),
        "commands": [command_line(split, worlds, families, runs, seed)],
    }
    with folder(out) as place, progress() as report_progress:
        lines = campaign.run(
            family_names,
            updates,
            runs,
            seed,
            place,
            jobs or cores(),
            report_progress,
            worlds=worlds or "",
            facts=facts,
        )
        facts = campaign.facts_of(place)
    if record:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_bytes(compact(lines, facts=facts))
    print_scores(facts, with_network(facts, lines, scored(lines, thresholds(split))), json)


def score(place: Place = None, split: Recorded = None, suite: Suite = None, json: Json = False) -> None:
    """Score a campaign that was made before: one that comes with the package, or one of yours.

    Example: tiltmeter lab score --split heldout

    Makes no run. With --suite tiny-lm: the recorded runs of the tiny language model; with tiny-lm-2 those of scenarios
    that nothing was tuned on. Exit code: 0 scored, 2 there is no such campaign.
    """
    if suite is not None:
        tiny_score(check_suite(suite), json)
        return
    facts, limits, lines = load_campaign(place, split)
    print_scores(facts, with_network(facts, lines, scored(lines, limits)), json)


def report(place: Place = None, split: Recorded = None, out: Into = Path("docs/detectors")) -> None:
    """Write the tables (Markdown) and plots (SVG) of a campaign that was made before.

    Example: tiltmeter lab report --split heldout --out report

    One run of each family is simulated again for its curves. Exit code: 0 written, 2 could not.
    """
    facts, limits, lines = load_campaign(place, split)
    for path in reports.write_report(out, facts, lines, limits):
        typer.echo(path)


def with_network(facts: Mapping[str, Any], lines: Sequence[Line], figures: dict[str, Any]) -> dict[str, Any]:
    """The figures, and beside those of held-out tables those of held-out policies that share parameters."""
    if facts.get("split") == "heldout" and (RECORDED / f"{NETWORK}.jsonl.gz").is_file():
        return {**figures, NETWORK: score_network(load_recorded(NETWORK)[2])}
    return {**figures, NETWORK: score_network(lines)} if facts.get("split") == NETWORK else figures


def check_suite(name: str) -> str:
    if name not in (TINY, HELD_OUT_TINY):
        raise AttachError(f"no suite {name!r}; there are {TINY} and {HELD_OUT_TINY}")
    return name


def tiny_score(suite: str, json: bool) -> None:
    """Print how every alarm did on the recorded runs of the tiny language model."""
    from tiltmeter_lab.tiny.run_files import HELD_OUT_RECORDED, RECORDED
    from tiltmeter_lab.tiny.score import figures  # it reads a file of a megabyte

    scores = figures(RECORDED if suite == TINY else HELD_OUT_RECORDED)
    if json:
        typer.echo(json_module.dumps(scores, indent=1, allow_nan=False))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for name, value in scores.items():
        if not isinstance(value, (dict, list)):
            console.print(Text(f"{name.replace('_', ' '):<34} {value}"))
    regrets = {**scores["budgets"], str(scores["label_share"]): scores}
    for share, floor in scores["floors"].items():
        own = regrets.get(share, {}).get("regret_median")
        ours = "" if own is None else f"regret median {own:.3f}, "
        console.print(Text(f"{100 * float(share):.0f} % labelled: {ours}floor {floor['floor_median']:.3f}"))
    console.print(Text("by scenario: --json", "dim"))


def tiny_runs(suite: str, families: str | None, runs: int, seed: int, out: Path | None, json: bool) -> None:
    """Train scenarios of the tiny language model, watched; one line each."""
    try:
        import trl  # noqa: F401
    except ImportError as error:
        raise AttachError(f"--suite {suite} trains with TRL ({error}): pip install 'tiltmeter[trl]' peft") from error
    from tiltmeter_lab.tiny.model import base_policy
    from tiltmeter_lab.tiny.scenarios import HELD_OUT, SCENARIOS, scenario
    from tiltmeter_lab.tiny.watched_training import train_watched

    names = families.split(",") if families else [each.name for each in (SCENARIOS if suite == TINY else HELD_OUT)]
    scenarios, facts = [scenario(name) for name in names], []
    with folder(out) as place, progress() as report_progress:
        base = base_policy(place)
        for done, (one, number) in enumerate((one, number) for number in range(seed, seed + runs) for one in scenarios):
            report_progress(done, runs * len(scenarios), one.name)
            facts.append(train_watched(one, number, place / f"{one.name}-{number}", base=base)[1])
        report_progress(len(facts), len(facts), "")
    if json:
        typer.echo(json_module.dumps(facts, indent=1, allow_nan=False))
        return
    for item in facts:
        alarm = "no alarm" if item["alarm"] is None else f"alarm at step {item['alarm']['step']}"
        peak = f"peak {item['gold_peak']:.2f} at {item['peak_step']}"
        gold = f"gold {item['gold_start']:.2f}, {peak}, end {item['gold_end']:.2f}"
        findings = ", ".join(item["last_findings"]) or "nothing found"
        typer.echo(f"{item['scenario']} {item['seed']}: {gold}; {alarm}; {findings}; {item['labels']} labels")


def members(split: str, worlds: str | None, families: str | None) -> tuple[list[str], list[str]]:
    """The families and update rules that were asked for."""
    if split and worlds:
        raise AttachError("give --split or --worlds, not both")
    if worlds:
        available, updates = [family for family, _ in load_worlds(worlds)], [""]
    else:
        available, updates = campaign.members(split)
    names = [name.strip() for name in families.split(",")] if families else available
    if unknown := [name for name in names if name not in available]:
        raise AttachError(f"{', '.join(unknown)}: not in {worlds or split}, which has {', '.join(available)}")
    return names, updates


def thresholds(split: str) -> Thresholds | None:
    """The thresholds of the recorded campaign: a part of it must not be judged by thresholds from its own runs."""
    return load_recorded(split)[1] if split and (RECORDED / f"{split}.jsonl.gz").is_file() else None


def load_campaign(
    place: Path | None, split: str | None
) -> tuple[dict[str, Any], Thresholds | None, list[dict[str, Any]]]:
    """A campaign's facts, thresholds and lines, wherever it is kept."""
    if (place is None) == (split is None):
        raise AttachError("name one campaign: --split heldout, or a folder that `tiltmeter lab run --out` made")
    if split is not None:
        return load_recorded(split)
    assert place is not None
    if place.is_dir():
        facts = campaign.facts_of(place)
        return facts, thresholds(facts.get("split", "")), list(campaign.read_runs(place).values())
    if not place.is_file():
        raise StoreError(f"{place} is neither a campaign's folder nor a record")
    return expand(place.read_bytes())


def command_line(split: str, worlds: str | None, families: str | None, runs: int, seed: int) -> str:
    """The command that makes the same runs again; where they are kept and by how many processes is left out."""
    words = ["tiltmeter", "lab", "run"]
    words += ["--split", split] if split else []
    words += ["--worlds", f"{Path((worlds or '').rpartition(':')[0]).name}:{(worlds or '').rpartition(':')[2]}"] * bool(
        worlds
    )
    words += ["--families", families] if families else []
    return shlex.join([*words, "--runs", str(runs), "--seed", str(seed)])


@contextmanager
def folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="tiltmeter-lab-") as scratch:
        yield Path(scratch)


@contextmanager
def progress() -> Iterator[campaign.Progress]:
    """A bar on standard error, which leaves standard output to the figures; in a log, a line for every twentieth."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda done, total, _: console.out(f"{done} of {total} runs") if _twentieth(done, total) else None
        return
    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("runs", total=None)

        def update(done: int, total: int, family: str) -> None:
            bar.update(task, completed=done, total=total, description=family or "runs")

        yield update


def _twentieth(done: int, total: int) -> bool:
    return done == total or 20 * done // total > 20 * (done - 1) // total


def print_scores(facts: Mapping[str, Any], figures: Mapping[str, Any], json: bool) -> None:
    if json:
        typer.echo(json_module.dumps({"facts": facts, **figures}, indent=1, allow_nan=False))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for title, rows in reports.summary(facts, figures, narrow=True):
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        console.print(Text(title, "bold"))
        for number, row in enumerate(rows):
            cells = [
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            console.print(Text("  ".join(cells).rstrip(), "" if number else "dim"))
        console.print()
