"""Tasks: what waits, runs and has run, on which machine, and at what cost."""
