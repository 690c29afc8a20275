"""Verbs about a reward before it is optimised."""
