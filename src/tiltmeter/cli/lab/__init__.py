"""Verbs about simulated runs."""
