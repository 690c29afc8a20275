"""Verbs about what a run is trained on."""
