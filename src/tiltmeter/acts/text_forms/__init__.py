"""Forms in which an answer writes files and calls as text: tags, fences under headings, edits, patches, JSON."""
