"""What the trainers' own packages say their settings are; written to the table that the linter ships.

This file, run by Python in an environment that has some of the trainers, renews their part of
`plan/settings/known.json`. Nothing of a trainer is run but its declarations.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib.metadata
import importlib.util
import json
from datetime import datetime
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "src" / "tiltmeter_workbench" / "plan" / "settings" / "known.json"
TRL_METHODS = {
    "grpo": "GRPOConfig",
    "rloo": "RLOOConfig",
    "dpo": "DPOConfig",
    "sft": "SFTConfig",
    "reward": "RewardConfig",
    "kto": "KTOConfig",
    "distillation": "DistillationConfig",
}
#: What accelerate's launcher and TRL's own command line take beside the trainer's fields.
LAUNCHER = (
    "accelerate_config",
    "config_file",
    "env",
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_process_ip",
)
VERL_FILES = ("", "_megatron", "_veomni", "_torchtitan")


def package(name: str) -> Path | None:
    """The folder of a package that is installed, without importing it."""
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def plain(value: object) -> Any:
    """A default as the table holds it; what is no plain value is None, as if nothing were said."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value if value != float("inf") else None
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float, str)) for one in value):
        return list(value)
    return None


def trl_table() -> dict[str, Any]:
    """Fields of TRL's configurations: those all share, and by method what is its own or has another default."""
    import trl
    from trl.scripts.grpo import GRPOScriptArguments
    from trl.scripts.utils import DatasetMixtureConfig

    both = (GRPOScriptArguments, DatasetMixtureConfig, trl.ModelConfig)
    script = {**dict.fromkeys(LAUNCHER), **{name: value for one in both for name, value in fields(one).items()}}
    methods = {method: fields(vars_of(trl, name)) for method, name in TRL_METHODS.items()}
    first, *rest = methods.values()
    shared = {name: value for name, value in first.items() if all(one.get(name, ...) == value for one in rest)}
    own = {
        method: {name: value for name, value in sorted(all_of.items()) if shared.get(name, ...) != value}
        for method, all_of in methods.items()
    }
    return {"version": trl.__version__, "shared": dict(sorted({**script, **shared}.items())), "methods": own}


def vars_of(module: Any, name: str) -> Any:
    return getattr(module, name)


def fields(cls: Any) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(cls):
        made = field.default_factory
        default = made() if made is not dataclasses.MISSING else field.default
        # A folder's name with the hour in it and the like are not settings.
        found[field.name] = None if default is dataclasses.MISSING else plain(default)
    return found


def verl_table() -> dict[str, Any]:
    """Every key of veRL's generated configurations; the plain one's defaults, then what other engines add."""
    import yaml

    folder = package("verl")
    assert folder is not None
    found: dict[str, Any] = {}
    opened: set[str] = set()
    for engine in VERL_FILES:
        text = (folder / "trainer" / "config" / f"_generated_ppo{engine}_trainer.yaml").read_text()
        for name, value in flat(yaml.safe_load(text)):
            if value == {}:
                opened.add(name)
            found.setdefault(name, None if isinstance(value, str) and "$" in value else plain(value))
    return {
        "version": importlib.metadata.version("verl"),
        "open": sorted(opened),
        "methods": {"main_ppo": dict(sorted(found.items()))},
    }


def flat(tree: Any, before: str = "") -> list[tuple[str, Any]]:
    if not isinstance(tree, dict) or not tree:
        return [(before.rstrip("."), tree)]
    return [pair for name, value in tree.items() if name != "_target_" for pair in flat(value, f"{before}{name}.")]


def openrlhf_table() -> dict[str, Any]:
    """Options of OpenRLHF's commands, from the statements that declare them."""
    methods: dict[str, dict[str, Any]] = {}
    choices: dict[str, list[Any]] = {}
    for command in ("train_ppo_ray", "train_dpo", "train_rm", "train_sft"):
        parser = openrlhf_parser(command)
        options = [action for action in parser._actions if action.dest != "help"]
        methods[command] = {
            option.removeprefix("--"): plain(action.default)
            for action in options
            for option in action.option_strings
            if "run_name" not in option
        }
        methods[command]["logger.wandb.run_name"] = None  # has the hour in it
        choices |= {action.dest: list(action.choices) for action in options if action.choices}
    version = importlib.metadata.version("openrlhf")
    return {"version": version, "choices": dict(sorted(choices.items())), "methods": methods}


def openrlhf_parser(command: str) -> argparse.ArgumentParser:
    """The parser of one of OpenRLHF's commands, which cannot be imported without a GPU's libraries."""
    before, _ = main_of(command)
    place: dict[str, Any] = {"argparse": argparse, "datetime": datetime}
    exec(compile(ast.Module(before, []), command, "exec"), place)  # noqa: S102 - declarations of a package that is installed
    parser = place["parser"]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def main_of(command: str) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements of a command's main part: up to where it parses, and what it checks between that and training."""
    folder = package("openrlhf")
    assert folder is not None
    body = next(
        node.body
        for node in ast.parse((folder / "cli" / f"{command}.py").read_text()).body
        if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
    )
    parses = next(at for at, node in enumerate(body) if "parse_args()" in ast.unparse(node))
    ends = next(at for at, node in enumerate(body) if ast.unparse(node).startswith("train(args)"))
    return body[:parses], body[parses + 1 : ends]


TABLES = {"trl": trl_table, "verl": verl_table, "openrlhf": openrlhf_table}


def main() -> None:
    known = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for trainer, table in TABLES.items():
        if package(trainer) is not None:
            known[trainer] = {"read": f"{datetime.now():%Y-%m-%d}", **table()}
    TABLE.write_text(json.dumps(known, indent=0, sort_keys=False) + "\n")


if __name__ == "__main__":
    main()
