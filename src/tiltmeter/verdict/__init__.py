"""From events to a state (OK, ACT, BLIND, ...) and a sentence, and the advice to stop or continue."""
