"""What people wrote on a run."""
