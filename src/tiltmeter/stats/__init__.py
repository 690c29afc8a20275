"""Statistics as pure functions on arrays: no records, files or clocks; tests check each against another source."""
