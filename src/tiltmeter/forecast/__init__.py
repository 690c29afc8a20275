"""Before a run: how far a reward can be followed until gold falls, from samples of the reference and a few labels."""
