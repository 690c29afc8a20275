"""The witness: a language model reads some trajectories of a run and says what was done, with checked quotes."""
