"""What is rendered for others holds no secret of this process: reports, bundles, trackers, answers to an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.view.trackers.post_receiver import PostReceiver

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.agent.fence import fence
from tiltmeter.view.report.bundle import write_bundle
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.trackers.follow import SinkSpec, follow
from tiltmeter.view.without_secrets import without_secrets
from tiltmeter_workbench.check_report import html as check_html
from tiltmeter_workbench.check_report import markdown as check_markdown
from tiltmeter_workbench.check_report.report import Check, CheckGroup, Example, Report

#: Secrets that the demo's hacked run quotes: in its completions, and in its finding.
WORD, FINDING = "Absolutely!", "phrase_gaming"
FORM = "sk-proj-a1b2c3d4e5f6a7b8c9d0e1f2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]) -> RunDirectory:
    return copy_demo_run("hacked", tmp_path_factory.mktemp("runs") / "hacked")


@pytest.fixture
def with_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD_KEY", WORD)
    monkeypatch.setenv("FINDING_TOKEN", FINDING)


def rendered(run: RunDirectory, folder: Path) -> dict[str, str]:
    texts = {"md": render_markdown(RunReader(run))}
    for file in write_bundle(run, folder / "bundle", all_rollouts=True):
        table = file.suffix == ".parquet"
        texts[file.name] = str(pq.read_table(file).to_pylist()) if table else file.read_text("utf-8")
    receiver = PostReceiver()
    try:
        assert follow(run, [SinkSpec("webhook", receiver.url)], once=True, patience=20.0, state=folder / "state") == {}
        texts["webhook"] = "".join(post.body.decode() for post in receiver.posts)
    finally:
        receiver.close()
    return texts


@pytest.mark.usefixtures("with_secrets")
def test_no_report_bundle_or_tracker_says_a_secret(run: RunDirectory, tmp_path: Path) -> None:
    texts = rendered(run, tmp_path)
    for name, text in texts.items():
        assert WORD not in text and FINDING not in text, name
    for name in ("index.html", "md", "rollouts.parquet"):
        assert "[secret WORD_KEY]" in texts[name], name
    for name in ("index.html", "findings.parquet", "webhook"):
        assert "[secret FINDING_TOKEN]" in texts[name], name


@pytest.mark.usefixtures("with_secrets")
def test_reports_of_checks_say_no_secret() -> None:
    words = f"{WORD} and {FORM}"
    check = Check(
        "length", "found", words, fix=words, facts={"a": [words]}, examples=[Example({"prompt": words}, words)]
    )
    report = Report(words, "found", "Found", words, [CheckGroup("Checks", [check])], fixes=[words])
    for text in (check_html.render_html(report), check_markdown.render_markdown(report)):
        assert WORD not in text and FORM not in text
        assert "[secret WORD_KEY]" in text.replace("\\", "") and "[secret API key]" in text.replace("\\", "")


@pytest.mark.usefixtures("with_secrets")
def test_an_agent_is_told_no_secret() -> None:
    text = fence("State: OK.", {"rows": [{"completion": f"{WORD} {FORM}"}], "sentence": WORD})
    assert WORD not in text and FORM not in text and "[secret WORD_KEY] [secret API key]" in text


def test_what_holds_none_is_the_very_same() -> None:
    value: dict[str, Any] = {"a": [1.0, "text", ("b", None)], "c": RunDirectory}
    assert without_secrets(value) is value
    assert json.dumps(without_secrets({"url": "https://github.com/a/b"})) == '{"url": "https://github.com/a/b"}'
