"""Verbs about simulated runs."""

from __future__ import annotations

from tiltmeter.cli.verb_table import PROVE, Noun, Verb, VerbTable

FILE = "tiltmeter_lab.verbs.campaigns"

TABLE = VerbTable(
    {"lab": Noun(PROVE, "Simulated runs with known ground truth, and how well every alarm does on them.")},
    {f"lab {name}": Verb(FILE, name) for name in ("run", "score", "report")},
)
