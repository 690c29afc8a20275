"""A run told elsewhere: readings, alarms and the verdict in the trackers and chat rooms that people already watch."""
