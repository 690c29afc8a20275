"""Preference data, checked before anything is trained on it: who agrees, what the labels reward beside quality."""
