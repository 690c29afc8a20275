"""How much more a model's answers can differ at equal gold, by the way it is sampled."""
