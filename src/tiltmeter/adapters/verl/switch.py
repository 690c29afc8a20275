"""Whether a veRL process is to be watched: by the environment, or by veRL's configuration."""

from __future__ import annotations

import os
from typing import Any

SWITCH = "TILTMETER_VERL"


def is_enabled(config: Any) -> bool:
    """Whether the environment or `trainer.tiltmeter` of the configuration turns Tiltmeter on.

    >>> class Trainer(dict):
    ...     trainer = {"tiltmeter": {"directory": "runs/tonight"}}
    >>> is_enabled(Trainer())
    True
    """
    if os.environ.get("TILTMETER_DISABLED", "") not in ("", "0"):
        return False
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        return True
    try:
        return bool(config.trainer.get("tiltmeter", None))
    except (AttributeError, TypeError, KeyError):  # another kind of configuration
        return False
