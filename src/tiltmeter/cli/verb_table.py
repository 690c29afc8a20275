"""Every verb of the command line: how it is spelled, where its function stands, and where `--help` lists it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

FIRST, BEFORE, RUNS, PROVE = "Start here", "Before a run", "During and after a run", "Prove it"
FOLLOW, CLOSER, FILES = "While it runs", "Look closer", "Its files"


@dataclass(frozen=True, slots=True)
class Noun:
    """A group of verbs about one thing, and the heading under which `tiltmeter --help` lists it."""

    panel: str
    help: str


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb's function stands, and under which heading `--help` lists it."""

    file: str
    function: str = ""  # if it is not the last part of the file's name
    panel: str = "Verbs"

    @property
    def name(self) -> str:
        return self.function or self.file.rpartition(".")[2]


NOUNS = {
    "data": Noun(BEFORE, "What a run is trained on: preferences, constitution, traps."),
    "reward": Noun(BEFORE, "A reward before it is optimised: forecast, tilt, sandbox."),
    "gold": Noun(
        BEFORE, "A check for gold: draft one, try it, compare it with what you say, and ways of asking a judge."
    ),
    "model": Noun(BEFORE, "A model to train: plan, train, compare with its base, sample."),
    "run": Noun(RUNS, "One run: watch it, answer its alarms, report, compare two, keep or delete its files."),
    "lab": Noun(PROVE, "Simulated runs with known ground truth, and how well every alarm does on them."),
}

#: By its whole spelling; the order is that of `--help`.
VERBS = {
    "show": Verb("show", panel=FIRST),
    "view": Verb("view", panel=FIRST),
    "audit": Verb("audit", panel=FIRST),
    "probe": Verb("probe", panel=FIRST),
    "lint": Verb("lint", panel=FIRST),
    "quickstart": Verb("quickstart", panel=BEFORE),
    "doctor": Verb("doctor", panel=BEFORE),
    "serve": Verb("serve", panel=RUNS),
    "accounts": Verb("serve", "accounts", RUNS),
    "mcp": Verb("mcp", panel=RUNS),
    "demo": Verb("demo", panel=PROVE),
    "data preferences": Verb("data.preferences"),
    "data constitution": Verb("data.constitution"),
    "data traps": Verb("data.traps"),
    "reward forecast": Verb("reward.forecast"),
    "reward tilt": Verb("reward.tilt"),
    "reward sandbox": Verb("reward.sandbox"),
    "gold draft": Verb("gold.verbs", "draft"),
    "gold try": Verb("gold.verbs", "try_check_verb"),
    "gold label": Verb("gold.verbs", "label"),
    "gold oversight": Verb("gold.oversight"),
    "model plan": Verb("model.plan"),
    "model train": Verb("model.train"),
    "model compare": Verb("model.compare"),
    "model trail": Verb("model.trail"),
    "model diversity": Verb("model.diversity"),
    "model repay": Verb("model.repay"),
    "run watch": Verb("run.watch", panel=FOLLOW),
    "run track": Verb("run.track", panel=FOLLOW),
    "run alarms": Verb("run.actions", "alarms", FOLLOW),
    "run acknowledge": Verb("run.actions", "acknowledge", FOLLOW),
    "run dismiss": Verb("run.actions", "dismiss", FOLLOW),
    "run actions": Verb("run.actions", panel=FOLLOW),
    "run approve": Verb("run.actions", "approve", FOLLOW),
    "run reject": Verb("run.actions", "reject", FOLLOW),
    "run undo": Verb("run.actions", "undo", FOLLOW),
    "run spot": Verb("run.spot", panel=CLOSER),
    "run witness": Verb("run.witness", panel=CLOSER),
    "run rollouts": Verb("run.rollouts", panel=CLOSER),
    "run picture": Verb("run.picture", panel=CLOSER),
    "run report": Verb("run.report", panel=CLOSER),
    "run publish": Verb("run.publish", panel=CLOSER),
    "run diff": Verb("run.diff", panel=CLOSER),
    "run onset": Verb("run.onset", panel=CLOSER),
    "run phrases": Verb("run.report", "phrases", CLOSER),
    "run pin": Verb("run.pin", panel=CLOSER),
    "run replay": Verb("run.maintenance", "replay", FILES),
    "run verify": Verb("run.maintenance", "verify", FILES),
    "run upload": Verb("run.upload", panel=FILES),
    "run pack": Verb("run.maintenance", "pack", FILES),
    "run purge": Verb("run.maintenance", "purge", FILES),
    "lab run": Verb("lab.campaigns", "run"),
    "lab score": Verb("lab.campaigns", "score"),
    "lab report": Verb("lab.campaigns", "report"),
}


def names_below(noun: str) -> list[str]:
    """The verbs of a noun; with "" what `tiltmeter --help` lists: the first verbs, then nouns and others by moment."""
    if noun:
        return [spelling.removeprefix(f"{noun} ") for spelling in VERBS if spelling.startswith(f"{noun} ")]
    panels = {name: verb.panel for name, verb in VERBS.items() if " " not in name}
    panels |= {name: one.panel for name, one in NOUNS.items()}
    order = (FIRST, BEFORE, RUNS, PROVE)
    return sorted(panels, key=lambda name: order.index(panels[name]))


def summary(verb: Verb) -> str:
    """The first sentence of a verb's help, read from its file: to import all of them takes seconds.

    >>> summary(VERBS["demo"])
    'See an alarm: a recorded run that games its reward, and its healthy twin, measured to a verdict in seconds.'
    """
    source = Path(__file__).parent.joinpath(*verb.file.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    text = next(ast.get_docstring(node) for node in functions if node.name == verb.name)
    return " ".join((text or "").partition("\n\n")[0].split())
