"""Runs work in processes of this machine, or on an existing Ray cluster. No scheduler of our own."""
