"""Preference data read from files of any common form."""
