"""Real TRL runs of a tiny language model, with and without reward hacking; gold is computed by a program."""
