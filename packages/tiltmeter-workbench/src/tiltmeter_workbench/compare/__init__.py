"""A checkpoint against its base: what training bought, and what it cost."""
