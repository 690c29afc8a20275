"""What was done in a run, for the page, the report and `show`."""
