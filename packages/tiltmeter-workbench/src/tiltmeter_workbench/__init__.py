"""Tools around a run: probe a reward, check preference data, plan, train, compare checkpoints."""
