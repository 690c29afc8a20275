"""The linter for training configurations: rules with their sources."""
