"""Checks of an answer that tests or rules decide: code in a sandbox, mathematics by its terms."""
