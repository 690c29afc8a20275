"""One file per training method."""
