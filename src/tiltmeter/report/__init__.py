"""A run in one file, to send or to keep: an HTML page that asks nobody for anything, Markdown, or JSON."""
