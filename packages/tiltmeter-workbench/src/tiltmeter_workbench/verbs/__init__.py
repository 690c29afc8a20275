"""The workbench's verbs: before a run and after it."""

from __future__ import annotations

from tiltmeter.cli.verb_table import BEFORE, CLOSER, Noun, Verb, VerbTable

HERE = "tiltmeter_workbench.verbs"

TABLE = VerbTable(
    {
        "data": Noun(BEFORE, "What a run is trained on: preferences, constitution, traps."),
        "reward": Noun(BEFORE, "A reward before it is optimised: forecast, tilt, sandbox."),
        "gold": Noun(
            BEFORE, "A check for gold: draft one, try it, compare it with what you say, and ways of asking a judge."
        ),
        "model": Noun(BEFORE, "A model to train: plan, train, compare with its base, sample."),
    },
    {
        "probe": Verb(f"{HERE}.probe", panel=BEFORE),
        "lint": Verb(f"{HERE}.lint", panel=BEFORE),
        "data preferences": Verb(f"{HERE}.data.preferences"),
        "data constitution": Verb(f"{HERE}.data.constitution"),
        "data traps": Verb(f"{HERE}.data.traps"),
        "reward forecast": Verb(f"{HERE}.reward.forecast"),
        "reward tilt": Verb(f"{HERE}.reward.tilt"),
        "reward sandbox": Verb(f"{HERE}.reward.sandbox"),
        "gold draft": Verb(f"{HERE}.gold.verbs", "draft"),
        "gold try": Verb(f"{HERE}.gold.verbs", "try_check_verb"),
        "gold label": Verb(f"{HERE}.gold.verbs", "label"),
        "gold oversight": Verb(f"{HERE}.gold.oversight"),
        "model plan": Verb(f"{HERE}.model.plan"),
        "model train": Verb(f"{HERE}.model.train"),
        "model compare": Verb(f"{HERE}.model.compare"),
        "model trail": Verb(f"{HERE}.model.trail"),
        "model diversity": Verb(f"{HERE}.model.diversity"),
        "model repay": Verb(f"{HERE}.model.repay"),
        "witness": Verb(f"{HERE}.run.witness", panel=CLOSER),
        "pin": Verb(f"{HERE}.run.pin", panel=CLOSER),
    },
)
