"""Imported by the process that workers are forked from: every kernel is then loaded once, and each worker has it."""

from __future__ import annotations

from tiltmeter.audit.engine.worker import limit_resources
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.monitor.parts import Config

limit_resources()
InstrumentPanel(Config.standard()).warm_up()
