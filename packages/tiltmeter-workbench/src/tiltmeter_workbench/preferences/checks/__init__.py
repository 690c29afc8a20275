"""One file per check of preference data."""
