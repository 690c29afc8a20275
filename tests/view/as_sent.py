"""What the page is sent: tests of screens look at the keys and values of the JSON, not at fields of Structs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from tiltmeter.view.payloads.encode import plain

P = ParamSpec("P")


def as_sent(screen: Callable[P, object]) -> Callable[P, Any]:
    """A screen's function, with its payload as the page gets it."""

    @wraps(screen)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        return plain(screen(*args, **kwargs))

    return call
