"""Configurations of TRL, veRL and OpenRLHF, read as plain settings."""
