"""Readers of agents' trajectories, one file per format."""
