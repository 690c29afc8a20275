"""Checks of preference data before training: agreement of raters, and biases such as length that labels reward."""
