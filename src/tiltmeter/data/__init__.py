"""The nouns that flow through everything: batches of rollouts, readings, alarms, and how they are built."""
