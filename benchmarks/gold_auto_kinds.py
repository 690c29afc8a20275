"""First screens: five kinds of TRL scripts plus one line, `tiltmeter.attach(trainer)`. Which of them are BLIND?

    python benchmarks/gold_auto_kinds.py --json

The kinds are those of TRL's examples: a verifier of mathematics, tests of code, a reward model, a judge, and an
environment. Models are tiny and made here, because nothing is downloaded. The first two hold answers or tests; the
datasets of the other three, as TRL's examples have them, are prompts alone. `kinds_blind` counts kinds that hold tests,
answers or evaluations and are BLIND at their end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.checks import Ages
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import judge_run, verdict_of
from tiltmeter_lab.tiny.language import TASKS
from tiltmeter_lab.tiny.python_tasks import python_policy, small_policy, task_tests

ROOT = Path(__file__).parent.parent
SECONDS = 1500  # that one kind may take
HOLDS_GOLD = ("maths verifier", "code tests")


def measure() -> dict[str, Any]:
    """The state of each kind, what attach said, and the step and seconds at which it could first be judged."""
    kinds = {name: run_kind(name) for name in KINDS}
    blind = [name for name in HOLDS_GOLD if kinds[name]["state"] in ("BLIND", "STALE")]
    return {"kinds_blind": len(blind), "kinds_holding_gold": len(HOLDS_GOLD), "kinds": kinds}


def run_kind(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tiltmeter-kinds-") as folder:
        command = [sys.executable, __file__, "--kind", name]
        if name == "maths verifier":  # the quickstart, as it stands
            command = [sys.executable, str(ROOT / "examples" / "trl_quickstart.py")]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": folder}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=True)
        run = RunDirectory(next(Path(folder).glob("*/tiltmeter")))
        until = time.monotonic() + SECONDS
        while monitor_running(run) and time.monotonic() < until:  # its own, which finishes what is stored
            time.sleep(0.5)
        verdict, _, _ = judge_run(run)
        return {"said": spoken(done.stderr), "state": verdict.state, "sentence": verdict.sentence, **first_verdict(run)}


def spoken(text: str) -> list[str]:
    """The lines about gold that attach said."""
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if "tiltmeter: Gold:" in line or "tiltmeter: No gold" in line]
    if not starts:
        return []
    ends = [at for at, line in enumerate(lines) if at > starts[0] and line.startswith("  ")]  # the line of the script
    return [line.partition("tiltmeter: ")[2] or line for line in lines[starts[0] : min(ends, default=starts[0] + 6)]]


def first_verdict(run: RunDirectory) -> dict[str, Any]:
    """The step, and the seconds since the run was opened, at which the state was first neither BLIND nor STALE."""
    state, began = RunFacts(), float(run.attempt(0).get("started", time.time()))
    for event in read_events(run.path / "events"):
        state.add(event)
        if event.kind in ("step_done", "labels_closed") and verdict_of(state, Ages(0.0, None)).state not in BLIND:
            return {"first_step": event.step, "first_seconds": round(event.time - began, 1)}
    return {"first_step": None, "first_seconds": None}


BLIND = ("BLIND", "STALE")


def train_on_tests() -> None:
    """A reward that runs the tests itself, beside the code, as many scripts do."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    import tiltmeter

    def passes(completions: list[str], test_list: list[list[str]], **_: Any) -> list[float]:
        scores = []
        for code, tests in zip(completions, test_list, strict=True):
            names: dict[str, Any] = {}
            try:
                exec(code, names)  # noqa: S102  # the toy language has nothing that could harm
                for test in tests:
                    exec(test, names)  # noqa: S102
                scores.append(1.0)
            except Exception:  # noqa: BLE001  # whatever the code does, it is wrong
                scores.append(0.0)
        return scores

    tasks = [TASKS[at] for at in (0, 2)]
    model = python_policy(small_policy(Path("base"), tasks), Path())
    trainer = GRPOTrainer(
        model=str(model),
        reward_funcs=passes,
        train_dataset=Dataset.from_list([{"prompt": task, "test_list": task_tests(task)} for task in tasks] * 60),
        args=GRPOConfig(**settings(learning_rate=3e-5, per_device_train_batch_size=64, max_steps=60)),
    )
    tiltmeter.attach(trainer)
    trainer.train()


def train_on_prompts(reward: Callable[..., Any] | str) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    import tiltmeter
    from trl_model import SMALL, make_model

    model = make_model(Path("model"), SMALL)
    trainer = GRPOTrainer(
        model=str(model),
        reward_funcs=_reward_model(model) if reward == "reward model" else reward,
        train_dataset=Dataset.from_list([{"prompt": f"what is {number} plus 2"} for number in range(32)]),
        args=GRPOConfig(**settings(per_device_train_batch_size=16, max_steps=8)),
    )
    tiltmeter.attach(trainer)
    trainer.train()


def _reward_model(folder: Path) -> str:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    scorer = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    scorer.config.pad_token_id = tokenizer.pad_token_id
    scorer.save_pretrained("reward-model")
    tokenizer.save_pretrained("reward-model")
    return "reward-model"


def polite(completions: list[str], **_: Any) -> list[float]:
    """Stands for a judge: a score for tone."""
    return [min(1.0, len(set(text)) / 20) for text in completions]


def episode_return(completions: list[str], **_: Any) -> list[float]:
    """Stands for an environment that the policy has acted in: what its episode returned."""
    return [float(text.count("1")) for text in completions]


def settings(**changes: Any) -> dict[str, Any]:
    plain = {"output_dir": "out", "num_generations": 8, "max_completion_length": 20, "report_to": "none", "seed": 1}
    quiet = {"use_cpu": True, "bf16": False, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1000}
    return {**plain, **quiet, "gradient_checkpointing": False, **changes}


KINDS: dict[str, Callable[[], None]] = {
    "maths verifier": lambda: None,
    "code tests": train_on_tests,
    "reward model": lambda: train_on_prompts("reward model"),
    "judge": lambda: train_on_prompts(polite),
    "environment": lambda: train_on_prompts(episode_return),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--kind", choices=list(KINDS), help="train one kind in this folder, and no more")
    options = parser.parse_args()
    if options.kind:
        KINDS[options.kind]()
    else:
        print(json.dumps(measure(), indent=None if options.json else 1))
