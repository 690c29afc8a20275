"""Live adapters: how rollouts, metrics and knobs are taken from each trainer (TRL, veRL, OpenRLHF, your own loop)."""
