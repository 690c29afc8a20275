"""Verbs about a run that the core does not need: ask a model what was done, and answers of checkpoints side by side."""
