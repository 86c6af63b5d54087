"""Runs that nobody waits for: how they start, end, and are followed until they are delivered."""
