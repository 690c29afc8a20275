"""The exceptions of the package, and when each is raised.

Three exceptions under one root. At attach, a set-up that cannot work raises `AttachError` before training starts, and
the message names the fix. During training nothing of this package raises in the trainer's process: a failure becomes a
`Fault` in the run directory. A failed measurement is never replaced by a default
value. Offline commands raise `StoreError` for files they must not trust and `ContractError` for an
extension that breaks its contract.
"""


class TiltmeterError(Exception):
    """The root: `except TiltmeterError` catches everything this package raises on purpose."""


class AttachError(TiltmeterError):
    """The run cannot be watched as asked. Raised before training starts; the message says what to change."""


class StoreError(TiltmeterError):
    """A file of a run directory is damaged, foreign or from a newer format, and was not read as data."""


class ContractError(TiltmeterError):
    """An instrument, derived reading or detector does not keep its contract (see `tiltmeter.testing`)."""
