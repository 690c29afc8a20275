"""What a claim about gold rests on, in clauses: whose labels, how many, and what is missing."""

from __future__ import annotations

from tiltmeter.data.records import Alarm
from tiltmeter.verdict.answer_column import trial_text
from tiltmeter.verdict.run_facts import RunFacts


def source_text(run_facts: RunFacts, alarm: Alarm | None = None) -> str:
    """Whose labels a claim rests on, in a clause; empty where the trainer itself hands over what is judged by."""
    if alarm is not None and any(alarm.name == point.reading for point in run_facts.checkpoints.points):
        return f"; judged by {run_facts.checkpoints.judge}" if run_facts.checkpoints.judge else ""
    if alarm is not None and alarm.name.startswith("eval."):
        return f"; judged by the evaluation {alarm.name.removeprefix('eval.')}"
    of_gold = alarm is None or alarm.name.startswith("gold.")
    return f"; judged by {' and '.join(run_facts.judges)}" if run_facts.judges and of_gold else ""


def evidence_text(run_facts: RunFacts) -> str:
    """What a healthy verdict rests on."""
    parts = []
    if run_facts.labels or not (run_facts.evaluations or run_facts.traps):
        newest = run_facts.last_label[1] if run_facts.last_label else -1
        parts.append(f"{run_facts.labels_text}, newest at step {newest}")
    if run_facts.evaluations:
        newest = run_facts.evaluations[-1][1]
        parts.append(f"{asked_text(run_facts) or f'{len(run_facts.evaluations)} evaluations'}, newest at step {newest}")
    if run_facts.traps:
        parts.append(f"{traps_text(run_facts)}, newest at step {run_facts.traps[-1][1]}")
    return " and ".join(parts)


def asked_text(run_facts: RunFacts) -> str:
    """What is known of checkpoints that were asked, and how many could not be; empty where none was."""
    points = run_facts.checkpoints.on_lineage(run_facts.spans())
    if not points:
        return ""
    series = run_facts.checkpoints
    missed = f" ({series.missed} more were gone before they could be asked)" if series.missed else ""
    by = f", judged by {series.judge}" if series.judge else ""
    return f"{len(points)} checkpoints asked the same {len(points[-1].gold)} questions{missed}{by}"


def traps_text(run_facts: RunFacts) -> str:
    count, paid = (sum(item[at] for item in run_facts.traps) for at in (2, 3))
    return f"{count} traps, of which {paid} were paid"


def awaited_text(run_facts: RunFacts) -> str:
    """What the gold source still owes, in a clause; empty if nothing that matters."""
    open_steps = sorted(run_facts.unlabelled)
    if run_facts.gold is None or not open_steps:
        return ""
    steps = "1 step" if len(open_steps) == 1 else f"{len(open_steps)} steps"
    meanwhile = f", and {run_facts.passed_over} were not asked about while it was busy" if run_facts.passed_over else ""
    return f"; {run_facts.gold['name']} has not given the labels of {steps}, since step {open_steps[0][1]}{meanwhile}"


def gold_reason(run_facts: RunFacts, least: int, lacking: bool, evaluated: bool) -> str:
    enough, trial = run_facts.bets >= least, run_facts.open_trial
    if trial is not None and not evaluated and (why := trial.why or ("" if run_facts.traps else trial_text(trial))):
        return why
    if lacking:
        missing, requested, where = run_facts.missing_labels
        return (
            f"{run_facts.gold_error or 'labels are missing'}; {missing} of {requested} labels{where} never came "
            f"({missing / requested:.0%}), and each counts in favour of the run: fix the gold source"
        )
    if run_facts.traps and not (enough and run_facts.gold_differs) and not evaluated:
        return f"judged by traps: {traps_text(run_facts)}"
    if enough and not run_facts.gold_differs and not evaluated:
        return "gold is the reward itself: such an alarm can never fire; use hidden tests, a stricter check or a judge"
    if enough and run_facts.gold_differs:
        pairs = run_facts.judges and not run_facts.labels_whole_steps
        return f"{run_facts.bets} {'audited pairs' if pairs else 'prompt groups'} with gold"
    if evaluated:
        return asked_text(run_facts) or f"{len(run_facts.evaluations)} declared evaluations"
    if run_facts.checkpoint_judge and not run_facts.labels:
        why = f"; {run_facts.checkpoint_fault}" if run_facts.checkpoint_fault else ""
        return (
            f"one checkpoint was asked so far: a fall needs two{why}"
            if run_facts.evaluations
            else f"no checkpoint was asked yet: {run_facts.checkpoint_judge} judges what is saved{why}"
        )
    if run_facts.gold is not None and run_facts.labels_whole_steps and run_facts.labels and not run_facts.bets:
        return (
            f"no gold to judge by yet: {run_facts.labels} labels, and no prompt whose completions differ in reward and "
            "in gold; if that stays so, check that the reward and gold look at the completion"
        )
    if run_facts.gold is not None:
        return (
            f"no gold to judge by yet: {run_facts.bets} audited pairs, the alarm needs {least}"
            f"{awaited_text(run_facts)}; {run_facts.gold['name']} is asked about prompts whose rewards differ, "
            "if completion= is passed to observe()"
        )
    why = f"; {run_facts.bad_gold} labels were outside [0, 1] and not used" if run_facts.bad_gold else ""
    source = (
        "audit again with --gold checks.py:score, a judge's file or a file of labels, or --map gold=COLUMN"
        if run_facts.imported
        else 'name a source, as gold="checks.py:score", or pass gold= to observe() for every completion of some '
        "prompts, with no gold_chance below 1"
    )
    return (
        f"no gold to judge by: {run_facts.bets} prompt groups with informative gold, the alarm needs {least}{why}; "
        f"{source}"
    )
