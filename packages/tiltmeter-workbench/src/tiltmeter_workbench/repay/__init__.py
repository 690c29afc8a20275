"""What training gained and what it cost, on the way back to the base: the point that keeps both, if there is one."""
