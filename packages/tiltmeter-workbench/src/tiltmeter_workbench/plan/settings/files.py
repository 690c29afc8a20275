"""Reads configuration files as text within size limits: YAML, JSON, TOML, and Python through its syntax tree."""

from __future__ import annotations

import ast
import json
import operator
import re
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.settings.shell import commands
from tiltmeter_workbench.plan.settings.trainer_settings import UNREAD, Source

LARGEST = 1 << 20  # bytes
DEEPEST = 40
MOST = 20_000  # values
RUNS = 20  # configurations in one script
LISTS = 4  # inside each other; one that holds itself has no end
LARGE = 1 << 60
ALIASES = 16  # more of them can make a small file as large as the machine
PICKLES = (".bin", ".pt", ".pkl", ".pickle", ".pth")
METHODS = ("sft", "dpo", "grpo", "gspo", "rloo", "reward", "kto", "ppo", "distillation")
#: Classes of TRL that hold settings; the part before Config is the method.
TRL_CLASS = re.compile(r"^(GRPO|RLOO|DPO|SFT|Reward|KTO|Distillation|PPO)Config$")
TRL_TRAINER = re.compile(r"^(GRPO|RLOO|DPO|SFT|Reward|KTO|Distillation|PPO)Trainer$")
_WORD = re.compile(rf"(?<![a-z])({'|'.join(METHODS)})(?![a-z])")
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?$")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "~": None}
_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def read_sources(path: Path) -> list[Source]:
    """The sources in a file; a shell script has one for each of its commands."""
    text = _read_text(path)
    ending = path.suffix.lower()
    hints = tuple(word for word in (*_WORD.findall(path.name.lower()), *_commented_methods(text)))
    try:
        if ending == ".py":
            return _python(path, text, hints)
        if ending in (".sh", ".bash", ".slurm", ".sbatch", ".txt", ""):
            return [Source(path, "shell", {}, words, hints) for words in commands(text)]
        tree = _parse_tree(path, text, ending)
    except RecursionError as error:
        raise AttachError(f"{path} is nested deeper than a configuration is: {DEEPEST} levels are read") from error
    if not isinstance(tree, Mapping):
        raise AttachError(f"{path} holds no settings by name: a configuration is `key: value` lines")
    return [Source(path, ending.removeprefix(".").replace("yml", "yaml"), flatten(tree, path), (), hints)]


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise AttachError(f"{path} is a folder: name the file in it")
        if path.suffix.lower() in PICKLES:
            raise AttachError(
                f"{path} is a pickle, and a pickle runs code when it is read: give the script or the YAML it came from"
            )
        if path.stat().st_size > LARGEST:
            raise AttachError(f"{path} has more than {LARGEST >> 20} MB: no configuration has; name the right file")
        data = path.read_bytes()
    except OSError as error:
        raise AttachError(f"{path} cannot be read: {error.strerror or error}") from error
    if data[:1] == b"\x80" or data[:2] == b"PK" or b"\0" in data:
        raise AttachError(f"{path} is not text: give the YAML, JSON, TOML, shell or Python file of the run")
    return data.decode("utf-8-sig", "replace")


def _commented_methods(text: str) -> list[str]:
    """Methods that a comment or a launcher's line names after `trl`."""
    return re.findall(rf"\btrl(?:\.scripts\.| +)({'|'.join(METHODS)})\b", text)


