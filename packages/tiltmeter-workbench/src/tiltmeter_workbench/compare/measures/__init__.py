"""One file per measure of a checkpoint against its base."""
