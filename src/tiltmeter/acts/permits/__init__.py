"""What the user asked to be done to tests and to how they are run, and what an edit does to what they check."""
