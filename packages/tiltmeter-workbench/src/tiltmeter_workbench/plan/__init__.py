"""A run on paper: the method, what it needs, and what is wrong with a configuration before it costs a night."""
