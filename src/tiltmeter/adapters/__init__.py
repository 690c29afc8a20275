"""One folder or file per trainer: the only places that know how each hands over its rollouts."""

from collections.abc import Callable
from typing import Any

#: Gives the module that shows a run, `tiltmeter.view.run_views`. The package sets it: adapters do not import `view`.
open_view: Callable[[], Any]
