"""The process that reads a run directory, measures, detects, advises, and writes the journal."""
