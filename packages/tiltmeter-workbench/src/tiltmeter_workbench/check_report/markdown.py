"""A report as Markdown, short enough to paste into an issue or a card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tiltmeter.safety.safe_text import markdown as fenced
from tiltmeter.view.markdown_text import LONGEST, escape_line, table
from tiltmeter.view.without_secrets import without_secrets
from tiltmeter_workbench.check_report.report import Check, CheckGroup, Report
from tiltmeter_workbench.check_report.tables import cell, titles

ROWS, EXAMPLES = 12, 3  # of one check


def render_markdown(report: Report) -> str:
    """The state with its sentence, the checks, what to do, tables and examples of what is bad, and the lists."""
    report = without_secrets(report)
    lines = [f"## {escape_line(report.line)}", ""]
    lines += [f"{escape_line(': '.join(part for part in (report.title, report.size) if part))}.", ""]
    for title, content in report.opening.items():
        lines += bullets(title, content)
    for group in report.groups:
        lines += [f"### {escape_line(group.title)}", ""] if len(report.groups) > 1 and group.checks else []
        lines += _check_table(group)
    lines += bullets("What to do", report.fixes)
    for check in report.checks:
        lines += _details(check)
    for title, content in report.lists.items():
        lines += bullets(title, content)
    return "\n".join(lines).rstrip() + "\n"


def _check_table(group: CheckGroup) -> list[str]:
    figures, words = group.has_figures, group.has_sentences
    heads = (
        group.noun,
        *group.columns,
        *([group.estimate] if figures else []),
        "state",
        *(["in words"] if words else []),
    )
    rows = []
    for check in group.checks:
        figure = f"{check.figure()} {check.unit}".rstrip() if check.figure() else "–"
        columns = (cell(check.columns.get(name)) for name in group.columns)
        sentence = [check.sentence] if words else []
        rows.append((check.heading, *columns, *([figure] if figures else []), check.state, *sentence))
    return table(heads, rows)


def _details(check: Check) -> Iterator[str]:
    rows = check.rows[:ROWS] if check.rows_in_short else ()
    examples = check.examples[:EXAMPLES] if check.tone == "bad" else ()
    if rows or examples:
        yield from (f"### {escape_line(check.heading)}", "")
    yield from table(titles(check.rows), [tuple(cell(row.get(name)) for name in titles(check.rows)) for row in rows])
    if rows and len(check.rows) > ROWS:
        yield from (f"More rows in --json: {len(check.rows) - ROWS}.", "")
    for example in examples:
        yield from ((escape_line(example.title), "") if example.title else ())
        for name, text in example.texts.items():
            yield from quote_text(name, text)
    if examples and len(check.examples) > EXAMPLES:
        yield from (f"More examples in --json: {len(check.examples) - EXAMPLES}.", "")


def bullets(title: str, lines: Sequence[str]) -> list[str]:
    """A section of lines; nothing where there are none."""
    return [f"### {title}", "", *(f"- {escape_line(each)}" for each in lines), ""] if lines else []


def quote_text(name: str, text: str) -> list[str]:
    """Foreign text under its name, shortened, and fenced so that it is not read as Markdown."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}… (+{len(text) - LONGEST})"
    return [f"{escape_line(name)}:", "", fenced(cut), ""]
