"""What is kept of every step of a run takes little space, and says the same as a plain list would."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from tiltmeter.data.number_set import NumberSet
from tiltmeter.data.reading_table import BLOCK, ReadingTable
from tiltmeter.data.records import Reading
from tiltmeter.rundir.journal import SeenIds


def test_ranges_of_numbers_are_the_set_of_them() -> None:
    rng = random.Random(3)
    for _ in range(200):
        numbers, plain = NumberSet(), set[int]()
        for _ in range(60):
            number = rng.randrange(40)
            assert numbers.add(number) is (number not in plain)
            plain.add(number)
            assert [one in numbers for one in range(-1, 41)] == [one in plain for one in range(-1, 41)]
            assert list(numbers) == sorted(plain) and len(numbers) == len(plain)
        assert all(low <= high < later - 1 for (low, high), (later, _) in pairwise(numbers.ranges))


def test_ids_of_events_are_new_exactly_once() -> None:
    rng = random.Random(4)
    kinds = ["reading", "note", "alarm|0", "x|y|z"]
    steps = ["0", "00", "1", "2", "3", "07", "7", "-1", "", "²", "9" * 30]
    names = [f"{kind}|{rng.randrange(2)}|{step}|{end}" for kind in kinds for step in steps for end in ("c", "d", "a|b")]
    names += ["", "|", "||", "|||", "a|b|3", "a|b|3|", "a|b|3|c|4"]
    ids, plain = SeenIds(), set[str]()
    for _ in range(3000):
        name = rng.choice(names)
        assert ids.add(name) is (name not in plain), name
        plain.add(name)


def test_a_table_of_readings_has_every_bit_of_them() -> None:
    rng = np.random.default_rng(5)
    readings = []
    for number in range(3 * BLOCK + 7):
        even = number < BLOCK
        step = number if even else int(rng.integers(0, 10**6))
        value = float(rng.choice([rng.standard_normal(), np.nan, np.inf, -0.0, 0.1 + 0.2]))
        stderr = None if even or rng.random() < 0.3 else float(rng.random())
        readings.append(Reading(number // 2000, step, "gold.mean", value, 8 if even else int(rng.integers(9)), stderr))
    table = ReadingTable("gold.mean", readings)
    assert len(table) == len(readings)
    assert repr(list(table)) == repr(readings)
    assert repr(table[BLOCK + 3]) == repr(readings[BLOCK + 3]) and repr(table[-1]) == repr(readings[-1])
    assert repr(table[5:2000:7]) == repr(readings[5:2000:7])
    chosen = rng.random(len(readings)) < 0.7
    part = table.where(chosen)
    assert repr(list(part)) == repr([one for one, keep in zip(readings, chosen, strict=True) if keep])
    part.add(0, 1, 0.5, 3)
    assert len(part) == chosen.sum() + 1 and part[-1] == Reading(0, 1, "gold.mean", 0.5, 3)
    assert repr(list(table)) == repr(readings), "a part is a copy"
    on_lineage = table.on_lineage({0: 100.0, 1: 5e5})
    expected = [one for one in readings if one.step < (100.0 if one.attempt == 0 else 5e5)]
    assert repr(list(on_lineage)) == repr(expected)


def test_a_long_table_of_a_steady_reading_takes_sixteen_bytes_each() -> None:
    table = ReadingTable("gold.mean")
    for step in range(20 * BLOCK):
        table.add(0, step, step / 7.0, 16, 0.1 + step / 9.0)
    stored = sum(column.nbytes for block in table._blocks for column in block if isinstance(column, np.ndarray))
    assert stored <= 16 * BLOCK * len(table._blocks)
