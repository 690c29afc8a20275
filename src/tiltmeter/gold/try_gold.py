"""Tries a gold function on a few rows of the dataset before the run begins, in a process that can be killed.

A function that fails on every row, or answers with something else than a number from 0 to 1, would leave a run without
gold, and that would be seen when it is over. Nothing is asked of a judge, which costs money, or of people.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tiltmeter.data.batches import plain_text
from tiltmeter.data.dataset_facts import from_text, to_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldSource
from tiltmeter.gold.function_process import FunctionProcess
from tiltmeter.gold.known_answers import MEASURED, OF_AGENTS, columns_of_text, own_answer
from tiltmeter.gold.label_cost import STEP_SECONDS
from tiltmeter.gold.label_files import Label, to_label
from tiltmeter.safety.safe_text import log_line

ROWS = 4  # of the dataset
SECONDS = 20.0  # that all of it may take, the start of the function's process included
OTHER_TEXT = "I do not know."
TEXTS = {"own": "the dataset's own answer", "other": f"{OTHER_TEXT!r}", "empty": "an empty one"}
SCORED = {"own": "the dataset's own answers score", "other": f"{OTHER_TEXT!r} scores", "empty": "an empty text"}
#: Errors that no other completion cures, and what to do. An error of another kind may be due to the texts tried.
FIXES = {
    r"TypeError: .*is not a number from 0 to 1": "return a number from 0 to 1, or None where it cannot tell",
    r"TypeError: .*plain text here": "use the text as it is",
    r"TypeError: .*not iterable|ValueError: \d+ answers to": "return a list with one number for each completion",
    r"(Name|UnboundLocal)Error": "define or import it where the function stands",
    r"(Import|ModuleNotFound)Error": "install it where the run is started, or import it from a file that is there",
    r"(FileNotFound|Permission|NotADirectory)Error": "give the whole path of a file that is there",
    r"FunctionProcessError: its process (could not load|ended)": "see what it does when it is imported or called",
    r"(Type|Attribute)Error": "call it by hand with a prompt and a completion that are text",
}


def try_gold(source: GoldSource | None, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What is to be said of a gold function after it was tried on some of these rows, in at most three lines.

    Raises `AttachError` where it can never give a label. Says nothing of other sources, or if there are no rows.
    """
    if not isinstance(source, FunctionProcess) or not rows:
        return ()
    columns = {name for row in rows for name in row}
    needed = [name for name in source.required_columns if name not in columns and name not in MEASURED]
    if later := [name for name in needed if name in OF_AGENTS]:
        return (f"{source.name} needs {later[0]!r}, which no dataset has: it is first asked when the run has begun.",)
    if needed:
        has = ", ".join(sorted(columns - {"prompt"})) or "no column but the prompt"
        wanted = " and ".join(map(repr, needed))
        raise AttachError(
            f"gold {source.name} needs {wanted}, which the dataset does not have (it has {has}): name the parameter as "
            "the column, or give it a default"
        )
    requests = _requests(rows)
    trial = FunctionProcess(source.name, source.function, SECONDS, SECONDS, source.file)
    began = start = time.monotonic()
    labels: dict[str, list[Label]] = {}
    try:
        trial.label(requests["other"][:1])  # the first call may load something
        start = time.monotonic()
        for kind, texts in requests.items():  # by itself: a text may spoil a call for its neighbours
            trial.timeout = max(1.0, began + SECONDS - time.monotonic())
            labels[kind] = [to_label(answer) for answer in trial.label(texts)]
    finally:
        trial.close()
    seconds = (time.monotonic() - start) / sum(map(len, labels.values()))
    _refuse_broken(source.name, labels)
    return _describe(source.name, labels, seconds)


def _requests(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[CompletionToLabel]]:
    """A few rows: with the text of the dataset that is likest to a completion, with another one, and with none."""
    chosen = [rows[at * (len(rows) - 1) // max(ROWS - 1, 1)] for at in range(min(ROWS, len(rows)))]
    requests: dict[str, list[CompletionToLabel]] = {"own": [], "other": [], "empty": []}
    for at, row in enumerate(chosen):
        facts = from_text(to_text({name: value for name, value in row.items() if name != "prompt"}))
        own = own_answer(row)
        texts = {"other": OTHER_TEXT, "empty": ""} | ({"own": own} if own else {})
        for kind, text in texts.items():
            columns, prompt = columns_of_text(text, facts), plain_text(row.get("prompt"))
            requests[kind].append(CompletionToLabel(f"try-{at}", 0, 0, at, kind, prompt, text, columns))
    return requests


def _refuse_broken(name: str, labels: Mapping[str, Sequence[Label]]) -> None:
    every = [label for part in labels.values() for label in part]
    outside = [label.why for label in every if re.match(r"-?[\d.e+]+ is not a number", label.why)]
    if outside:
        raise AttachError(
            f"gold {name}: {outside[0]}: divide by the most that it can give, so that 1 is the best there is"
        )
    reasons = [label.why for label in (*labels["own"], *labels["other"])]  # an empty text may fail in a way of its own
    fixes = [next((fix for pattern, fix in FIXES.items() if re.match(pattern, why)), None) for why in reasons]
    if all(label.value is None for label in every) and None not in fixes:
        raise AttachError(
            f"gold {name} fails on every row of the dataset that was tried: {log_line(reasons[0], 200)}: {fixes[0]}"
        )


def _describe(name: str, labels: Mapping[str, Sequence[Label]], seconds: float) -> tuple[str, ...]:
    values = {kind: [one.value for one in part if one.value is not None] for kind, part in labels.items()}
    scores = [f"{what} {_range(values[kind])}" for kind, what in SCORED.items() if values[kind]]
    tried = f"{name} was tried on {len(labels['other'])} rows of the dataset, {1e3 * seconds:.2g} ms a label"
    lines = [f"{tried}: {', '.join(scores) or 'no label came'}."]
    missing = [(kind, one.why) for kind, part in labels.items() for one in part if one.value is None]
    if missing:
        kind, why = missing[0]
        lines.append(
            f"{len(missing)} of {sum(map(len, labels.values()))} texts have no label, {TEXTS[kind]} among them: "
            f"{log_line(why, 160)}. Missing labels hide harm: return a number wherever it can be told."
        )
    every = {value for part in values.values() for value in part}
    if len(every) == 1 and values["own"] and not missing:
        lines.append(f"Every text scores {every.pop():g}, right or wrong: does it look at the completion?")
    elif values["own"] and not missing and _is_no_higher(labels):
        lines.append(
            f"No row's own answer scores higher than {OTHER_TEXT!r} or an empty text: does it look at the completion, "
            "and in which form does it want an answer?"
        )
    elif seconds > STEP_SECONDS:
        lines.append(
            f"A label takes {seconds:.1f} s: about 2 % of the rollouts are labelled; Gold(share=) says another."
        )
    return tuple(lines)


def _is_no_higher(labels: Mapping[str, Sequence[Label]]) -> bool:
    """Whether no known right answer scores more than what is known to be worth nothing. Without missing labels."""
    other = [one.value or 0.0 for kind in ("other", "empty") for one in labels[kind]]
    rows = len(labels["other"])
    nothing = [max(other[row::rows]) for row in range(rows)]
    return len(labels["own"]) == rows and all(
        (own.value or 0.0) <= most for own, most in zip(labels["own"], nothing, strict=True)
    )


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
