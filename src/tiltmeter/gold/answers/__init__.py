"""Which column of a dataset holds its right answers, what its prompts ask for, and whether completions give them."""
