"""Real TRL runs of a tiny language model whose reward is hacked, or is not, and whose gold is a program."""
