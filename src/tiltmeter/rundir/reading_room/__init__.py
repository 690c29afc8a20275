"""Files that only people who read a run need: the tokenizer's pieces, and tags, notes and views."""
