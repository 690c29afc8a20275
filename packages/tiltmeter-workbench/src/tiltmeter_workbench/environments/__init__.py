"""Environments of other tools in a loop of your own: each episode becomes a conversation of the run."""
