"""The terminal: what a command prints and what it asks."""
