"""Reward functions that guard themselves: parts on record, canaries, steps that are paid one by one."""
