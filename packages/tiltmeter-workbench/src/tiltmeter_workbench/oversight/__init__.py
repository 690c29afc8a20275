"""Compares ways of asking a judge, at equal calls, on answers whose truth is known."""
