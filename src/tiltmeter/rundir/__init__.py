"""The run directory: the protocol between trainer, monitor and page."""
