"""Rows that were scored without knowing their step: stored by workers, then assembled into steps."""
