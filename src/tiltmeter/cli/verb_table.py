"""Every verb of the command line: how it is spelled, where its function stands, and where `--help` lists it.

The core's verbs are listed here. A package adds its own by an entry point of the group `tiltmeter.verbs`, whose value
is a `VerbTable`. Verbs of a package of ours that is not installed are listed as well, with the line that installs it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

FIRST, BEFORE, TEAM, PROVE = "Start here", "Before a run", "For a team and for agents", "Prove it"
FOLLOW, CLOSER, FILES = "While it runs", "Look closer", "Its files"


@dataclass(frozen=True, slots=True)
class Noun:
    """A group of verbs about one thing, and the heading under which `tiltmeter --help` lists it."""

    panel: str
    help: str


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb's function stands, and under which heading `--help` lists it."""

    module: str
    function: str = ""  # if it is not the last part of the module's name
    panel: str = "Verbs"

    @property
    def name(self) -> str:
        return self.function or self.module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class VerbTable:
    """Nouns by name and verbs by their whole spelling, in the order of `--help`."""

    nouns: Mapping[str, Noun]
    verbs: Mapping[str, Verb]


@dataclass(frozen=True, slots=True)
class MissingVerb:
    """A verb or noun of a package of ours that is not installed."""

    extra: str
    panel: str
    help: str

    @property
    def fix(self) -> str:
        return f"pip install 'tiltmeter[{self.extra}]'"


CORE = VerbTable(
    {},
    {
        "show": Verb("tiltmeter.cli.show", panel=FIRST),
        "view": Verb("tiltmeter.cli.view", panel=FIRST),
        "audit": Verb("tiltmeter.cli.audit", panel=FIRST),
        "demo": Verb("tiltmeter.cli.demo", panel=FIRST),
        "doctor": Verb("tiltmeter.cli.doctor", panel=FIRST),
        "quickstart": Verb("tiltmeter.cli.quickstart", panel=BEFORE),
        "serve": Verb("tiltmeter.cli.serve", panel=TEAM),
        "mcp": Verb("tiltmeter.cli.mcp", panel=TEAM),
        "watch": Verb("tiltmeter.cli.run.watch", panel=FOLLOW),
        "track": Verb("tiltmeter.cli.run.track", panel=FOLLOW),
        "alarms": Verb("tiltmeter.cli.run.actions", "alarms", FOLLOW),
        "dismiss": Verb("tiltmeter.cli.run.actions", "dismiss", FOLLOW),
        "approve": Verb("tiltmeter.cli.run.actions", "approve", FOLLOW),
        "undo": Verb("tiltmeter.cli.run.actions", "undo", FOLLOW),
        "spot": Verb("tiltmeter.cli.run.spot", panel=CLOSER),
        "rollouts": Verb("tiltmeter.cli.run.rollouts", panel=CLOSER),
        "report": Verb("tiltmeter.cli.run.report", panel=CLOSER),
        "diff": Verb("tiltmeter.cli.run.diff", panel=CLOSER),
        "onset": Verb("tiltmeter.cli.run.onset", panel=CLOSER),
        "replay": Verb("tiltmeter.cli.run.maintenance", "replay", FILES),
        "verify": Verb("tiltmeter.cli.run.maintenance", "verify", FILES),
        "upload": Verb("tiltmeter.cli.run.upload", panel=FILES),
        "pack": Verb("tiltmeter.cli.run.maintenance", "pack", FILES),
        "purge": Verb("tiltmeter.cli.run.maintenance", "purge", FILES),
    },
)

#: What our own packages add, in the order of `--help`.
OURS = {
    "probe": MissingVerb("workbench", BEFORE, "Probe a reward before it is optimised."),
    "lint": MissingVerb("workbench", BEFORE, "Check a training configuration for known mistakes."),
    "data": MissingVerb("workbench", BEFORE, "What a run is trained on: preferences, constitution, traps."),
    "reward": MissingVerb("workbench", BEFORE, "A reward before it is optimised: forecast, tilt, sandbox."),
    "gold": MissingVerb("workbench", BEFORE, "A check for gold: draft one, try it, compare it with labels."),
    "model": MissingVerb("workbench", BEFORE, "A model to train: plan, train, compare with its base, sample."),
    "witness": MissingVerb("workbench", CLOSER, "Ask a language model what was done in a run."),
    "pin": MissingVerb("workbench", CLOSER, "Sample saved checkpoints on the same few prompts."),
    "lab": MissingVerb("lab", PROVE, "Simulated runs with known ground truth."),
}


@cache
def all_verbs() -> VerbTable:
    """The core's verbs and those of every package that is installed."""
    tables = [CORE, *(entry.load() for entry in sorted(entry_points(group="tiltmeter.verbs"), key=lambda e: e.name))]
    nouns = {name: noun for table in tables for name, noun in table.nouns.items()}
    return VerbTable(nouns, {name: verb for table in tables for name, verb in table.verbs.items()})


def missing_verbs() -> dict[str, MissingVerb]:
    """What our packages would add, of those that are not installed."""
    table = all_verbs()
    return {name: one for name, one in OURS.items() if name not in table.nouns and name not in table.verbs}


def names_below(noun: str) -> list[str]:
    """The verbs of a noun; with "" what `tiltmeter --help` lists: the first verbs, then nouns and others by moment."""
    table = all_verbs()
    if noun:
        spellings = [*table.verbs, *missing_verbs()]
        return [spelling.removeprefix(f"{noun} ") for spelling in spellings if spelling.startswith(f"{noun} ")]
    panels = {name: verb.panel for name, verb in table.verbs.items() if " " not in name}
    panels |= {name: one.panel for name, one in table.nouns.items()}
    panels |= {name: one.panel for name, one in missing_verbs().items() if " " not in name}
    order = (FIRST, FOLLOW, CLOSER, FILES, TEAM, BEFORE, PROVE)
    return sorted(panels, key=lambda name: order.index(panels[name]))


def summary(verb: Verb) -> str:
    """The first sentence of a verb's help, read from its file: to import all of them takes seconds.

    >>> summary(CORE.verbs["demo"])
    'See an alarm: a recorded run that games its reward, and its healthy twin, measured to a verdict in seconds.'
    """
    spec = find_spec(verb.module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    text = next(ast.get_docstring(node) for node in functions if node.name == verb.name)
    return " ".join((text or "").partition("\n\n")[0].split())
