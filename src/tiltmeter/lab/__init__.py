"""The proving ground: worlds whose truth is known, and how well every alarm does in them."""
