"""Terminal report of `tiltmeter model plan`: method, memory by item, group sizes and lint results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltmeter.safety.safe_text import terminal
from tiltmeter_workbench.plan.choose_method import MethodChoice
from tiltmeter_workbench.plan.groups import Groups
from tiltmeter_workbench.plan.memory.estimate import GB
from tiltmeter_workbench.plan.memory.fit_to_gpu import in_gb
from tiltmeter_workbench.plan.memory.shapes import Shape
from tiltmeter_workbench.plan.report import NAMES, MemoryFit, assumptions, fit_advice, headline
from tiltmeter_workbench.terminal.check_report import render_lists

if TYPE_CHECKING:
    from tiltmeter_workbench.plan.lint.linter import LintReport

WIDTH, SHORT = 56, 20  # characters of a bar
#: A colour for each item, and a letter: a bar must be readable without colours.
COLOURS: Mapping[str, str] = {
    "weights": "blue",
    "casts": "bright_blue",
    "reference": "cyan",
    "reward model": "bright_cyan",
    "value model": "green",
    "gradients": "yellow",
    "buckets": "bright_yellow",
    "optimiser": "magenta",
    "activations": "red",
    "logits": "bright_red",
    "gathered": "bright_green",
    "KV cache": "white",
    "vLLM": "bright_black",
}
LETTERS: Mapping[str, str] = dict(zip(COLOURS, "WcRMVGbOALgKv", strict=True))


def print_plan(
    model: Shape,
    choice: MethodChoice | None,
    fits: Sequence[MemoryFit],
    groups: Groups | None,
    published: Mapping[str, Any] | None,
    size: int | None,
) -> None:
    console = Console()
    if choice is not None:
        _print_method(console, choice)
    if len(fits) == 1:
        _print_memory(console, fits[0])
    elif fits:
        _print_methods(console, model, fits)
    if published is not None:
        _print_published(console, published)
    if groups is not None:
        _print_groups(console, groups, size)


def _print_method(console: Console, choice: MethodChoice) -> None:
    steps = ", then ".join(NAMES[step] for step in choice.steps) or "nothing yet"
    console.print(Text(f"Method: {steps}", style="bold"))
    lines = [f"{choice.rule.name}: {choice.rule.because}" + _source_suffix(choice.rule.source)]
    lines += [f"{each.name}: {each.because}{_source_suffix(each.source)}" for each in choice.remarks]
    for line in lines:
        console.print(Text("  ·"), terminal(line, 600))
    console.print(Text("  Rules of thumb, each with its reason: disagree where you know better.\n", style="dim"))


def _source_suffix(source: str) -> str:
    return f" ({source})" if source else ""


def _print_memory(console: Console, fit: MemoryFit) -> None:
    usage = fit.memory
    style = {None: "bold", True: "bold green", False: "bold red"}[fit.fits]
    console.print(terminal(headline(fit), 300), style=style)
    console.print(_stacked_bar(fit))
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=False)
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    largest = max(usage.peak.items.values())
    for item, amount in usage.peak.items.items():
        bar = "█" * max(round(SHORT * amount / largest), 1)
        table.add_row(
            Text(LETTERS[item], style=COLOURS[item]), item, f"{amount / GB:.2f} GB", Text(bar, style=COLOURS[item])
        )
    console.print(table)
    others = ", ".join(f"{each.name} {in_gb(each.total)}" for each in usage.moments if each is not usage.peak)
    console.print(Text(f"Largest at: {usage.peak.name}. Other moments, GB: {others}.", style="dim"))
    lists = {"What would make it fit": fit_advice(fit), "What this holds for": assumptions(usage.job)}
    for part in render_lists(lists):
        console.print(part)


def _stacked_bar(fit: MemoryFit) -> Text:
    """Items end to end in their letters; a mark at the memory of the GPU, where --gpu-memory gives it."""
    peak, limit = fit.memory.peak, fit.memory.job.gpu if fit.gpu_known else fit.memory.total
    whole = max(peak.total, limit)
    bar = Text()
    filled, end = 0, 0.0
    for item, amount in peak.items.items():
        end += amount
        upto = round(WIDTH * end / whole)
        bar.append(LETTERS[item] * (upto - filled), style=COLOURS[item])
        filled = max(filled, upto)
    bar.append("·" * (WIDTH - filled), style="dim")
    if not fit.gpu_known:
        return bar
    mark = round(WIDTH * limit / whole)
    cut = bar[:mark]
    cut.append("┃", style="bold")
    if mark < WIDTH:
        cut.append_text(bar[mark:])
        cut.append("  ┃ is", style="dim")
    cut.append(f" {in_gb(limit):g} GB", style="dim")
    return cut


def _print_methods(console: Console, model: Shape, fits: Sequence[MemoryFit]) -> None:
    console.print(terminal(f"{model.name}: {model.parameters:,} parameters. Memory by method, GB on each GPU:", 300))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("method")
    table.add_column("GB", justify="right")
    table.add_column("")
    table.add_column("largest at")
    reach = max(fit.memory.total for fit in fits)
    for fit in fits:
        bar = Text()
        filled, end = 0, 0.0
        for item, amount in fit.memory.peak.items.items():
            end += amount
            upto = round(WIDTH / 2 * end / reach)
            bar.append(LETTERS[item] * (upto - filled), style=COLOURS[item])
            filled = upto
        over = {None: "", True: "green", False: "red"}[fit.fits]
        table.add_row(
            NAMES[fit.memory.job.method], Text(f"{in_gb(fit.memory.total):.1f}", style=over), bar, fit.memory.peak.name
        )
    console.print(table)
    used = {item for fit in fits for item in fit.memory.peak.items}
    legend = Text(" ").join(Text(f"{LETTERS[item]} {item}", style=COLOURS[item]) for item in COLOURS if item in used)
    console.print(legend)
    console.print(
        Text("Gradients are counted. Say what you have (--pair-count, --verifier, …) or give --method.", "dim")
    )


def _print_published(console: Console, figures: Mapping[str, Any]) -> None:
    console.print(Text("As the figures in circulation have it (no gradients, Adam in bf16)", style="bold"))
    table = Table(box=None, pad_edge=False, header_style="dim")
    methods = figures["methods"]
    table.add_column("GB")
    for method in methods:
        table.add_column(NAMES[method], justify="right")
    items = list(dict.fromkeys(item for each in methods.values() for item in each["items_gb"]))
    for item in items:
        amounts = (each["items_gb"].get(item) for each in methods.values())
        table.add_row(item, *("" if amount is None else f"{amount:g}" for amount in amounts))
    table.add_row("total", *(Text(f"{each['total_gb']:g}", style="bold") for each in methods.values()))
    console.print(table)
    console.print(Text(str(figures["note"]), style="dim"))


def _print_groups(console: Console, groups: Groups, size: int | None) -> None:
    source = f"{groups.prompts} prompts, {groups.never} never right, {groups.always} always" if groups.prompts else ""
    console.print(
        Text(f"\nGroup size at a pass rate of {groups.rate:.0%}" + (f" ({source})" if source else ""), "bold")
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("G", "dead", "", "spread", "rollouts per live group", ""):
        table.add_column(name, justify="left" if not name else "right")
    for row in groups.rows:
        bar = Text("█" * round(SHORT * row.dead), style="red")
        bar.append("░" * (SHORT - len(bar)), style="green")
        cost = "–" if math.isinf(row.cost) else f"{row.cost:.1f}"
        mark = ("← " if row.size == groups.size else "") + ("extrapolated" if row.how == "extrapolated" else "")
        style = "bold" if row.size == size else ""
        table.add_row(Text(str(row.size), style=style), f"{row.dead:.1%}", bar, f"{row.spread:.3f}", cost, mark)
    console.print(table)
    console.print(Text("  ·"), terminal(f"{groups.size}: {groups.why}" if groups.size else groups.why, 500))


def lint_json(result: LintReport) -> dict[str, Any]:
    return {
        "path": result.path,
        "trainer": result.trainer,
        "method": result.method,
        "settings": {name: _plain(value) for name, value in result.settings.items()},
        "complaints": [
            {**{name: getattr(each, name) for name in ("level", "rule", "key", "sentence", "fix", "source", "date")},
             "value": _plain(each.value)}
            for each in result.complaints
        ],
    }  # fmt: skip


def _plain(value: object) -> Any:
    """JSON has no infinity and no objects."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)
