"""What the user asked to be done to tests and to how they are run, and whether an act is that."""
