"""A verdict for training without rollouts: the same prompts asked of every saved checkpoint, and gold along them."""
