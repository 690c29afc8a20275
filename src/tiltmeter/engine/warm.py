"""Imported by the process that workers are forked from: every kernel is then loaded once, and each worker has it."""

from __future__ import annotations

from tiltmeter.config import Config
from tiltmeter.engine.worker import lean
from tiltmeter.panel import Panel

lean()
Panel(Config.standard()).warm()
