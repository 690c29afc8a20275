"""Facts of a dataset that divide the rows of a run into slices without being named: topic, source, language, level.

They are chosen from the run's first steps, by how often their values occur among prompts and never by reward or gold,
before anything is bet on them; so tests of these slices are in the run's bound like those of named ones. A fact
divides well if most prompts have it, if prompts share its values, and if it has few of them, those that are still to
come included (Chao 1984, in its bias-corrected form). A row belongs to one slice of each fact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import component_name
from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.memo import shared
from tiltmeter.data.records import RolloutBatch

FACT = "fact."  # begins the slice of a fact's value; no environment's name has a dot there
MOST_PARTS = 48  # slices of all facts together, as far as the first steps tell
MOST_FACTS = 4
MOST_KEYS = 64  # facts of a row that are looked at
LONGEST = 60  # characters of a value that names a slice
COVERED = 0.9  # of prompts, at least, that have the fact
LARGEST = 0.95  # of them, at most, that have one value
LEAST_PAIRS = 8  # of prompts with one value: a fact that no two prompts share is a name
#: What names a prompt or its answer, and divides nothing that could be hacked by itself.
NO_SLICES = re.compile(
    "answers?|choices|completion|gold(_answer)?|ground_truth|hash|id|idx|index|labels?|prompt(_id)?|question|row|seed|"
    "solution|split|target|task_id|tests?|uu?id"
)


def group_facts(batch: RolloutBatch, first_steps: Baseline | None) -> list[tuple[str, ...]]:
    """The slices of each prompt group by its facts; none where the first steps chose no facts."""
    # Later steps in place of deleted first ones would choose other facts than the bets before were made on.
    chosen = () if first_steps is None or first_steps.source == "later" else first_steps.once(choose_facts)
    return _of_groups(batch, chosen) if chosen and batch.facts is not None else []


@shared()
def _of_groups(batch: RolloutBatch, chosen: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [
        tuple(part_name(key, values[key]) for key in chosen if key in values)
        for values in (_values(batch, int(row)) for row in batch.starts[:-1])
    ]


def part_name(key: str, value: str) -> str:
    """A slice as a reading may carry it.

    >>> part_name("topic", "algebra"), part_name("level", "3"), part_name("data-source", "a.b")
    ('fact.topic-algebra', 'fact.level-3', 'fact.data_source-a_b')
    """
    return FACT + component_name(f"{key.replace('-', '_')}-{value}".replace(".", "_"), {})


def part_words(name: str) -> str:
    """It in a sentence.

    >>> part_words("fact.topic-algebra")
    'where topic is algebra'
    """
    key, _, value = name.removeprefix(FACT).partition("-")
    return f"where {key} is {value}"


def choose_facts(batch: RolloutBatch) -> tuple[str, ...]:
    """The keys of the facts that divide these rows well, those with the fewest values first.

    >>> from tiltmeter.data.batches import from_columns
    >>> facts = [{"level": k % 3, "answer": k % 5, "url": str(k)} for k in range(30)]
    >>> choose_facts(from_columns(0, list(range(30)), reward=[0.0] * 30, facts=facts))
    ('level',)
    """
    rows = _rows_of_prompts(batch) if batch.facts is not None else []
    prompts = [_values(batch, row) for row in rows]
    keys = sorted({key for values in prompts for key in values if not NO_SLICES.fullmatch(key)})
    columns = {key: [values.get(key, "") for values in prompts] for key in keys}
    parts = {key: count for key, column in columns.items() if (count := count_parts(column))}
    environments = [] if batch.env is None else [batch.env[row] or "" for row in rows]
    divisions, room, chosen = [_division(environments)], float(MOST_PARTS), list[str]()
    for key in sorted(parts, key=lambda key: (parts[key], key)):
        division = _division(columns[key])
        if parts[key] <= room and division not in divisions and len(chosen) < MOST_FACTS:
            chosen.append(key)
            divisions.append(division)
            room -= parts[key]
    return tuple(chosen)


def count_parts(column: Sequence[str]) -> float:
    """How many slices a fact makes, those included whose values are still to come; 0 if it divides badly.

    >>> count_parts(["a", "b"] * 8), count_parts([str(k) for k in range(30)]), count_parts(["a"] * 30)
    (2.0, 0.0, 0.0)
    """
    counts = Counter(value for value in column if value)
    total, pairs = counts.total(), sum(count * (count - 1) // 2 for count in counts.values())
    if total < COVERED * len(column) or pairs < LEAST_PAIRS or max(counts.values()) > LARGEST * total:
        return 0.0
    once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
    return len(counts) + once * (once - 1) / (2.0 * (twice + 1.0))


def _rows_of_prompts(batch: RolloutBatch) -> list[int]:
    """The first row of every prompt: one that came back says nothing new."""
    rows: dict[object, int] = {}
    for row in map(int, batch.starts[:-1]):
        text = None if batch.prompt is None else batch.prompt[row]
        rows.setdefault(row if text is None else text, row)
    return list(rows.values())


def _values(batch: RolloutBatch, row: int) -> dict[str, str]:
    """The facts of a row that could name a slice, as text."""
    assert batch.facts is not None
    try:
        facts = from_text(batch.facts[row])
    except ValueError:  # no object: it divides nothing
        return {}
    texts = ((key, str(value)) for key, value in islice(facts.items(), MOST_KEYS) if isinstance(value, str | int))
    return {key: text for key, text in texts if 0 < len(text) <= LONGEST}


def _division(column: Sequence[str]) -> tuple[int, ...]:
    """Which rows are together, whatever their values are called."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(value, len(numbers)) for value in column)
