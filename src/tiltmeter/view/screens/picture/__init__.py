"""The one picture of a run: proxy and gold, where they parted, the alarm and the checkpoint to go back to."""
