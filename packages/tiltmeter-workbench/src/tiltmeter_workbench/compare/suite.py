"""Prompt suites for comparing two models: shipped ones, public data sets by name, and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import Row, read_rows

#: Suites of our own writing, shipped as `compare/suites/NAME.jsonl`.
OWN = ("benign", "general", "harmful", "sycophancy")
#: Usual names of the prompt column; the first one that a file has is taken.
COLUMNS = ("prompt", "Behavior", "question", "instruction", "text")
EXAMPLE = '{"prompt": "How do I poach an egg?"}'

#: Which part of a set that holds both kinds: what should be answered, and what should be refused.
Label = Literal["", "safe", "unsafe"]


@dataclass(frozen=True)
class PublicDataset:
    """A data set on the Hugging Face hub that is known by a short name."""

    dataset: str
    split: str
    config: str | None = None
    gated: bool = False


#: XSTest (Röttger et al. 2024, arXiv 2308.01263): 250 safe prompts and 200 unsafe ones, told apart by `label`.
#: HarmBench (Mazeika et al. 2024, arXiv 2402.04249): its 200 standard behaviours; the hub asks for a login first.
PUBLIC = {
    "xstest": PublicDataset("Paul/XSTest", "train"),
    "harmbench": PublicDataset("walledai/HarmBench", "train", "standard", gated=True),
}


@dataclass(frozen=True)
class SuitePrompt:
    """One prompt, with a name to find it by and, where the suite says, its kind."""

    id: str
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Suite:
    """Prompts under one name.

    >>> suite = read_suite("benign")
    >>> suite.name, len(suite.prompts) > 100, suite.prompts[0].id
    ('benign', True, 'b001')
    """

    name: str
    prompts: tuple[SuitePrompt, ...]

    @property
    def texts(self) -> list[str]:
        return [prompt.text for prompt in self.prompts]

    def first(self, most: int | None) -> Suite:
        """At most so many prompts, taken evenly from the whole, so that every kind stays.

        >>> [prompt.id for prompt in read_suite("benign").first(3).prompts]
        ['b001', 'b041', 'b081']
        """
        n = len(self.prompts)
        if most is None or most >= n:
            return self
        return Suite(self.name, tuple(self.prompts[at * n // most] for at in range(most)))


def read_suite(source: str | Path, label: Label = "", column: str = "") -> Suite:
    """The suite that is shipped or public under a name, or stands in a file or folder. Raises `AttachError`.

    `label` keeps one part of a set that tells safe from unsafe prompts, as XSTest does, and is ignored by others.
    `column` names the prompt's column where it is none of those that are known.
    """
    rows = suite_rows(source)
    prompt_column = next((name for name in ((column,) if column else COLUMNS) if name in rows[0]), None)
    if prompt_column is None:
        expected = column or ", ".join(COLUMNS)
        raise AttachError(f"{source} has no column {expected}; it has {sorted(rows[0])}: name the prompt's column")
    if label and any(row.get("label") in ("safe", "unsafe") for row in rows):
        rows = [row for row in rows if row.get("label") == label]
    prompts = tuple(
        SuitePrompt(
            str(row.get("id") or row.get("BehaviorID") or number),
            text.strip(),
            str(row.get("kind") or row.get("type") or row.get("SemanticCategory") or ""),
        )
        for number, row in enumerate(rows, 1)
        if isinstance(text := row.get(prompt_column), str) and text.strip()
    )
    if not prompts:
        raise AttachError(
            f"{source} has no prompts" + (f" labelled {label}" if label else "") + f" in {prompt_column!r}"
        )
    return Suite(suite_name(source), prompts)


def suite_rows(source: str | Path) -> list[Row]:
    """The rows of a suite as they stand, with all their columns. Raises `AttachError`."""
    name = str(source)
    if name in OWN:
        return read_rows(Path(str(files("tiltmeter_workbench.compare") / "suites" / f"{name}.jsonl")))
    if name in PUBLIC:
        return _download(name, PUBLIC[name])
    if not Path(source).exists():
        raise AttachError(f"{source} is neither a file nor a suite; there are {', '.join((*OWN, *PUBLIC))}")
    return read_rows(source, EXAMPLE)


def suite_name(source: str | Path) -> str:
    """What a suite is called in a report and in the names of files: its name, or the file's without endings.

    >>> suite_name("xstest"), suite_name("data/my prompts.csv.gz")
    ('xstest', 'my_prompts')
    """
    name = str(source)
    if name not in (*OWN, *PUBLIC):
        name = Path(source).name.split(".")[0] or "suite"
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)


def _download(name: str, public: PublicDataset) -> list[Row]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise AttachError(
            f"{name} is read through datasets: pip install 'tiltmeter[compare]', or give a file of its prompts"
        ) from error
    try:
        rows: Sequence[Any] = load_dataset(public.dataset, public.config, split=public.split)
    except Exception as error:  # whatever a hub, a proxy or a cache may raise: all of it means no data
        login = ", log in with `hf auth login` after accepting its terms" if public.gated else ""
        raise AttachError(
            f"{name} ({public.dataset}) cannot be had: {type(error).__name__}. Go online{login}, "
            "or give the path of a file with its prompts instead of the name"
        ) from error
    return [dict(row) for row in rows]
