"""veRL: its plug-in, and the observer of its driver process."""
