"""A check for gold: drafted from a dataset, tried beside the reward, and compared with what a person says."""
