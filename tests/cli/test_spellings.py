"""The command line as somebody guesses it: verbs, nouns, one meaning for each option, any path that holds a run."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.models import OptionInfo, ParameterInfo
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.cli.extras import EXTRAS
from tiltmeter.cli.verb_table import CORE, OURS, all_verbs, names_below, summary
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.locate_run import locate_run
from tiltmeter.rundir.store import RunDirectory

NOUNS, VERBS = all_verbs().nouns, all_verbs().verbs
#: What an option must look like wherever it stands: None is a flag.
SHAPES = {
    "--json": None, "--plain": None, "--html": "FILE", "--md": "FILE", "--seed": "N", "--most": "N", "--tokens": "N",
    "--answers": "N", "--jobs": "N", "--gold": "GOLD", "--gold-share": "SHARE",
}  # fmt: skip


class Parameter(typing.NamedTuple):
    verb: str
    name: str
    kind: Any
    info: ParameterInfo


def parameters() -> Iterator[Parameter]:
    """Every argument and option of every verb, from the functions themselves."""
    for spelling, verb in VERBS.items():
        function = inspect.unwrap(getattr(importlib.import_module(verb.module), verb.name))
        hints = typing.get_type_hints(function, include_extras=True)
        for name, hint in hints.items():
            if name != "return":
                kind, info = typing.get_args(hint)[:2]
                # In an annotation Typer takes the first name for the default, and mends that later.
                own = info.default if isinstance(info.default, str) else f"--{name.replace('_', '-')}"
                first = own.partition("/")[0]
                yield Parameter(spelling, first if isinstance(info, OptionInfo) else name, kind, info)


def metavar(one: Parameter) -> str | None:
    """None for a flag."""
    return None if one.kind in (bool, bool | None) else one.info.metavar or "?"


def run_at(path: Path) -> Path:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    return path


def tiltmeter(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tiltmeter", *words],
        capture_output=True, text=True, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip


def test_without_a_verb_the_five_that_matter_are_shown() -> None:
    shown = CliRunner().invoke(app, [])
    assert shown.exit_code == 0 and "tiltmeter.attach(trainer)" in shown.stdout
    assert re.findall(r"^  tiltmeter (\w+)", shown.stdout, re.M) == ["show", "view", "audit", "demo", "doctor"]
    assert shown.stdout.endswith("All verbs: tiltmeter --help\n")


def test_help_lists_five_verbs_first_then_the_others_by_moment() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout
    panels = re.findall(r"─ ([A-Z][\w ]+) ─", shown)
    assert panels == [
        "Options", "Start here", "While it runs", "Look closer", "Its files", "For a team and for agents",
        "Before a run", "Prove it",
    ]  # fmt: skip
    listed = re.findall(r"^│ (\w+) ", shown, re.M)
    assert listed[:5] == ["show", "view", "audit", "demo", "doctor"]
    assert set(listed[5:]) | set(listed[:5]) == {*NOUNS, *(name for name in VERBS if " " not in name)}
    assert not CORE.nouns and not any(" " in name for name in CORE.verbs), "the core has plain verbs"
    assert len(CORE.verbs) <= 24, "a list of more is not read: make it an option of the verb that it is about"
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("tiltmeter ")


def test_verbs_of_a_package_that_is_not_installed_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltmeter.cli.verb_table.entry_points", lambda **_: [])
    all_verbs.cache_clear()
    try:
        for spelling, one in OURS.items():
            *noun, name = spelling.split()
            shown = CliRunner().invoke(app, [*noun, "--help"], env={"COLUMNS": "160"}).stdout
            assert re.search(rf"^│ {name} .*pip install 'tiltmeter\[{one.extra}\]'", shown, re.M), spelling
            used = CliRunner().invoke(app, [*noun, name, "x.py", "--json"])
            assert isinstance(used.exception, AttachError) and f"{spelling} is in" in str(used.exception)
            assert one.fix in str(used.exception)
    finally:
        all_verbs.cache_clear()
    of_packages = {*NOUNS, *VERBS} - {*CORE.nouns, *CORE.verbs}
    assert {name for name in of_packages if name.partition(" ")[0] in CORE.nouns or " " not in name} == set(OURS)


def test_lists_of_verbs_load_none_of_them_and_say_what_each_says_itself() -> None:
    code = "import sys; from tiltmeter.cli import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert not {verb.module for verb in VERBS.values()} & set(done.stdout.split())
    for spelling, verb in VERBS.items():
        function = getattr(importlib.import_module(verb.module), verb.name)
        said = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        assert said and summary(verb) == said, spelling


def test_a_mistyped_verb_is_answered_with_the_nearest() -> None:
    for words, nearest in ((["shwo"], "show"), (["wacth"], "watch")):
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 2 and f"Did you mean '{nearest}'" in found.stderr


@pytest.mark.parametrize("spelling", VERBS)
def test_a_verb_has_help_with_an_example_of_its_own(spelling: str) -> None:
    shown = CliRunner().invoke(app, [*spelling.split(), "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert f"Example: tiltmeter {spelling} " in shown.stdout.replace("\n", " ") + " "


def test_an_option_has_one_shape_wherever_it_stands() -> None:
    shapes: dict[str, set[str | None]] = defaultdict(set)
    kinds: dict[str, set[bool]] = defaultdict(set)
    for one in parameters():
        if isinstance(one.info, OptionInfo) and not one.info.hidden:
            assert one.info.help, one
            shapes[one.name].add(metavar(one))
            kinds[one.name].add(metavar(one) is None)
    assert {name: shapes[name] for name in SHAPES if shapes[name] - {SHAPES[name]}} == {}
    assert [name for name, flags in kinds.items() if len(flags) > 1] == []
    assert {name for name in shapes if shapes[name] & {"DIR", "RUN_DIR", "PATH_TO", "?"}} == set()
    assert not any(old in shapes for old in ("--limit", "--output", "--write", "--workers"))


def test_an_option_that_takes_a_path_says_file_or_folder() -> None:
    wrong = [
        (one.verb, one.name, one.info.metavar)
        for one in parameters()
        if isinstance(one.info, OptionInfo)
        and one.kind in (Path, Path | None)
        and one.info.metavar not in ("FILE", "FOLDER", "RUN", "PATH")
    ]
    assert wrong == []


def test_any_path_that_holds_a_run_means_that_run(tmp_path: Path) -> None:
    run = run_at(tmp_path / "output" / "tiltmeter")
    (run.parent / "checkpoint-10").mkdir()
    attempt = run / "rollouts" / "0"
    inside = (attempt, run / "rollouts", attempt / "packed" / "0-9.parquet", run / "run.json")
    for path in (run, run.parent, tmp_path, *inside):
        assert locate_run(path).resolve() == run, path
    link = tmp_path / "latest"
    link.symlink_to(run.parent)
    assert locate_run(link).resolve() == run


def test_a_path_that_means_no_run_or_several_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="tiltmeter audit"):
        locate_run(tmp_path / "empty")
    with pytest.raises(StoreError, match="does not exist"):
        locate_run(tmp_path / "nothing")
    run_at(tmp_path / "a")
    run_at(tmp_path / "b" / "tiltmeter")
    with pytest.raises(StoreError, match=r"holds 2 runs.*tiltmeter view"):
        locate_run(tmp_path)


def test_verbs_about_a_run_take_an_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a report is written
    run_at(tmp_path / "output" / "tiltmeter")
    verbs = {one.verb for one in parameters() if one.info.metavar == "RUN" and one.name == "run"}
    assert len(verbs) > 15
    lacking = {"dismiss": ["1f8c", "--reason", "x"], "undo": ["0-1-beta"]}
    for verb in sorted(verbs - {"watch", "track"}):
        done = CliRunner().invoke(app, [*verb.split(), str(tmp_path / "output"), *lacking.get(verb, [])], input="n\n")
        assert "is not a run directory" not in f"{done.output}{done.exception}", verb


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["approve", "RUN", "0-1-beta", "--dry-run"], "leave the ID out"),
        (["alarms", "RUN", "--acknowledge", "1f8c", "--json"], "leave it out"),
        (["show", "RUN", "--picture", "--json"], "drawn alone"),
        (["report", "RUN", "--replace"], "folder of --to"),
        (["report", "RUN", "--json", "--svg", "-"], "can be printed"),
        (["rollouts", "RUN", "gold<1", "--phrases"], "takes no query"),
        (["rollouts", "RUN", "--step", "3"], "step:3"),
        (["rollouts", "RUN", "--most", "101"], "at most 100"),
        (["serve"], "name a folder of runs"),
        (["serve", "RUN", "--accounts"], "take no ROOT"),
        (["serve", "RUN", "--role", "label"], "with --invite"),
        (["serve", "--invite", "alice", "--revoke", "alice"], "at a time"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: list[str], why: str) -> None:
    run = str(run_at(tmp_path / "run"))
    done = CliRunner().invoke(app, [run if word == "RUN" else word for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and why in done.stderr, done.output
    assert not list(tmp_path.rglob("*.html"))


def blocked(folder: Path, *modules: str) -> str:
    """A PYTHONPATH on which some modules are as if they were not installed."""
    names = ", ".join(map(repr, modules))
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in ({names},):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def test_compare_without_torch_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    path = blocked(tmp_path, "torch", "transformers")
    words = ("model", "compare", tmp_path / "model", tmp_path / "model", "--work", tmp_path / "work")
    done = tiltmeter(*words, PYTHONPATH=path)
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'tiltmeter[compare]'\n") and "Traceback" not in done.stderr


def test_phrases_need_no_extra_and_a_search_says_what_to_install(tmp_path: Path) -> None:
    run = run_at(tmp_path / "run")
    path = blocked(tmp_path, *EXTRAS["dashboard"].modules)
    assert "no completions" in tiltmeter("rollouts", run, "--phrases", PYTHONPATH=path).stderr
    assert "tiltmeter[dashboard]" in tiltmeter("rollouts", run, PYTHONPATH=path).stderr


@pytest.mark.parametrize("noun", ["", *NOUNS])
def test_help_needs_no_extra(tmp_path: Path, noun: str) -> None:
    path = blocked(tmp_path, *{one for extra in EXTRAS.values() for one in extra.modules if "tiltmeter" not in one})
    done = tiltmeter(*([noun] if noun else []), "--help", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in names_below(noun))


def test_doctor_reports_what_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiltmeter.cli.doctor import import_problems, import_row

    (tmp_path / "whole_one.py").write_text("print('noise')\n")
    (tmp_path / "broken_one.py").write_text("raise ImportError('libcudart.so.12: not found')\n")
    (tmp_path / "ending_one.py").write_text("import os; os._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    found = import_problems(["broken_one", "ending_one", "no_such_one", "whole_one"])
    assert found == {
        "broken_one": "ImportError: libcudart.so.12: not found", "ending_one": "its import ends the interpreter",
        "no_such_one": "not installed", "whole_one": "",
    }  # fmt: skip
    assert import_row("[x]", found, "something", "pip install x")["ok"] is False
    assert import_row("[x]", {"numpy": ""}, "something", "pip install x")["found"].__str__().startswith("numpy ")
