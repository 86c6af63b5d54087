"""Which model answers, and what happens when it does not."""
