"""Forecast before a run: how far a reward can be optimised until gold falls, from reference samples and labels."""
