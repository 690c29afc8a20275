"""GPU memory of a training job, itemised, and what makes it fit."""
