"""Objects as bytes and back: the same values to the bit, shared where they were shared; what has no form is refused."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.object_graph import decode_graph, encode_graph
from tiltmeter.data.records import Reading
from tiltmeter.rundir.payloads import AbsentColumns
from tiltmeter.stats.wealth import Wealth


def test_values_come_back_to_the_bit_and_shared_where_they_were() -> None:
    reading = Reading(0, 3, "gold.slope", -0.0, 8, None, (0.1, 5e-324), "", (1, 2))
    wealth = Wealth()
    wealth.place("slope", 1, [0.5, -0.25])
    shared: list[Any] = [reading]
    shared.append(shared)
    root: dict[Any, Any] = {
        ("a", 1): [shared, shared, {reading: wealth}, frozenset({"x", (1,)}), {3, 1, 2}, b"\x00", None, True],
        "ring": deque([1.5, math.inf], maxlen=4),
        "count": Counter(a=2),
        "array": np.array([[1.0, -0.0], [math.nan, 2.0]]),
        "scalar": np.float64(0.1),
        "struct": AbsentColumns(absent={"entropy": "logprob"}),
    }
    again = decode_graph(encode_graph(root))
    first, second, by_reading, *_ = again["a", 1]
    assert first is second and first[1] is first and first[0] is next(iter(by_reading))
    assert by_reading[reading].evidence == wealth.evidence and again["a", 1][3:] == root["a", 1][3:]
    assert math.copysign(1.0, first[0].value) < 0 and again["array"].tobytes() == root["array"].tobytes()
    assert again["ring"].maxlen == 4 and type(again["count"]) is Counter and type(again["scalar"]) is np.float64
    assert again["struct"] == root["struct"] and encode_graph(again) == encode_graph(root)


class Foreign:
    pass


@pytest.mark.parametrize("item", [lambda: 0, threading.Lock(), Foreign(), Reading, np.array([object()]), 1j])
def test_what_has_no_form_is_refused(item: object) -> None:
    with pytest.raises(TypeError):
        encode_graph([item])
