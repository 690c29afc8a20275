"""The report of a run in one file: self-contained HTML, Markdown, or JSON."""
