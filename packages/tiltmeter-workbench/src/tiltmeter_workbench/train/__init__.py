"""Recipes that run TRL trainers in stages, with reward guards and the monitor attached."""
