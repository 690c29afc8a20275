"""From events to a state (OK, ALARM, BLIND, ...) and a sentence, and the advice to stop or continue."""
