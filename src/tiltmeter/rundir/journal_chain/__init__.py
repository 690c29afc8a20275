"""Checks of the chain over the journal (`journal_links`), and what a reader remembers of it."""
