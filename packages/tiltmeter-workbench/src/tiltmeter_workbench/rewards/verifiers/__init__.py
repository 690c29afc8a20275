"""Rewards that check an answer: code in a sandbox, mathematics by rules, and a gate that pays only what passes."""
