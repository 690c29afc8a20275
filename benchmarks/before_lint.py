"""The linter's two figures: bad configurations that it catches, and shipped examples that it wrongly calls broken.

The bad ones are the files of `plan/configs/bad` in the workbench's tests, each with the rule it must trip. The shipped
ones are the settings of the trainers' own examples, `plan/shipped.jsonl` there, put back into the form their trainer
reads.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tiltmeter_workbench.plan.lint.linter import lint_file

TESTS = Path(__file__).parent.parent / "packages/tiltmeter-workbench/workbench_tests/plan"
BAD = TESTS / "configs"


def shipped() -> list[dict[str, Any]]:
    """The settings of examples that the trainers ship, one record each, with where they stand."""
    return [json.loads(line) for line in (TESTS / "shipped.jsonl").read_text().splitlines()]


def put_back(example: Mapping[str, Any], folder: Path) -> Path:
    """A file of the trainer's own form with an example's settings."""
    pairs = [setting.partition("=") for setting in example["settings"]]
    command: str = example["command"]
    if example["form"] == "yaml":
        file = folder / "config.yaml"
        file.write_text(f"# trl {command} --config config.yaml\n" + "".join(f"{k}: {v}\n" for k, _, v in pairs))
    elif example["form"] == "python":
        file = folder / "train.py"
        settings = [f"{key}={literal(value)}" for key, _, value in pairs if key != "peft_config"]
        adapter = "".join(f", {key}={value}" for key, _, value in pairs if key == "peft_config")
        trainer = command.replace("Config", "Trainer")
        file.write_text(f"args = {command}({', '.join(settings)})\n{trainer}(args=args{adapter}).train()\n")
    else:
        file = folder / "run.sh"
        start = f"python3 {command}" if command.endswith(".py") else f"python3 -m {command}"
        file.write_text(" \\\n    ".join([start, *written(example["trainer"], pairs)]) + "\n")
    return file


def written(trainer: str, pairs: Sequence[tuple[str, str, str]]) -> list[str]:
    if trainer == "verl":
        return [shlex.quote(f"{key}={value}") for key, _, value in pairs]
    return [f"--{key} {shlex.join(value.split(','))}" if equals else f"--{key}" for key, equals, value in pairs]


def literal(value: str) -> str:
    try:
        return repr(float(value) if any(letter in value for letter in ".e") else int(value))
    except ValueError:
        return value if value in ("True", "False", "None") else repr(value)


def figures(seed: int = 2026, quick: bool = False) -> dict[str, object]:
    """Counts, and a line for each shipped example. Nothing here is random or long: seed and quick change nothing."""
    expected: dict[str, str] = json.loads((BAD / "bad.json").read_text())
    caught = {
        name: rule in {one.rule for one in lint_file(BAD / "bad" / name).errors} for name, rule in expected.items()
    }
    rows: list[dict[str, object]] = []
    with TemporaryDirectory() as folder:
        for example in shipped():
            found = lint_file(put_back(example, Path(folder)), trainer=example["trainer"])
            notes = sum(one.level == "note" for one in found.complaints)
            rows.append(
                {
                    "trainer": example["trainer"],
                    "example": example["name"],
                    "method": found.method,
                    "errors": len(found.errors),
                    "notes": notes,
                }
            )
    return {
        "lint_bad": len(expected),
        "lint_caught": sum(caught.values()),
        "lint_shipped": len(rows),
        "lint_false": sum(row["errors"] != 0 for row in rows),
        "lint_examples": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    print(json.dumps(figures(options.seed, options.quick), indent=None if options.json else 2))


if __name__ == "__main__":
    main()
