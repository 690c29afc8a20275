"""Sandboxes for code written by a model: without files, network, secrets or the grader. If none works, nothing runs."""

from tiltmeter.sandbox.contract import Ended, Limits, Sandbox, SandboxUnavailable, Service
from tiltmeter.sandbox.opening import ACCEPTED, open_sandbox

__all__ = ["ACCEPTED", "Ended", "Limits", "Sandbox", "SandboxUnavailable", "Service", "open_sandbox"]
