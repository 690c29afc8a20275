"""The kit for TRL: the example as it stands, on a tiny model, and every block of the page against real signatures."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.rundir.store import RunDirectory

KIT = Path(__file__).parents[2] / "integrations" / "trl"
PAGE = (KIT / "tiltmeter_integration.md").read_text()


FLAGS = {
    "output_dir": "out",
    "max_steps": "3",
    "per_device_train_batch_size": "8",
    "num_generations": "4",
    "max_completion_length": "8",
    "report_to": "none",
    "use_cpu": "True",
    "bf16": "False",
}


def words(model: Path) -> list[str]:
    """The options of the script."""
    return [word for name, value in FLAGS.items() for word in (f"--{name}", value)] + [
        "--model_name_or_path",
        str(model),
    ]


def test_the_example_trains_as_it_stands(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["grpo_tiltmeter.py", *words(tiny_model)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch and TRL warn about themselves
        runpy.run_path(str(KIT / "grpo_tiltmeter.py"), run_name="__main__")
    run = RunDirectory(tmp_path / "out" / "tiltmeter")
    batches = [run.read(file)[0] for file in run.files(0)]
    assert [len(batch) for batch in batches] == [8, 8, 8] and set(batches[0].rewards) == {"number_reward"}
    assert run.ended(0)


def test_the_example_is_judged_from_a_terminal(tiny_model: Path, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TILTMETER_")}
    env |= {"XDG_STATE_HOME": str(tmp_path / "state")}

    def command(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )

    done = command(str(KIT / "grpo_tiltmeter.py"), *words(tiny_model))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Gold: the dataset's answers ('answer')" in done.stderr, done.stderr[-2000:]
    command("-m", "tiltmeter", "watch", "out/tiltmeter", "--plain", "--gold", "answers")  # its own may be at it
    verdict: dict[str, Any] = json.loads(command("-m", "tiltmeter", "show", "out", "--json").stdout)
    assert verdict["steps"] == 3 and verdict["completions"] == 24 and verdict["batches"]["lost"] == 0
    assert verdict["labels"] == 24


def test_the_page_has_the_parts_that_trls_pages_have() -> None:
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", PAGE, flags=re.S), re.M)
    assert titles[:3] == ["Tiltmeter Integration", "Usage", "What You Get"]
    assert "Distributed Training" in titles and "Example" in titles
    assert PAGE.count("<hfoption id=") == PAGE.count("</hfoption>") and "<hfoptions id=" in PAGE


def test_every_call_of_the_page_fits_its_signature() -> None:
    trl = pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
    tiltmeter = pytest.importorskip("tiltmeter")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    inline = re.findall(r"`(tiltmeter\.attach\(.*?\))`", PAGE)
    calls = [node for text in (*blocks, *inline) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    checked = set()
    for call in calls:
        name = ast.unparse(call.func)
        target = {"tiltmeter.attach": tiltmeter.attach}.get(name) or getattr(trl, name, None)
        if target is not None:
            keywords = {word.arg or "": None for word in call.keywords}
            inspect.signature(target).bind(*call.args, **keywords)
            checked.add(name)
    assert checked == {"tiltmeter.attach", "GRPOTrainer", "RLOOTrainer", "DPOTrainer"} and len(inline) >= 5
    with pytest.raises(TypeError):  # the check can fail
        inspect.signature(trl.GRPOTrainer).bind(rewards=None)


def test_the_command_of_the_page_and_of_the_script_is_one() -> None:
    script = (KIT / "grpo_tiltmeter.py").read_text()
    (shown,) = re.findall(r"(python examples/scripts.*?)\n```", PAGE, re.S)
    assert shown in script
