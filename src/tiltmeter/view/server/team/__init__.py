"""Accounts of a team: invitations, sessions and roles in SQLite, or names from a reverse proxy."""
