"""Verbs about a run: follow it, answer its alarms, look closer, keep its files."""
