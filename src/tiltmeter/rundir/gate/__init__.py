"""What a run directory or a store may hold: the names of files, their sizes and numbers, and what does not belong."""
