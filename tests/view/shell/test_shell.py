"""All reports are one design: one file makes their head, and what a tool writes is read like any other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tiltmeter.view.shell.shell import render_shell, shell_style
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.check_report.report import Check, CheckGroup, Report
from tiltmeter_workbench.plan.choose_method import AvailableInputs, choose_method
from tiltmeter_workbench.plan.memory.estimate import GB, TrainingJob
from tiltmeter_workbench.plan.memory.shapes import shape
from tiltmeter_workbench.plan.report import fit_job, plan_as_report

SOURCE = Path(__file__).parents[3] / "src" / "tiltmeter"
CHECK_REPORT = SOURCE.parents[1] / "packages/tiltmeter-workbench/src/tiltmeter_workbench/check_report"
HOSTILE = "</title></style><script>alert(1)</script>\x1b[2J"


def test_one_file_makes_the_head_of_every_report() -> None:
    texts = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.j2")]
    makers = {str(path.relative_to(SOURCE)) for path in texts if "<!doctype" in path.read_text("utf-8").lower()}
    assert makers == {"view/shell/shell.py"}


def test_a_title_is_escaped_and_a_style_that_would_end_itself_is_refused() -> None:
    page = render_shell(HOSTILE, "<main></main>", shell_style())
    assert "<script" not in page and "\x1b" not in page and page.count("</title>") == 1
    for style, script in ((HOSTILE, ""), ("", HOSTILE), ("<!--", "")):
        with pytest.raises(ValueError, match="end its own element"):
            render_shell("x", "", style, script)


def test_colours_are_those_of_the_page_in_light_dark_and_on_paper() -> None:
    """The page is built from the same file, and a report of checks brings no colours of its own."""
    built = (SOURCE / "view" / "static" / "report.css").read_text("utf-8").lower().replace(" ", "")
    colours = re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", shell_style())
    assert len(colours) > 40
    short = {f"{name}:{colour}" for name, colour in colours if len(set(colour[1::2] + colour[2::2])) > 3}
    assert [one for one in short if one not in built] == []
    own = (CHECK_REPORT / "report.css").read_text("utf-8")
    assert "#" not in re.sub(r"/\*.*?\*/", "", own)
    assert "@media screen and (prefers-color-scheme: dark)" in shell_style(), "paper is light"


def test_a_plan_is_a_report_with_contents_and_numbers_for_people() -> None:
    job = TrainingJob(shape("7B"), "grpo", gpu=80 * GB, gpus=2)
    have = AvailableInputs(0, False, True, False, False, "instruct", True)
    report = plan_as_report(job.shape, choose_method(have), [fit_job(job, True)], None)
    page = render_html(report)
    body = page.split("</style>")[1]
    assert 'aria-label="Parts of this report"' in body and "Method: GRPO" in body and "gradients" in body
    assert (report.state, report.tone) == ("failed", "bad") and 'class="head act"' in body
    assert not re.search(r"\d\.\d{5,}", re.sub(r"arXiv [\d.]+", "", body)), "numbers are rounded"
    assert plan_as_report(job.shape, None, [], None).headline == "nothing to train on"


def test_a_long_number_is_rounded_wherever_a_report_shows_one() -> None:
    check = Check(
        "a", "found", "x", 1.0491733333333335, 0.5307333333333333, 2.0, facts={"b": 1.0491733333333335},
        rows=[{"c": 0.5307333333333333, "d": [0.1234567, 0.1, 0.2]}], columns={"e": 123456.789},
    )  # fmt: skip
    body = render_html(Report("r", "found", "Found", "y", [CheckGroup("Checks", [check])])).split("</style>")[1]
    assert "1.05 [0.531, 2]" in body and "123,000" in body and not re.search(r"\d\.\d{4,}", body)
