"""A reward attacked before a policy does it: what it pays for beside quality, and what to do about it."""
