"""Simulated worlds: families of hacked and healthy runs whose truth is known."""
