"""Whatever people look at: the screens and their server, reports, and other trackers."""
