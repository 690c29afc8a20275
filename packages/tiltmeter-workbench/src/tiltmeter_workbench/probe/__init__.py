"""Probe a reward before training: attacks that show what it pays for besides quality, and audits of verifiers."""
