"""The reading room of the page: a prompt group's completions in full, and the numbers of their tokens."""