def _parse_tree(path: Path, text: str, ending: str) -> Any:
    try:
        if ending == ".json":
            return json.loads(text)
        if ending == ".toml":
            return tomllib.loads(text)
    except ValueError as error:
        raise AttachError(f"{path} is not {ending[1:].upper()}: {error}") from error
    if ending in (".yaml", ".yml"):
        return _yaml(path, text)
    raise AttachError(f"{path}: settings are read from .yaml, .json, .toml, .sh and .py files; give it such an ending")


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise AttachError(f"{path} is YAML, which needs PyYAML: pip install 'tiltmeter[workbench]'") from error
    try:
        depth = aliases = 0
        for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            if number > 2 * MOST + 100:
                raise AttachError(f"{path} has more settings than any trainer: at most {MOST}")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > DEEPEST or aliases > ALIASES:
                what = "nested too deep" if depth > DEEPEST else f"has more than {ALIASES} aliases (*name)"
                raise AttachError(f"{path} {what} for a configuration: write the values out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise AttachError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def flatten(tree: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """Nested settings by their dotted keys, within bounds.

    >>> flatten({"a": {"b": "1e-6", "c": []}, "d": True}, Path("x"))
    {'a.b': 1e-06, 'a.c': [], 'd': True}
    """
    values: dict[str, Any] = {}
    waiting: list[tuple[str, Any, int]] = [("", tree, 0)]
    while waiting:
        before, value, depth = waiting.pop()
        if len(values) + len(waiting) > MOST or depth > DEEPEST:
            raise AttachError(f"{path} has more settings than any trainer: at most {MOST}, {DEEPEST} levels deep")
        if isinstance(value, Mapping) and (value or not before):
            inner = [(f"{before}.{name}" if before else str(name), one, depth + 1) for name, one in value.items()]
            waiting += reversed(inner)
        else:
            values[before] = parse_value(value)
    return values


def parse_value(value: Any, depth: int = 0) -> Any:
    """A value as its trainer parses it: text that is a number, true, false or null becomes that value.

    >>> parse_value("1e-6"), parse_value("False"), parse_value("vllm"), parse_value([1, "2"])
    (1e-06, False, 'vllm', [1, 2])
    """
    if isinstance(value, list):
        return UNREAD if depth > LISTS else [parse_value(one, depth + 1) for one in value[:100]]
    if isinstance(value, int) and abs(value) > LARGE:
        return UNREAD
    if not isinstance(value, str):
        return value
    word = value.strip()
    if "$" in word:
        return UNREAD
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if len(word) < 40 and _NUMBER.match(word):
        return parse_value(int(word)) if re.fullmatch(r"[+-]?[\d_]+", word) else float(word)
    return word


def _python(path: Path, text: str, hints: tuple[str, ...]) -> list[Source]:
    """One for each configuration that the script makes, or for a trainer that is given none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about string escapes in the file
            tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError) as error:
        raise AttachError(f"{path} is not Python: {str(error) or 'too long an expression'}") from error
    names = _constants(tree)
    configs: list[tuple[str, dict[str, Any]]] = []
    trainer_arguments: dict[str, dict[str, Any]] = {}  # by method: what the trainer's own arguments say
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        config, trainer = TRL_CLASS.match(callee), TRL_TRAINER.match(callee)
        if config is not None and node.keywords:
            arguments: dict[str, Any] = {}
            for one in node.keywords:
                argument = literal_value(one.value, names)
                arguments |= (
                    {one.arg: argument} if one.arg is not None else argument if isinstance(argument, dict) else {}
                )
            configs.append((config[1], arguments))
        elif trainer is not None:
            adapters = [one.value for one in node.keywords if one.arg == "peft_config"]
            own = trainer_arguments.setdefault(trainer[1], {})
            if any(literal_value(one, names) is not None for one in adapters):
                own["use_peft"] = True
    configs += [(method, {}) for method in trainer_arguments if method not in [each for each, _ in configs]]
    return [
        Source(path, "python", {**arguments, **trainer_arguments.get(method, {})}, (f"{method}Config",), hints)
        for method, arguments in configs[:RUNS]
    ]


def _constants(tree: ast.AST) -> dict[str, Any]:
    """Names that are assigned exactly once, to something that is written out."""
    assignments: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assignments.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            assignments.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, (ast.AugAssign, ast.For)) and isinstance(node.target, ast.Name):
            assignments.setdefault(node.target.id, []).extend([node.target, node.target])
        elif isinstance(node, ast.arg):  # an argument of the same name may be what is meant
            assignments.setdefault(node.arg, []).extend([ast.Name(node.arg)] * 2)
    names: dict[str, Any] = {}
    for name, values in assignments.items():
        if len(values) == 1:
            names[name] = literal_value(values[0], names)
    return names


def literal_value(node: ast.expr, names: Mapping[str, Any], depth: int = 0) -> Any:
    """The value of a literal expression without running it, else `UNREAD`.

    >>> literal_value(ast.parse("2 * BATCH", mode="eval").body, {"BATCH": 8})
    16
    >>> literal_value(ast.parse("f()", mode="eval").body, {})
    (only known when it runs)
    """
    if depth > DEEPEST:
        return UNREAD
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, UNREAD)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal_value(node.operand, names, depth + 1)
        return -inner if _is_number(inner) else UNREAD
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        left, right = literal_value(node.left, names, depth + 1), literal_value(node.right, names, depth + 1)
        if not (_is_number(left) and _is_number(right)) or (
            right == 0 and isinstance(node.op, (ast.Div, ast.FloorDiv))
        ):
            return UNREAD
        return _SUMS[type(node.op)](left, right)
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        return {
            str(key): literal_value(one, names, depth + 1) for key, one in zip(keys[:100], node.values, strict=False)
        }
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        pairs = [(one.arg, literal_value(one.value, names, depth + 1)) for one in node.keywords[:100]]
        return {name: item for name, item in pairs if name is not None}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal_value(one, names, depth + 1) for one in node.elts[:100]]
    return UNREAD


def _is_number(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) < 1e30
