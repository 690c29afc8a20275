"""Pure functions on arrays. Nothing here knows a record, a file or a clock; each has an independent oracle in tests."""
