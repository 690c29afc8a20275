"""The proving ground: simulated runs with known gold, and how well each detector does on them."""
