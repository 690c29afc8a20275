"""Training with the defences on: thin recipes over TRL, whose trainers do the training."""
