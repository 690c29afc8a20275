"""What a run knows of its trainer's checkpoints: their hashes, and which are to be asked how good they are."""
