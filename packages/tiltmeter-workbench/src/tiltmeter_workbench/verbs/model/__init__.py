"""Verbs about training: plan it, do it, compare what came out."""
