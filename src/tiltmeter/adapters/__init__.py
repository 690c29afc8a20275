"""One file per trainer: the only places that know how each hands over its rollouts."""
